#include "agent/sched/cpu_sample.h"

#include <sys/auxv.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/thread_tails.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/unwind/unwinder.h"

static const uint64_t one_sample = (uint64_t)1 << RECORD_FRACTION_BITS;

/* The app's CPU time up to `now_ns` that is not accounted yet; it is, from here on. */
static uint64_t take_app_time(struct thread_slot *slot, uint64_t now_ns)
{
    uint64_t last = __atomic_exchange_n(&slot->cpu_last_ns, now_ns, __ATOMIC_RELAXED);
    if (now_ns >= last)
        return now_ns - last;
    /* Samples are timed by the clock on the wall. Where the thread had to wait for a processor in
     * them they took less of its own time than was said: so much less is overhead. */
    add_relaxed(&slot->overhead_ns[OVERHEAD_HANDLERS], -(int64_t)(last - now_ns));
    return 0;
}

static void count_flags(uint32_t flags)
{
    if (flags & UNWIND_CUT)
        stats_add(STAT_STACKS_CUT, 1);
    else if (!(flags & UNWIND_COMPLETE))
        stats_add(STAT_STACKS_INCOMPLETE, 1);
}

/* A stack that is known without a walk; room for the longest one. */
struct known_stack {
    uint64_t generation;
    uint64_t pcs[3];
};

/* `pcs`: innermost first; those that are 0 are left out. */
static void add_known(const struct thread_label *label, const struct label_view *labels,
                      const uint64_t *pcs, uint64_t amount_ns, bool is_real)
{
    struct known_stack stack = {.generation = load_relaxed(&modules_generation)};
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_SIZE(stack.pcs); i++)
        if (pcs[i])
            stack.pcs[count++] = pcs[i];
    recorder_add_labelled(RECORD_CPU, (const struct record_stack *)(const void *)&stack, count,
                          label, labels, (struct record_values){0, amount_ns}, is_real);
}

/* A function of its own, for the room that a copy of labels takes: nothing has that on a thread's
 * own stack. */
static __attribute__((noinline)) void add_known_of_other(const struct thread_slot *slot,
                                                         const uint64_t *pcs, uint64_t amount_ns,
                                                         bool is_real)
{
    struct label_set copy;
    struct label_view labels = user_labels_of(load_acquire(&slot->labels), &copy);
    add_known(&slot->label, &labels, pcs, amount_ns, is_real);
}

/* Not in a handler. */
static void add_known_of(const struct thread_slot *slot, const uint64_t *pcs, uint64_t amount_ns,
                         bool is_real)
{
    if (slot != thread_current()) {
        add_known_of_other(slot, pcs, amount_ns, is_real);
        return;
    }
    struct label_view labels = user_labels_here(slot->labels);
    add_known(&slot->label, &labels, pcs, amount_ns, is_real);
}

#define PCS(...) ((const uint64_t[ARRAY_SIZE(((struct known_stack *)0)->pcs)]){__VA_ARGS__})

static uint64_t main_root;

void cpu_sample_start(void)
{
    main_root = sys_auxv(AT_ENTRY); /* not in a sample: errno is thread-local */
    thread_tails_start();
}

uint64_t cpu_sample_root(const struct thread_slot *slot)
{
    return !slot->start_routine && slot->is_main ? main_root : slot->start_routine;
}

void cpu_sample_outermost(const struct thread_slot *slot, uint64_t pcs[OUTERMOST])
{
    uint64_t root = cpu_sample_root(slot);
    for (int i = 0; i < OUTERMOST; i++)
        pcs[i] = root ? 0 : slot->outermost[i];
    pcs[0] = root ? root : pcs[0];
}

/* Of a thread that was found nobody knows where it began; all of its stacks end there. */
static void note_outermost(struct thread_slot *slot, const uint64_t *pcs, uint32_t count)
{
    for (uint32_t i = 0; i < OUTERMOST; i++)
        slot->outermost[i] = i < count ? pcs[count - MIN_OF(count, (uint32_t)OUTERMOST) + i] : 0;
}

/* No sample stands for more, or for more than some periods: where ticks did not come for so long
 * nobody knows what the thread did. */
static uint64_t amount_max(void)
{
    return MAX_OF(NS_PER_SEC, 4 * NS_PER_SEC / options.frequency);
}

/* Of what a thread's first sample is to stand for its own clock has only a part. */
static uint64_t first_amount(struct thread_slot *slot, uint64_t amount_ns)
{
    uint64_t interval = (uint64_t)load_relaxed(&slot->interval_us) * 1000;
    bool is_first = !slot->was_sampled && slot->start_routine;
    slot->was_sampled = 1;
    return is_first && amount_ns < interval
               ? amount_ns + thread_tails_take(slot, interval - amount_ns)
               : amount_ns;
}

