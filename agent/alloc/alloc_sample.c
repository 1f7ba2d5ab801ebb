#include "agent/alloc/alloc_sample.h"

#include "agent/base/clock.h"
#include "agent/base/float_mode.h"
#include "agent/base/options.h"
#include "agent/base/real.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/record/heap_recorder.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/thread/moment.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/unwinder.h"

/* A thread that found sampling off looks again after so many bytes: a start reaches it soon, and
 * the look costs nothing measurable. */
static const uint64_t look_again = (uint64_t)1 << 20;
static const uint64_t look_never = UINT64_MAX;
/* While it is off: each so many bytes a look is a moment, too (agent/thread/moment.h), which costs
 * as much as ten looks. */
static const uint64_t moment_again = (uint64_t)16 << 20;

enum alloc_state { ALLOC_OFF, ALLOC_ON, ALLOC_OFF_FOR_GOOD };

static AT_START uint32_t state;
static uint32_t generation; /* of starts: a countdown of an earlier one is none */
static uint64_t interval = 1;

void alloc_start(uint64_t interval_bytes)
{
    alloc_set_interval(interval_bytes);
    store_relaxed(&generation, generation + 1);
    /* The calling thread found sampling off before main: it looks at once. */
    thread_tls.bytes_until_sample = 0;
    thread_tls.bytes_after = 0;
    store_release(&state, ALLOC_ON);
}

void alloc_set_interval(uint64_t interval_bytes)
{
    store_relaxed(&interval, interval_bytes);
}

/* Who has counted itself and sees it on is waited for (agent/thread/presence.h). */
void alloc_stop(void)
{
    __atomic_store_n(&state, ALLOC_OFF, __ATOMIC_SEQ_CST);
}

void alloc_stop_for_good(void)
{
    __atomic_store_n(&state, ALLOC_OFF_FOR_GOOD, __ATOMIC_SEQ_CST);
}

void alloc_reset_in_child(void)
{
    thread_tls.bytes_until_sample = 0;
    thread_tls.bytes_after = 0;
    thread_tls.alloc_generation = 0;
}

uint64_t alloc_weight(size_t size, uint64_t interval_bytes)
{
    const double one = (double)((uint64_t)1 << RECORD_FRACTION_BITS);
    if (interval_bytes <= 1)
        return (uint64_t)one;
    double ratio = (double)size / (double)interval_bytes;
    return (uint64_t)(one / -real_expm1(-ratio) + 0.5);
}

/* A gap is counted down in pieces of `look_again` at most: what follows the one in hand is in
 * `bytes_after`. So a thread sees within that many bytes that sampling was started anew, with
 * another interval, however long its gap was. */
static void set_left(struct thread_tls *tls, uint64_t left)
{
    uint64_t piece = MIN_OF(left, look_again);
    tls->bytes_until_sample = piece;
    tls->bytes_after = left - piece;
}

/* One less than the variate: `size` bytes are sampled when fewer are left, and so with the
 * probability P(variate - 1 < size) = P(variate <= size), the one in alloc_weight. */
static uint64_t draw_gap(struct thread_tls *tls)
{
    uint64_t mean = load_relaxed(&interval);
    tls->gap_mean = mean;
    return mean <= 1 ? 0 : (uint64_t)rng_exponential(&tls->rng, (double)mean) - 1;
}

/* A block that was sampled. */
struct block {
    const void *pointer;
    size_t size;
    struct record_values values;
};

static void add_to_recorders(struct thread_slot *slot, const struct block *block,
                             const struct record_stack *stack, uint32_t count)
{
    struct label_view labels = user_labels_here(slot->labels);
    recorder_add_labelled(RECORD_ALLOC, stack, count, &slot->label, &labels, block->values, true);
    if (!heap_recorder_is_on())
        return;
    const struct heap_sample live = {
        .pointer = block->pointer,
        .size = block->size,
        .weight = block->values.count,
        .stack = stack,
        .frames = count,
        .thread = options.thread_labels ? &slot->label : NULL,
        .now_s = (uint32_t)(clock_monotonic_ns() / NS_PER_SEC),
    };
    heap_recorder_add(&live, &thread_tls.rng);
}

/* Fills `stack`, adds the sample; returns the walk's flags. */
static uint32_t walk_and_add(struct thread_slot *slot, struct record_stack *stack,
                             const struct block *block)
{
    struct unwind_regs regs;
    struct unwind_stack home = {slot->stack_low, slot->stack_high};
    uint32_t flags;
    uint32_t list_generation;
    unwind_regs_here(&regs);
    uint32_t count = unwinder->walk(&regs, false, &home, stack->pcs, options.max_frames, &flags,
                                    &list_generation);
    slot->stack_low = home.low;
    stack->generation = list_generation;
    if (flags & UNWIND_CUT)
        stats_add(STAT_STACKS_CUT, 1);
    else if (!(flags & UNWIND_COMPLETE))
        stats_add(STAT_STACKS_INCOMPLETE, 1);
    add_to_recorders(slot, block, stack, count);
    return flags;
}

/* Two looks at a clock are a tenth of a sample: one in so many, drawn at random, is timed, and
 * stands for as many. */
enum { TIMED_ONE_IN = 8 };

