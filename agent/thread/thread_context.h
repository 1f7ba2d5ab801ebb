/* thread_context.h: what the agent keeps of each thread.
 *
 * Two parts:
 *  - `thread_tls`, a small initial-exec TLS struct, zero at a thread's birth and valid at every
 *    instant (before main, in TLS teardown); the hooks' hot path reads only its first words.
 *  - `thread_slot`, in a fixed table of our own memory, found from TLS once attached; others
 *    (TICK, exit) read it too, so it outlives the thread's TLS.
 *
 * Protocol of a slot:
 *  1. Taken from a lock-free list by thread_attach (THR, HOOK; never SIG) or, for a thread whose
 *     creation was not seen, by TICK's scan, whose timer hands the slot to the thread's handler.
 *     Until then nobody knows whether the thread has our TLS: the handler asks before it touches
 *     any, and a slot of a thread that has not stays SLOT_OF_FOREIGN until that thread is gone, so
 *     that no scan adopts it again and no late signal finds the slot another's. A thread that has
 *     may still have another thread pointer for a while (a runtime's own, an emulator's): each
 *     handler compares it with the one that the slot has of it.
 *  2. Only its own thread writes it, but for: `overhead_ns` (exchanged to 0 by a flush),
 *     `cpu_last_ns` (a flush accounts the time of a thread that no signal reaches) and the state
 *     (TICK reaps slots of threads that the kernel does not know any more).
 *  3. `guard` is 0 outside and odd inside a sample; it grows at each change. Whoever needs to
 *     know that no sample can still use what it unpublished calls thread_guard_quiescent.
 *  4. Given back at thread_leave (the destructor of a pthread key: return, pthread_exit and
 *     cancellation alike), in a fork child (all but the own), or when reaped.
 *  5. At each start all slots are made anew (agent/thread/thread_reset.h) and `thread_generation`
 *     grows. What a thread's TLS remembers from before is no slot any more: thread_current, the
 *     one way to it, compares the generations, and the thread finds its new slot by its id, or
 *     through its next signal.
 *
 * A hook or handler that runs on TLS whose slot says another tid (vfork child, raw clone with
 * shared TLS, _Fork child) is foreign: it writes nothing, but for a new gap of bytes where it
 * used up that of the thread.
 *
 * Owns: TLS, slots. Context: as said at each function. Locks: none. */
#ifndef LIBAGENT_THREAD_CONTEXT_H
#define LIBAGENT_THREAD_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/rng.h"
#include "agent/thread/libc_thread.h"
#include "agent/thread/user_labels.h"

struct thread_slot;

struct thread_tls {
    uint64_t bytes_until_sample; /* countdown of agent/alloc; 0 at birth: the first call looks */
    uint32_t alloc_depth;        /* inside the next definition of a hook that may nest */
    uint32_t inside;             /* inside the agent: the handler leaves at once */
    struct thread_slot *slot;    /* read by thread_current alone: it may be of an earlier start */
    struct rng rng;
    uint64_t gap_mean;         /* of the gap that is counted down, in bytes */
    uint64_t bytes_after;      /* what follows the countdown (agent/alloc) */
    uint32_t generation;       /* the start that `slot` is of */
    uint32_t alloc_generation; /* the one that the countdown is of */
    uint32_t entered;          /* agent/thread/presence.h */
    uint8_t internal;          /* one of the agent's own threads */
    uint8_t left;              /* thread_leave was done: TLS teardown */
    uint8_t in_fork;           /* between fork's prepare and its parent or child handler */
};
_Static_assert(sizeof(struct thread_tls) <= 64, "static TLS is scarce: one cache line");

extern __thread struct thread_tls thread_tls INITIAL_EXEC;
/* Grows with each start; never 0. */
extern HIDDEN uint32_t thread_generation;

/* The last: of no thread of the app's, but with a guard that is waited for. */
enum slot_state { SLOT_FREE, SLOT_USED, SLOT_OF_TICKS };

/* The threads of a slot, as far as they are known. */
enum slot_thread { SLOT_OF_OURS, SLOT_OF_ADOPTED, SLOT_OF_FOREIGN };

/* So many frames tell where a thread began: libc's, or another runtime's, and the program's. */
enum { OUTERMOST = 2 };

/* Where the agent spends a thread's CPU time. */
enum overhead_part { OVERHEAD_HANDLERS, OVERHEAD_HOOKS, OVERHEAD_PARTS };

/* Who a sample belongs to, as it is interned in a window. */
struct thread_label {
    uint64_t tid;
    char name[16];
};

