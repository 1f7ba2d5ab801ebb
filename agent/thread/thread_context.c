#include "agent/thread/thread_context.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/next.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/thread/left_threads.h"

/* Linux 4.14; the headers of older systems lack it. */
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* The free list is a stack of indices + 1 (0: empty) in the low half of one word; the high half
 * is a count of changes, so that a stale head never matches (ABA). */
static struct {
    struct thread_slot *slots;
    uint32_t capacity;
    uint64_t free_head;
    uint32_t used; /* slots ever taken */
    int32_t pid;
    uint32_t *here; /* 1; 0 in a child that was not reset; NULL: the kernel cannot tell */
    void (*leaving)(void);
    void (*late)(struct thread_slot *slot);
    bool has_key;
    unsigned key;
    uintptr_t main_pointer, main_stack_high; /* of the main thread, whose stack lies apart */
} threads;

__thread struct thread_tls thread_tls INITIAL_EXEC;
uint32_t thread_generation = 1;

/* A thread's stack is searched below its thread pointer only this far: larger stacks than 8 GiB
 * are not made, and a stack pointer farther away is on another stack. */
static const uintptr_t stack_reach = (uintptr_t)8 << 30;

uintptr_t thread_pointer(void)
{
#if defined(__x86_64__)
    uintptr_t value;
    __asm__("movq %%fs:0, %0" : "=r"(value));
    return value;
#else
    return (uintptr_t)__builtin_thread_pointer();
#endif
}

bool thread_is_self(uintptr_t handle)
{
#if defined(__x86_64__)
    return handle == thread_pointer();
#else
    /* The block that it points at ends at the thread pointer; another's is a stack farther away. */
    enum { BLOCK_MAX = 4096 };
    return thread_pointer() - handle <= BLOCK_MAX;
#endif
}

/* The key's destructor runs among those of the app's keys, up to four times over
 * (PTHREAD_DESTRUCTOR_ITERATIONS) while values are set. Setting it until the last time puts the end
 * of the thread's record behind three rounds of the app's destructors, whose time and allocations
 * so still count; a round with no other value takes some 50 ns. */
enum { KEY_FIRST_ROUND = 1, KEYS_IN_PLACE = 32 };
#ifdef __SANITIZE_THREAD__
enum { KEY_LAST_ROUND = 3 }; /* in the fourth, code that is instrumented may run no more */
#else
enum { KEY_LAST_ROUND = 4 };
#endif

static void set_key(uintptr_t round)
{
    if (threads.has_key)
        next.pthread_setspecific(threads.key, (const void *)round);
}

void thread_watch_end(void)
{
    if (!thread_tls.left)
        set_key(KEY_FIRST_ROUND);
}

static void key_destructor(void *value)
{
    uintptr_t round = (uintptr_t)value;
    if (round < KEY_LAST_ROUND)
        set_key(round + 1);
    else
        threads.leaving();
}

/* The default budget of 64 MiB gives all THREAD_SLOTS. */
enum { BUDGET_SHARE = 16 };

static void mark_process(void)
{
    uint32_t *page = sys_map(PAGE_SIZE_MIN);
    if (!page)
        return;
    if (sys_call3(SYS_madvise, page, PAGE_SIZE_MIN, MADV_WIPEONFORK) == 0) {
        *page = 1;
        threads.here = page;
    } else {
        sys_unmap(page, PAGE_SIZE_MIN);
    }
}

int thread_start(void (*leaving)(void))
{
    libc_thread_start();
    threads.leaving = leaving;
    threads.pid = sys_pid();
    if (!threads.slots) {
        threads.capacity = (uint32_t)MIN_OF(
            arena_budget() / BUDGET_SHARE / sizeof(struct thread_slot), (size_t)THREAD_SLOTS);
        threads.slots = arena_reserve(threads.capacity * sizeof(struct thread_slot));
        if (!threads.slots)
            return -ENOMEM;
        mark_process();
    }
    if (!threads.has_key && next.pthread_key_create && next.pthread_setspecific)
        threads.has_key = next.pthread_key_create(&threads.key, key_destructor) == 0;
    return 0;
}

int thread_pid(void)
{
    return threads.pid;
}

