/* time_recorder.h: totals of a window, added to by handlers and hooks without blocking.
 *
 * Protocol:
 *  1. Two windows; `active` says into which samples go. A sample enters a thread guard, loads
 *     `active`, interns its stack, its thread and the pair, adds to the pair's totals (relaxed
 *     atomics), leaves the guard. Tables only grow; all are lock-free (intern_table.h).
 *  2. A flush (TICK or exit, under LOCK_FLUSH) turns `active` (recorder_turn), waits until all
 *     guards open at that time are closed, and then has the old window to itself: encodes it,
 *     clears it. The other one serves meanwhile.
 *  3. What does not fit adds to the window's `truncated` totals: sums stay true.
 *  Race that remains: a sample that loaded `active` just before the turn lands in the old
 *  window, though its time is past the window's end by microseconds. Harmless.
 *
 * Owns: the windows. Context: recorder_add SIG, HOOK, THR, TICK, INIT inside a guard; the rest
 * INIT, TICK under LOCK_FLUSH. Locks: none of its own. */
#ifndef LIBAGENT_TIME_RECORDER_H
#define LIBAGENT_TIME_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/intern_table.h"
#include "agent/thread/thread_context.h"

enum record_family {
    RECORD_CPU,
    RECORD_ALLOC,
    RECORD_WALL,
    RECORD_FAMILIES,
    /* Not of samples: files made of the live heap alone. */
    FILE_HEAP_GROWTH = RECORD_FAMILIES,
    FILE_HEAP_PEAK,
    FILE_FAMILIES
};

/* What the thread of a wall sample did: the upper half of a stack's first word, so that the other
 * families pay nothing for it. */
enum {
    RECORD_STATE_SHIFT = 32,
    RECORD_RUNNING = 0, /* the first word is then as in a CPU sample, and so is the stack one */
    RECORD_BLOCKED,     /* in what is not known */
    RECORD_UNTOLD,      /* nobody looked */
    RECORD_SYSTEM_CALL, /* + the number of the system call that it waited in */
};
/* Added to a state: the stack was not read at that time, or a frame of it was guessed. */
#define RECORD_APPROXIMATE 0x80000000u

/* Values are fixed point, so that fractions of unbiased counts add up: count << 16 of them is 1. */
enum { RECORD_FRACTION_BITS = 16 };

/* Program counters below this are names, not addresses. */
enum pseudo_frame {
    PSEUDO_OVERHEAD = 1, /* "libagent overhead": the agent's own time */
    PSEUDO_TRUNCATED,    /* "libagent truncated": what no table had room for */
    PSEUDO_TAIL,         /* "[thread end]": time after a thread's last sample */
    PSEUDO_UNREACHED,    /* "[not sampled]": time of a thread while no sample reached it */
    PSEUDO_RUNNING,      /* "running (not sampled)": CPU time where no signal is allowed */
    PSEUDO_UNKNOWN,      /* "[unknown]": the walk gave no frame at all */
    PSEUDO_SKIPPED,      /* "libagent skipped": more CPU time than one sample is to stand for */
    PSEUDO_UNSEEN,   /* "[threads not seen]": CPU time of the process that no known thread used */
    PSEUDO_HANDLERS, /* Callers of PSEUDO_OVERHEAD: the part that it belongs to. */
    PSEUDO_HOOKS,
    PSEUDO_AGENT,
    PSEUDO_UPLOADER,
    PSEUDO_TICKS,
    PSEUDO_COUNT
};
const char *pseudo_frame_name(enum pseudo_frame frame);

/* count is in 1/2^16; amount in nanoseconds (cpu, wall) or in bytes/2^8 (alloc). */
struct record_values {
    uint64_t count;
    uint64_t amount;
};
enum { RECORD_AMOUNT_BITS_ALLOC = 8 };
/* What a sample of an allocation adds, here and to the live heap: `weight` allocations (1/2^16) of
 * `size` bytes. 128 bits, as a block may have 2^47 bytes. */