struct thread_slot {
    uint32_t state;
    uint32_t guard;
    int32_t tid;                         /* 0: the thread is not born yet */
    int32_t timer;                       /* kernel timer id; below 0: agent/sched/thread_timer.h */
    uint64_t cpu_last_ns;                /* thread CPU clock up to which time is accounted; what a
                                            hook takes is added, as it is not the app's */
    int64_t overhead_ns[OVERHEAD_PARTS]; /* not yet in a window; below 0: too much of it is in one
                                            (agent/sched/cpu_sample.c) */
    uintptr_t stack_low, stack_high;     /* see unwind.h's struct unwind_stack */
    uintptr_t pointer;                   /* its thread pointer, of one of ours */
    uintptr_t start_routine;             /* 0: main thread, or unknown */
    uint64_t outermost[OUTERMOST];       /* of its last sample, where the routine is not known */
    void *start_argument;                /* between pthread_create and the thread's begin */
    struct thread_label label;
    uint32_t next_free;
    uint32_t generation; /* of the start that made it */
    uint8_t is_main;
    uint8_t held;          /* no tick may come: agent/sched/thread_timer.h */
    uint8_t thread;        /* an enum slot_thread */
    uint8_t name_age;      /* calls of thread_note_name, modulo 256 */
    uint32_t tick;         /* the last one that visited it; TICK only, as the next */
    uint64_t tick_cpu_ns;  /* the thread's CPU clock then */
    uint64_t asked_ns;     /* the same when its timer was set by one; 0: it has gone off since */
    uint32_t others_named; /* agent/thread/thread_name.c: when its name was asked for */
    uint32_t interval_us;  /* CPU time between samples, as its timer has it */
    uint32_t last_pc;      /* agent/sched/restarts.h, as the next two */
    uint16_t last_waits;
    uint8_t restarts;
    uint8_t was_sampled;
    struct label_room *labels; /* stays the slot's; NULL: no thread of it ever set any */
} __attribute__((aligned(CACHE_LINE)));

enum { THREAD_SLOTS = 32768 }; /* a process with more threads: the rest is counted, not tracked */

/* INIT. `leaving` is called in a thread that ends (return, pthread_exit, cancellation), in the
 * destructor of a pthread key; it ends with thread_leave. 0 or a negative errno. */
int thread_start(void (*leaving)(void)) MUST_USE;
/* The calling thread's slot, NULL: it has none of this start. Any context with TLS. */
static inline struct thread_slot *thread_current(void)
{
    return likely(thread_tls.generation == load_relaxed(&thread_generation)) ? thread_tls.slot
                                                                             : NULL;
}
/* Attaches the calling thread, to the slot that was made for it by another one if there is one.
 * `stack_high` 0: the thread pointer, when the stack pointer is near below it; of the main thread,
 * what thread_note_main was told. NULL when the table is full (counted), the agent is not started,
 * or this is another process (vfork or _Fork child). THR, HOOK, INIT. */
struct thread_slot *thread_attach(uintptr_t stack_high, uintptr_t start_routine);
/* The same in a hook: of a thread that nobody told of, and that gets its slot by this call, `late`
 * of thread_on_late is told, unless it ends. THR, HOOK. */
struct thread_slot *thread_attach_late(void);
void thread_on_late(void (*late)(struct thread_slot *slot)); /* INIT */
/* The calling thread is the program's first: where its frames end. INIT. */
void thread_note_main(uintptr_t stack_high);
/* A slot for a thread that is about to be made: the new thread makes it its own by
 * thread_attach_prepared. NULL as above. THR. */
struct thread_slot *thread_prepare(uintptr_t start_routine, void *start_argument);
void thread_attach_prepared(struct thread_slot *slot);
/* Instead, where nothing is recorded: its end is told all the same. THR. */
void thread_watch_end(void);
/* Instead, by the one that made it, of a thread that will not call that: from now on it is as one
 * that TICK adopted, but all of its time is known. False: it has a slot, or is gone; this one is
 * free again. THR. */
bool thread_is_born(struct thread_slot *slot, int tid) MUST_USE;
/* In the handler of a thread that TICK adopted: the slot becomes the thread's own. SIG. */
void thread_take_over(struct thread_slot *slot);
/* May the handler of this slot's signal use TLS? It is not touched. Of a thread that TICK adopted
 * this asks whether it has any, once. Also false in another thread than the slot's. SIG. */