static bool is_copy(void)
{
    return threads.here && !load_relaxed(threads.here);
}

bool thread_in_process(void)
{
    return !is_copy() && sys_pid() == threads.pid;
}

bool thread_owns(const struct thread_slot *slot)
{
    return !is_copy() && slot->tid == sys_tid();
}

static void push_free(struct thread_slot *slot)
{
    uint32_t index = (uint32_t)(slot - threads.slots);
    uint64_t head = load_relaxed(&threads.free_head);
    uint64_t wanted;
    do {
        store_relaxed(&slot->next_free, (uint32_t)head);
        wanted = ((head >> 32) + 1) << 32 | (index + 1);
    } while (!__atomic_compare_exchange_n(&threads.free_head, &head, wanted, false,
                                          __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

static struct thread_slot *pop_free(void)
{
    uint64_t head = load_acquire(&threads.free_head);
    while ((uint32_t)head) {
        struct thread_slot *slot = &threads.slots[(uint32_t)head - 1];
        uint64_t wanted = ((head >> 32) + 1) << 32 | load_relaxed(&slot->next_free);
        if (__atomic_compare_exchange_n(&threads.free_head, &head, wanted, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE))
            return slot;
    }
    return NULL;
}

/* All but `next_free`, which another pop_free may still read. */
static void make_blank(struct thread_slot *slot, int tid)
{
    store_relaxed(&slot->generation, load_relaxed(&thread_generation));
    store_relaxed(&slot->guard, slot->guard & ~1u);
    store_relaxed(&slot->tid, tid);
    slot->timer = -1;
    slot->cpu_last_ns = 0;
    for (int part = 0; part < OVERHEAD_PARTS; part++)
        store_relaxed(&slot->overhead_ns[part], 0);
    slot->stack_low = slot->stack_high = 0;
    slot->pointer = 0;
    slot->start_routine = 0;
    memset(slot->outermost, 0, sizeof(slot->outermost));
    slot->start_argument = NULL;
    slot->label = (struct thread_label){.tid = (uint64_t)tid};
    slot->is_main = tid == threads.pid;
    slot->thread = SLOT_OF_OURS;
    slot->name_age = slot->held = slot->restarts = slot->was_sampled = 0;
    slot->interval_us = slot->last_pc = 0;
    user_labels_forget(slot->labels);
    /* `tick` and `tick_cpu_ns` are the visitor's: what it finds there is another clock's. */
}

static struct thread_slot *take_slot(int tid)
{
    if (!threads.slots)
        return NULL;
    struct thread_slot *slot = pop_free();
    if (!slot) {
        uint32_t index = load_relaxed(&threads.used);
        do {
            if (index >= threads.capacity) {
                stats_add(STAT_THREADS_UNTRACKED, 1);
                return NULL;
            }
        } while (!__atomic_compare_exchange_n(&threads.used, &index, index + 1, false,
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        slot = &threads.slots[index];
    }
    make_blank(slot, tid);
    store_release(&slot->state, SLOT_USED);
    return slot;
}

void thread_note_main(uintptr_t stack_high)
{
    threads.main_pointer = thread_pointer();
    threads.main_stack_high = stack_high;
}

static void set_stack_high(struct thread_slot *slot, uintptr_t stack_high)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!stack_high) {
        uintptr_t pointer = thread_pointer();
        uintptr_t end = pointer == threads.main_pointer ? threads.main_stack_high : pointer;
        if (here < end && end - here < stack_reach)
            stack_high = end;
    }
    stack_high = ALIGN_DOWN(stack_high, sizeof(uintptr_t));
    slot->stack_high = stack_high;
    slot->stack_low = stack_high;
}

/* In this order: handlers look at the pointer of one of ours. */
static void make_ours(struct thread_slot *slot)
{
    store_relaxed(&slot->pointer, thread_pointer());
    store_release(&slot->thread, SLOT_OF_OURS);
}

/* The calling thread and `slot` belong together from here on. */
static void bind(struct thread_slot *slot, uintptr_t stack_high)
{
    set_stack_high(slot, stack_high);
    thread_tls.slot = slot;
    thread_tls.generation = load_relaxed(&thread_generation);
    thread_watch_end();
}

struct thread_slot *thread_attach(uintptr_t stack_high, uintptr_t start_routine)
{
    if (!thread_in_process())
        return NULL;
    int tid = sys_tid();
    /* In its TLS teardown it has one for a sample only, and gives it back past the timers. */
    struct thread_slot *slot = thread_tls.left ? NULL : thread_find_slot(tid);
    if (!slot) {
        slot = take_slot(tid);
        if (!slot)
            return NULL;
        slot->cpu_last_ns = clock_thread_cpu_ns();
    }
    make_ours(slot);
    slot->start_routine = start_routine;
    thread_note_name(slot);
    bind(slot, stack_high);
    return slot;
}

void thread_on_late(void (*late)(struct thread_slot *slot))
{
    threads.late = late;
}

struct thread_slot *thread_attach_late(void)
{
    bool is_unknown = !thread_tls.left && !thread_find_slot(sys_tid());
    struct thread_slot *slot = thread_attach(0, 0);
    if (slot && is_unknown && threads.late)
        threads.late(slot);
    return slot;
}

struct thread_slot *thread_prepare(uintptr_t start_routine, void *start_argument)
{
    if (!thread_in_process())
        return NULL;
    struct thread_slot *slot = take_slot(0);
    if (!slot)
        return NULL;
    slot->start_routine = start_routine;
    slot->start_argument = start_argument;
    const struct thread_slot *creator = thread_current();
    if (creator)
        memcpy(slot->label.name, creator->label.name, sizeof(slot->label.name));
    return slot;
}

void thread_attach_prepared(struct thread_slot *slot)
{
    make_ours(slot);
    slot->label.tid = (uint64_t)sys_tid();
    store_release(&slot->tid, (int32_t)slot->label.tid);
    /* cpu_last_ns stays 0: what its birth took is the thread's too. Not if a start came between. */
    if (slot->generation != load_relaxed(&thread_generation)) {
        store_relaxed(&slot->generation, load_relaxed(&thread_generation));
        slot->cpu_last_ns = clock_thread_cpu_ns();
    }
    bind(slot, 0);
}

bool thread_is_born(struct thread_slot *slot, int tid)
{
    /* The clock of one that has not run yet reads 0. */
    bool is_gone = sys_call3(SYS_tgkill, threads.pid, tid, 0) != 0;
    if (is_gone || thread_find_slot(tid)) {
        thread_release_slot(slot);
        return false;
    }
    slot->label.tid = (uint64_t)tid;
    slot->thread = SLOT_OF_ADOPTED;
    if (slot->generation != load_relaxed(&thread_generation)) {
        store_relaxed(&slot->generation, load_relaxed(&thread_generation));
        slot->cpu_last_ns = clock_thread_cpu_of_ns(tid);
    }
    store_release(&slot->tid, tid);
    return true;
}

void thread_take_over(struct thread_slot *slot)
{
    /* It attached itself while TICK adopted it: with two slots its time would count twice. */
    struct thread_slot *other = thread_current();
    if (other && other != slot && other->tid == slot->tid)
        thread_release_slot(other);
    thread_tls.slot = slot;
    thread_tls.generation = load_relaxed(&thread_generation);
    make_ours(slot);
    set_stack_high(slot, 0);
    /* In the handler: values of later keys are in memory that libc would allocate. Such a thread
     * is found to be gone by a scan. */
    if (threads.key < KEYS_IN_PLACE)
        set_key(KEY_FIRST_ROUND);
}

static bool ask_tls(struct thread_slot *slot)
{
    /* Of another thread: late, from a timer that is gone; there is nothing to do. */
    if (load_relaxed(&slot->thread) == SLOT_OF_FOREIGN || load_relaxed(&slot->tid) != sys_tid())
        return false;
    if (libc_thread_is_current(slot->tid))
        return true;
    thread_note_name(slot);
    store_relaxed(&slot->thread, SLOT_OF_FOREIGN);
    stats_add(STAT_THREADS_FOREIGN, 1);
    return false;
}

bool thread_has_tls(struct thread_slot *slot)
{
    return likely(load_acquire(&slot->thread) == SLOT_OF_OURS)
               ? likely(libc_thread_has_pointer(load_relaxed(&slot->pointer)))
               : ask_tls(slot);
}

bool thread_owns_without_tls(const struct thread_slot *slot)
{
    return load_acquire(&slot->state) == SLOT_USED && load_relaxed(&slot->tid) == sys_tid();
}

void thread_leave(void)
{
    struct thread_slot *slot = thread_current();
    thread_tls.slot = NULL;
    thread_tls.left = 1;
    left_threads_add(sys_tid());
    if (slot)
        thread_release_slot(slot);
}

/* CPU clocks take a system call of 0.3 us, which is as long as the rest of a sample; so the time
 * that passes is taken for CPU time. One that took longer than this was interrupted by another
 * thread, or read its tables from a disk. */
static const uint64_t longest_sample_ns = 200000;

uint64_t thread_add_overhead(struct thread_slot *slot, enum overhead_part part, uint64_t begin_ns,
                             uint32_t times)
{
    static const enum stat_id stats[OVERHEAD_PARTS] = {
        [OVERHEAD_HANDLERS] = STAT_HANDLERS_NS, [OVERHEAD_HOOKS] = STAT_HOOKS_NS};
    uint64_t now = clock_monotonic_ns();
    uint64_t cost = MIN_OF(now - begin_ns, longest_sample_ns) * times;
    add_relaxed(&slot->cpu_last_ns, cost);
    add_relaxed(&slot->overhead_ns[part], (int64_t)cost);
    stats_add(stats[part], cost);
    return now;
}

struct thread_slot *thread_adopt(int tid)
{
    struct thread_slot *slot = take_slot(tid);
    if (slot) {
        store_relaxed(&slot->thread, SLOT_OF_ADOPTED);
        slot->cpu_last_ns = clock_thread_cpu_of_ns(tid);
    }
    return slot;
}

bool thread_adopt_again(struct thread_slot *slot)
{
    int tid = load_relaxed(&slot->tid);
    uint64_t now = clock_thread_cpu_of_ns(tid);
    if (!now)
        return false;
    make_blank(slot, tid);
    store_relaxed(&slot->thread, SLOT_OF_ADOPTED);
    slot->cpu_last_ns = now;
    return true;
}

struct thread_slot *thread_find_slot(int tid)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        if (load_acquire(&slot->state) == SLOT_USED && load_relaxed(&slot->tid) == tid)
            return slot;
    }
    return NULL;
}

void thread_release_slot(struct thread_slot *slot)
{
    uint32_t used = SLOT_USED;
    if (__atomic_compare_exchange_n(&slot->state, &used, SLOT_FREE, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
        user_labels_forget(slot->labels);
        push_free(slot);
    }
}

uint32_t thread_slot_count(void)
{
    return load_relaxed(&threads.used);
}

uint32_t thread_slot_capacity(void)
{
    return threads.capacity;
}

struct thread_slot *thread_slot_at(uint32_t index)
{
    return &threads.slots[index];
}

bool thread_slot_is_ours(const struct thread_slot *slot)
{
    uintptr_t offset = (uintptr_t)slot - (uintptr_t)threads.slots;
    return threads.slots && offset < threads.capacity * sizeof(*slot) &&
           offset % sizeof(*slot) == 0;
}

uint32_t thread_reset_in_child(void)
{
    uint32_t others = 0;
    struct thread_slot *own = thread_current();
    threads.pid = sys_pid();
    if (threads.here)
        store_relaxed(threads.here, 1);
    threads.free_head = 0;
    for (uint32_t i = 0; i < threads.used; i++) {
        struct thread_slot *slot = &threads.slots[i];
        slot->guard &= ~1u;
        slot->timer = -1;
        if (slot == own)
            continue;
        others += slot->state == SLOT_USED;
        slot->state = SLOT_FREE;
        push_free(slot);
    }
    if (own) {
        own->tid = sys_tid();
        own->label.tid = (uint64_t)own->tid;
        own->is_main = 1;
        own->cpu_last_ns = clock_thread_cpu_ns();
        memset(own->overhead_ns, 0, sizeof(own->overhead_ns));
        user_labels_forget(own->labels);
    }
    captures_reset();
    return others;
}