static uint32_t walk_and_add(struct thread_slot *slot, const struct unwinder *by,
                             struct record_stack *stack, void *ucontext, uint64_t amount_ns)
{
    struct unwind_regs regs;
    struct unwind_stack home = {slot->stack_low, slot->stack_high};
    uint32_t flags;
    uint32_t generation;
    ucontext = (void *)unwind_before_handlers(ucontext);
    unwind_regs_from_context(&regs, ucontext);
    /* The first place stays free for a pseudo frame; without one the stack begins a word on. */
    uint32_t count =
        by->walk(&regs, true, &home, stack->pcs + 1, options.max_frames, &flags, &generation);
    slot->stack_low = home.low;
    count_flags(flags);
    if (unlikely(!cpu_sample_root(slot)) && !(flags & UNWIND_CUT))
        note_outermost(slot, stack->pcs + 1, count);
    if (flags & UNWIND_LEAF_SELF) {
        stack->pcs[0] = PSEUDO_OVERHEAD;
        count++;
    } else {
        stack = (struct record_stack *)(void *)&stack->pcs[0];
    }
    stack->generation = generation;
    uint64_t told = MIN_OF(amount_ns, amount_max());
    struct label_view labels = user_labels_here(slot->labels);
    recorder_add_labelled(RECORD_CPU, stack, count, &slot->label, &labels,
                          (struct record_values){one_sample, told}, true);
    if (unlikely(told < amount_ns))
        add_known(&slot->label, &labels, PCS(PSEUDO_SKIPPED, cpu_sample_root(slot)),
                  amount_ns - told, false);
    wall_sample(slot, stack, count);
    return flags;
}

/* The walk's flags; 0 where there is no buffer for it: the sample is put off. `*end_ns`: when it
 * was over. */
static uint32_t take_sample(struct thread_slot *slot, const struct unwinder *by, void *ucontext,
                            uint64_t *end_ns)
{
    *end_ns = clock_monotonic_ns();
    uint64_t begin = *end_ns - sampling_signal_cost_ns;
    uint64_t now = clock_thread_cpu_ns();
    struct record_stack *stack = scratch_claim();
    if (!stack) {
        stats_add(STAT_CPU_DROPPED_BUSY, 1);
        return 0;
    }
    thread_note_name(slot);
    thread_guard_enter(slot);
    uint64_t amount = first_amount(slot, take_app_time(slot, now));
    uint32_t flags = walk_and_add(slot, by, stack, ucontext, amount);
    thread_guard_leave(slot);
    scratch_give(stack);
    stats_add(STAT_CPU_SAMPLES, 1);
    *end_ns = thread_add_overhead(slot, OVERHEAD_HANDLERS, begin, 1);
    return flags;
}

/* A function of its own: inlined, the thread pointer could be read before it is known to be one. */
static __attribute__((noinline)) void sample(struct thread_slot *slot, void *ucontext)
{
    struct thread_tls *tls = &thread_tls;
    if (tls->inside) {
        stats_add(STAT_CPU_DROPPED_INSIDE, 1);
        return;
    }
    if (thread_current() != slot) {
        /* A late signal of a timer that is gone finds a slot that is free, or another thread's. */
        if (load_acquire(&slot->state) != SLOT_USED || slot->tid != sys_tid())
            return;
        tls->inside = 1;
        thread_take_over(slot);
    }
    tls->inside = 1;
    uint64_t end;
    uint32_t flags = take_sample(slot, unwinder_inside_handler(ucontext), ucontext, &end);
    moment_pass_at(end, flags & UNWIND_CLEAN);
    tls->inside = 0;
}

/* In a thread that is not libc's, or has another thread pointer just now, nothing is asked of TLS:
 * so it starts no work of the agent's (a moment), and is walked by cfi, as libunwind would set
 * errno. It is in no hook, unless a handler that came in the middle of one put that pointer there.
 */
static void sample_without_tls(struct thread_slot *slot, void *ucontext)
{
    uint64_t end;
    if (slot->guard & 1) {
        stats_add(STAT_CPU_DROPPED_INSIDE, 1);
        return;
    }
    (void)take_sample(slot, &unwinder_cfi, ucontext, &end);
}

void cpu_sample_inside_handler(struct thread_slot *slot, void *ucontext)
{
    if (thread_has_tls(slot))
        sample(slot, ucontext);
    else if (thread_owns_without_tls(slot))
        sample_without_tls(slot, ucontext);
}

static void add_tail(const struct thread_slot *slot, uint64_t amount_ns)
{
    uint64_t from[OUTERMOST];
    cpu_sample_outermost(slot, from);
    if (amount_ns)
        add_known_of(slot, PCS(PSEUDO_TAIL, from[0], from[1]), amount_ns, false);
}

void cpu_sample_tail(struct thread_slot *slot, uint64_t now_ns)
{
    add_tail(slot, take_app_time(slot, now_ns));
}