bool thread_has_tls(struct thread_slot *slot);
/* Where it is false: is the slot the calling thread's all the same? A system call. SIG. */
bool thread_owns_without_tls(const struct thread_slot *slot);
/* Gives back the calling thread's slot. The caller has deleted its timer. THR, HOOK. */
void thread_leave(void);
/* Where the calling thread's data are, at or near the end of its stack. Any context. */
uintptr_t thread_pointer(void);
/* Is this libc's handle (pthread_self) of the calling thread? Any context. */
bool thread_is_self(uintptr_t handle);
/* The process that the agent was started in (changed by thread_reset_in_child). */
int thread_pid(void);
/* Is this it? Not in a child that was made past libc, nor in one on the parent's memory (vfork).
 * The pid does not tell all: the child of a pid 1 may be pid 1 of a namespace of its own; that is
 * seen by a page which the kernel wipes in it (Linux 4.14), unless it is on the parent's memory,
 * too. Any context; a system call. */
bool thread_in_process(void);
/* Is `slot`, which the TLS names, the calling thread's? Not in such children. Any context; a system
 * call. */
bool thread_owns(const struct thread_slot *slot);
/* Names: a thread has its creator's at birth, as in the kernel. Changes through libc are seen
 * (thread_named, of the calling thread; thread_other_named, of one that is not known here: each
 * thread is asked once more); all others by thread_note_name, which asks the kernel at its first
 * call, at every eighth of 64, and three times more until 256, where that begins anew: a system
 * call that few samples need, and no thread that was never sampled. SIG, HOOK, THR. */
void thread_note_name(struct thread_slot *slot);
/* The name of another thread, which no handler or hook of its own has asked for: one that waits may
 * never run any. As the kernel has it; nothing where that is not told. TICK, INIT. */
void thread_read_name(struct thread_slot *slot);
/* The same where threads have named others since it was asked for. */
void thread_read_news(struct thread_slot *slot);
/* At the end of a thread: asks where threads have named others since. THR. */
void thread_note_last_name(struct thread_slot *slot);
void thread_named(const char *name);
void thread_other_named(void);
/* A handler or hook of the calling thread began at `begin_ns` (CLOCK_MONOTONIC) and is over: its
 * time is overhead, and not the app's. `times`: how many it stands for. When it was over. SIG,
 * HOOK. */
uint64_t thread_add_overhead(struct thread_slot *slot, enum overhead_part part, uint64_t begin_ns,
                             uint32_t times);

/* For TICK's scan and reaping, and for a start: takes a slot for another thread. */
struct thread_slot *thread_adopt(int tid);
/* The same in the thread's old slot, which its next handler or hook makes its own. False where the
 * thread is gone; the slot is as it was then. */
bool thread_adopt_again(struct thread_slot *slot) MUST_USE;
void thread_release_slot(struct thread_slot *slot);
/* The slot in use of that thread, or NULL. */
struct thread_slot *thread_find_slot(int tid);
/* The slots ever used are [0, thread_slot_count()), and never more than the capacity. */
uint32_t thread_slot_count(void);
uint32_t thread_slot_capacity(void);
struct thread_slot *thread_slot_at(uint32_t index);
/* True when `slot` points into the table, whether the slot is in use or not (the signal of a
 * timer that was deleted can still come, and is no foreign one). */
bool thread_slot_is_ours(const struct thread_slot *slot);

static inline void thread_guard_enter(struct thread_slot *slot)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a sample has one */
    __atomic_store_n(&slot->guard, slot->guard + 1, __ATOMIC_SEQ_CST);
    full_fence();
}
static inline void thread_guard_leave(struct thread_slot *slot)
{
    __atomic_store_n(&slot->guard, slot->guard + 1, __ATOMIC_RELEASE);
}
/* True when every guard that was open at the call has been closed since, waiting (TICK, INIT)
 * until the CLOCK_MONOTONIC deadline; with deadline 0 it looks once and does not wait. */
bool thread_guard_quiescent(uint64_t deadline_ns);

/* The guards that were open when something was unpublished, so that one can ask later, without
 * waiting, whether a sample may still use it: under load some guard is open at every instant,
 * but each is soon closed. */
enum { THREAD_GRACE_OPEN = 64 };
struct thread_grace {
    uint32_t count; /* above THREAD_GRACE_OPEN: more were open than could be noted */
    struct {
        uint32_t slot, guard;
    } open[THREAD_GRACE_OPEN];
};
/* INIT, THR, TICK. */
void thread_grace_begin(struct thread_grace *grace);
/* True when all of them have been closed since. When not all could be noted, those open now are
 * noted instead, for the next call. */
bool thread_grace_over(struct thread_grace *grace);

/* In a fork child: only the calling thread is left. Returns how many others the parent had. */
uint32_t thread_reset_in_child(void);

#endif