static inline struct record_values record_values_of(uint64_t weight, size_t size)
{
    unsigned __int128 amount = (unsigned __int128)weight * size;
    return (struct record_values){
        weight, (uint64_t)(amount >> (RECORD_FRACTION_BITS - RECORD_AMOUNT_BITS_ALLOC))};
}

struct window {
    struct intern_table stacks;  /* key: struct record_stack; no values */
    struct intern_table threads; /* key: struct thread_label as 3 words, and where the program has
                                    set labels a word of two references: to its set and its capture,
                                    and one to the process's capture where there is one; these are
                                    keys here, too (their words); no values */
    struct intern_table totals;  /* key: family << 62 | stack ref << 31 | thread ref, 0: no
                                    room for the thread; 2 values */
    struct record_values truncated[RECORD_FAMILIES];
    uint64_t real_samples; /* timer or allocation samples: an empty window writes nothing */
    uint64_t start_monotonic_ns, start_realtime_ns;
};

/* New tables, in the place of those of an earlier start, which nobody uses any more. 0 or a
 * negative errno; nothing is kept then. */
int recorder_start(uint64_t now_monotonic_ns, uint64_t now_realtime_ns) MUST_USE;
/* Gives the tables back; nobody samples. */
void recorder_destroy(void);

/* A stack as it is interned: the generation is the first word of the key. */
struct record_stack {
    uint64_t generation; /* of the module list; the upper half is a wall sample's state */
    uint64_t pcs[];      /* innermost first */
};
/* The words by which a stack of `count` frames is known, here and in the live heap; *words: how
 * many. One without a frame is that of PSEUDO_UNKNOWN. Any context. */
const uint64_t *record_stack_key(const struct record_stack *stack, uint32_t count, uint32_t *words);
/* Adds one sample. A stack of no frame is recorded as PSEUDO_UNKNOWN. `labels`: the program's,
 * NULL: none. `is_real`: a timer's or an allocation's sample (not a tail, not overhead). */
void recorder_add_labelled(enum record_family family, const struct record_stack *stack,
                           uint32_t count, const struct thread_label *label,
                           const struct label_view *labels, struct record_values values,
                           bool is_real);
static inline void recorder_add(enum record_family family, const struct record_stack *stack,
                                uint32_t count, const struct thread_label *label,
                                struct record_values values, bool is_real)
{
    recorder_add_labelled(family, stack, count, label, NULL, values, is_real);
}
/* Has the active window a real sample? Any context. */
bool recorder_has_samples(void);
/* When the active window began (CLOCK_MONOTONIC). */
uint64_t recorder_window_start_ns(void);
/* Turns the windows; the old one is returned. The caller waits for quiescence before it reads. */
struct window *recorder_turn(uint64_t now_monotonic_ns, uint64_t now_realtime_ns);
/* Empties a window that nobody can reach. */
void recorder_clear(struct window *window);
/* In a fork child: both windows empty, time restarted. */
void recorder_reset_in_child(uint64_t now_monotonic_ns, uint64_t now_realtime_ns);

/* What the program has labelled a row with: words of label_words.h. */
enum row_labels { ROW_LABELS, ROW_CAPTURE, ROW_PROCESS_CAPTURE, ROW_LABEL_SETS };

/* One row of a quiescent window. */
struct window_row {
    enum record_family family;
    uint32_t generation;
    uint32_t state; /* wall: what the thread did */
    uint32_t count;
    const uint64_t *pcs;
    const struct thread_label *thread;                 /* tid 0: there was no room for it */
    const struct intern_entry *labels[ROW_LABEL_SETS]; /* NULL: none */
    struct record_values values;
};
/* Calls `each` for every row (not for `truncated`); stops at a negative result and returns it. */
int window_each(const struct window *window, int (*each)(const struct window_row *, void *),
                void *data);

#endif