/* One whose tail is a small part of it keeps it, with its number and its labels. */
static bool is_short(const struct thread_slot *slot, uint64_t now_ns)
{
    enum { INTERVALS = 32 };
    uint64_t interval = (uint64_t)load_relaxed(&slot->interval_us) * 1000;
    return slot->start_routine && !slot->labels && !load_relaxed(&captures_process) &&
           now_ns < INTERVALS * interval;
}

void cpu_sample_end(struct thread_slot *slot, uint64_t now_ns)
{
    uint64_t rest = take_app_time(slot, now_ns);
    if (!is_short(slot, now_ns) || !thread_tails_add(slot, rest))
        add_tail(slot, rest);
}

static void tell_tail(const struct thread_label *label, uint64_t routine, uint64_t amount_ns)
{
    cpu_sample_add_lost_tail(label, (const uint64_t[OUTERMOST]){routine}, amount_ns);
}

void cpu_sample_tell_ends(void)
{
    thread_tails_tell(tell_tail);
}

bool cpu_sample_is_unreached(const struct thread_slot *slot, uint64_t now_ns)
{
    uint64_t last = load_relaxed(&slot->cpu_last_ns);
    if (!options.signals)
        return now_ns > last;
    int timer = load_relaxed(&slot->timer);
    uint64_t interval =
        MAX_OF(NS_PER_SEC / options.frequency, (uint64_t)load_relaxed(&slot->interval_us) * 1000);
    /* Ticks come late, and a sample may be put off a few times. */
    uint64_t limit = timer == TIMER_REFUSED ? interval : 4 * interval + 100 * NS_PER_MS;
    return timer != TIMER_NONE && now_ns > last && now_ns - last >= limit;
}

static void add_unreached(const struct thread_slot *slot, uint64_t amount_ns)
{
    add_known_of(slot,
                 PCS(options.signals ? PSEUDO_UNREACHED : PSEUDO_RUNNING, cpu_sample_root(slot)),
                 amount_ns, true);
}

void cpu_sample_before_adoption(struct thread_slot *slot)
{
    if (slot->cpu_last_ns <= MAX_OF(2 * NS_PER_SEC / options.frequency, 4 * clock_tick_ns())) {
        store_relaxed(&slot->cpu_last_ns, 0);
        return;
    }
    thread_guard_enter(slot);
    add_unreached(slot, slot->cpu_last_ns);
    thread_guard_leave(slot);
}

void cpu_sample_unreached(struct thread_slot *slot, uint64_t now_ns)
{
    uint64_t last = load_relaxed(&slot->cpu_last_ns);
    /* The exchange fails when a sample came just now, and accounted it. */
    if (cpu_sample_is_unreached(slot, now_ns) &&
        __atomic_compare_exchange_n(&slot->cpu_last_ns, &last, now_ns, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        add_unreached(slot, now_ns - last);
}

void cpu_sample_overhead(struct thread_slot *slot)
{
    static const uint64_t frames[OVERHEAD_PARTS] = {
        [OVERHEAD_HANDLERS] = PSEUDO_HANDLERS, [OVERHEAD_HOOKS] = PSEUDO_HOOKS};
    int64_t amounts[OVERHEAD_PARTS], too_much = 0;
    for (int part = 0; part < OVERHEAD_PARTS; part++) {
        amounts[part] = __atomic_exchange_n(&slot->overhead_ns[part], 0, __ATOMIC_RELAXED);
        too_much -= MIN_OF(amounts[part], (int64_t)0);
    }
    /* What was told too much is taken off whichever part there is. */
    for (int part = 0; part < OVERHEAD_PARTS; part++) {
        int64_t less = MIN_OF(too_much, amounts[part]);
        if (amounts[part] <= 0)
            continue;
        too_much -= less;
        if (amounts[part] > less)
            add_known(&slot->label, NULL, PCS(PSEUDO_OVERHEAD, frames[part], cpu_sample_root(slot)),
                      (uint64_t)(amounts[part] - less), false);
    }
    if (too_much) /* an earlier window has it; the next one tells less */
        add_relaxed(&slot->overhead_ns[OVERHEAD_HANDLERS], -too_much);
}

void cpu_sample_add_overhead(const struct thread_label *label, enum pseudo_frame part,
                             uint64_t amount_ns)
{
    if (amount_ns)
        add_known(label, NULL, PCS(PSEUDO_OVERHEAD, part), amount_ns, false);
}

void cpu_sample_add_lost_tail(const struct thread_label *label, const uint64_t from[OUTERMOST],
                              uint64_t amount_ns)
{
    if (amount_ns)
        add_known(label, NULL, PCS(PSEUDO_TAIL, from[0], from[1]), amount_ns, true);
}

void cpu_sample_add_unseen(uint64_t amount_ns)
{
    static const struct thread_label nobody;
    if (amount_ns)
        add_known(&nobody, NULL, PCS(PSEUDO_UNSEEN), amount_ns, true);
}