static uint32_t sample(struct thread_slot *slot, const void *pointer, size_t size)
{
    static struct record_stack no_frames;
    /* Of an allocation that used up the calling thread's gap. */
    const struct block block = {pointer, size,
                                record_values_of(alloc_weight(size, thread_tls.gap_mean), size)};
    struct record_stack *stack = scratch_claim();
    uint32_t flags = 0;
    thread_note_name(slot);
    thread_guard_enter(slot);
    if (stack) {
        flags = walk_and_add(slot, stack, &block);
        scratch_give(stack);
    } else {
        /* No room to walk: the bytes are counted all the same, in a stack of no name. */
        add_to_recorders(slot, &block, &no_frames, 0);
        stats_add(STAT_ALLOC_DROPPED_BUSY, 1);
    }
    thread_guard_leave(slot);
    stats_add(STAT_ALLOC_SAMPLES, 1);
    return flags;
}

static void sample_if_due(struct thread_tls *tls, const void *pointer, size_t size)
{
    struct thread_slot *slot = thread_current();
    uint64_t left = tls->bytes_until_sample + tls->bytes_after;
    if (tls->alloc_generation != load_relaxed(&generation)) {
        /* The thread's first gap: this allocation lies in it like any other. */
        tls->alloc_generation = load_relaxed(&generation);
        rng_split(&tls->rng);
        left = draw_gap(tls);
    }
    struct rng ahead = tls->rng; /* written back where the TLS is known to be this thread's */
    bool timed = rng_next(&ahead) % TIMED_ONE_IN == 0;
    uint64_t begin = timed ? clock_monotonic_ns() : 0;
    if (!pointer || (slot && !thread_owns(slot))) {
        /* Nothing is recorded: the allocation failed, or this is a vfork child or a clone on the
         * TLS of another thread. The gap is used up all the same: kept, it would be known to be
         * short, and the next allocation sampled too often. What is left of a gap is as long as
         * a whole one. */
        set_left(tls, draw_gap(tls));
        return;
    }
    if (left >= size) {
        set_left(tls, left - size);
        return;
    }
    tls->inside = 1;
    tls->rng = ahead;
    uint32_t flags = 0;
    if (!slot)
        slot = thread_attach_late();
    if (slot)
        flags = sample(slot, pointer, size);
    else
        stats_add(STAT_ALLOC_DROPPED_UNTRACKED, 1);
    set_left(tls, draw_gap(tls));
    if (slot && timed)
        thread_add_overhead(slot, OVERHEAD_HOOKS, begin, TIMED_ONE_IN);
    /* In its TLS teardown a thread has a slot for one sample only: nobody would give it back
     * later. */
    if (slot && tls->left)
        thread_leave();
    moment_pass(flags & UNWIND_CLEAN);
    tls->inside = 0;
}

static COLD void look_and_sample(const void *pointer, size_t size)
{
    struct thread_tls *tls = &thread_tls;
    uint32_t now = __atomic_load_n(&state, __ATOMIC_SEQ_CST);
    if (now != ALLOC_ON || tls->internal) {
        bool never = now != ALLOC_OFF || tls->internal;
        tls->bytes_until_sample = never ? look_never : look_again;
        tls->bytes_after = never ? 0 : moment_again - look_again;
        if (!never && load_acquire(&moment_work) && thread_in_process())
            moment_pass(false); /* for a thread that watches whether to start */
        return;
    }
    /* Inside: the agent's own doing (a thread of ours is being made), or an app's signal handler
     * that came in between. */
    if (!tls->alloc_depth && !tls->inside)
        sample_if_due(tls, pointer, size);
}

static void free_timed(const void *pointer)
{
    presence_enter();
    struct thread_slot *slot = thread_current();
    bool on = __atomic_load_n(&state, __ATOMIC_SEQ_CST) == ALLOC_ON && slot && thread_owns(slot);
    uint64_t begin = on ? clock_monotonic_ns() : 0;
    heap_recorder_free(pointer);
    if (on)
        thread_add_overhead(slot, OVERHEAD_HOOKS, begin, TIMED_ONE_IN);
    presence_leave();
}

void alloc_free_inside_hook(const void *pointer)
{
    static uint32_t turn; /* that threads now and then lose one for another matters to none */
    uint32_t mine = load_relaxed(&turn);
    store_relaxed(&turn, mine + 1);
    if (mine % TIMED_ONE_IN == 0)
        free_timed(pointer);
    else
        heap_recorder_free(pointer);
}

/* Nothing is due as yet: the rule for programs with large blocks, which come here every few calls.
 * What is written is what any allocation writes. */
static bool goes_on(size_t size)
{
    struct thread_tls *tls = &thread_tls;
    uint64_t left = tls->bytes_until_sample + tls->bytes_after;
    uint32_t now = load_relaxed(&state);
    if (tls->internal || tls->alloc_depth || tls->inside || left < size)
        return false;
    if (now == ALLOC_ON ? tls->alloc_generation != load_relaxed(&generation)
                        : now == ALLOC_OFF_FOR_GOOD || left > moment_again)
        return false;
    set_left(tls, left - size);
    return true;
}

void alloc_sample_inside_hook(const void *pointer, size_t size)
{
    if (likely(goes_on(size)))
        return;
    float_mode mode = float_mode_enter();
    presence_enter();
    look_and_sample(pointer, size);
    presence_leave();
    float_mode_leave(mode);
}
