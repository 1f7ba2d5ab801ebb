#include "agent/rates.h"

#include "agent/alloc/alloc_sample.h"
#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/flush.h"
#include "agent/sched/rate_control.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"

enum { TIME, ALLOC, TICKS, GROUPS };

/* A sample of time stands for 10 s of the default period at most. (Budgets leave thousands of
 * samples in a second of CPU time: one that needs such a stretch is swamped with events.) */
static const uint32_t stretch_max = 1024 * RATE_STRETCH_ONE;
/* The longest time between two ticks of wall time. What looks at threads take has a bound of its
 * own (agent/sched/look_budget.h), and is the same in fewer ticks: these would be stretched without
 * end, and nobody would know for as long what threads do. */
static const uint64_t tick_longest_ns = 100 * NS_PER_MS;
/* An allocation sample takes some 2 us, and more of the program's that no clock around it sees: it
 * pushes a hundred lines out of the caches. A thousand in a second of CPU time, which is 1 % at
 * this price, leave nothing to be wished for: sums over a minute are right to 0.4 %. */
static const uint64_t prices_ns[GROUPS] = {[ALLOC] = 10000};
/* The shortest window, and how much longer than its reading it is at least. */
static const uint64_t window_min_ns = 2 * NS_PER_MS;
enum { WINDOW_TO_READING = 2000 };

static struct {
    bool governed;
    uint64_t base;      /* ns or bytes, as the options have it */
    uint64_t in_force;  /* the same, stretched */
    uint32_t share_ppm; /* of the process's CPU time that samples took in the last window */
    struct rate_control control;
} groups[GROUPS];
static void (*setters[GROUPS])(uint64_t value);
static uint32_t is_busy; /* somebody is at it */
static uint64_t not_before_ns;
static uint64_t last_reading_ns;

/* Ticks of wall time alone, which bring no CPU samples: else one period is that of both. */
static bool ticks_are_apart(void)
{
    return setters[TICKS];
}

static uint64_t samples_of(int group)
{
    switch (group) {
    case ALLOC:
        return stats_get(STAT_ALLOC_SAMPLES);
    case TICKS:
        return stats_get(STAT_TICKS);
    default:
        return stats_get(STAT_CPU_SAMPLES) + (ticks_are_apart() ? 0 : stats_get(STAT_TICKS));
    }
}

static uint64_t spent_ns_on(int group)
{
    switch (group) {
    case ALLOC:
        return stats_get(STAT_HOOKS_NS);
    case TICKS:
        return flush_ticks_cpu_ns();
    default:
        return stats_get(STAT_HANDLERS_NS) + (ticks_are_apart() ? 0 : flush_ticks_cpu_ns());
    }
}

/* In a program that waits samples may take their share of a tenth of a processor: ticks go on
 * there, and a slow leak is to be seen. */
static uint64_t budgeted_ns(uint64_t now_ns, uint64_t cpu_ns)
{
    return cpu_ns + now_ns / 10;
}

static struct rate_totals totals_of(int group, uint64_t now_ns, uint64_t cpu_ns)
{
    return (struct rate_totals){
        .now_ns = now_ns,
        .cpu_ns = budgeted_ns(now_ns, cpu_ns),
        .spent_ns = spent_ns_on(group),
        .samples = samples_of(group),
    };
}

static uint32_t stretch_max_of(int group)
{
    bool has_ticks = group == TICKS || (group == TIME && !ticks_are_apart());
    if (!has_ticks || !wall_is_on())
        return stretch_max;
    uint64_t stretch = tick_longest_ns * RATE_STRETCH_ONE / groups[group].base;
    return (uint32_t)MAX_OF(stretch, (uint64_t)RATE_STRETCH_ONE);
}

static void begin_windows(void)
{
    uint64_t now = clock_monotonic_ns(), cpu = clock_process_cpu_ns();
    for (int i = 0; i < GROUPS; i++) {
        struct rate_totals totals = totals_of(i, now, cpu);
        rate_control_start(&groups[i].control, &totals, stretch_max_of(i), prices_ns[i]);
        groups[i].share_ppm = 0;
    }
    not_before_ns = now + window_min_ns;
}

/* What is left of the budget to a group, in millionths. */
static uint32_t budget_of(int group, uint64_t cpu_ns)
{
    uint32_t all = (uint32_t)(options.overhead * 10000);
    uint64_t threads_ppm = stats_get(STAT_FLUSH_NS) / (cpu_ns / 1000000 + 1);
    uint32_t left = all - (uint32_t)MIN_OF(threads_ppm, (uint64_t)all / 2);
    uint32_t others = 0;
    for (int i = 0; i < GROUPS; i++)
        others += i == group ? 0 : groups[i].share_ppm;
    return MAX_OF(left / (ticks_are_apart() ? 3 : 2), left - MIN_OF(others, left)) | 1;
}

static void set(int group, uint64_t value)
{
    if (groups[group].in_force == value)
        return;
    store_relaxed(&groups[group].in_force, value);
    setters[group](value);
}

static void end_window(int group, uint64_t now_ns, uint64_t cpu_ns)
{
    struct rate_totals totals = totals_of(group, now_ns, cpu_ns);
    const struct rate_totals *begin = &groups[group].control.begin;
    uint64_t cpu = totals.cpu_ns - begin->cpu_ns, spent = totals.spent_ns - begin->spent_ns;
    if (totals.spent_ns < begin->spent_ns) /* another thread ticks */
        spent = 0;
    groups[group].share_ppm = (uint32_t)MIN_OF(spent / (cpu / 1000000 + 1), (uint64_t)1000000);
    uint32_t stretch =
        rate_control_update(&groups[group].control, &totals, budget_of(group, cpu_ns));
    set(group, groups[group].base * stretch / RATE_STRETCH_ONE);
}

static bool is_due(int group, uint64_t now_ns)
{
    return groups[group].governed &&
           rate_control_is_due(&groups[group].control, now_ns, samples_of(group));
}

static bool any_is_due(uint64_t now_ns)
{
    for (int i = 0; i < GROUPS; i++)
        if (is_due(i, now_ns))
            return true;
    return false;
}

void rates_look(uint64_t now_ns)
{
    if (now_ns < load_relaxed(&not_before_ns) || !any_is_due(now_ns))
        return;
    if (exchange_acq_rel(&is_busy, 1))
        return;
    uint64_t cpu = clock_process_cpu_ns();
    for (int i = 0; i < GROUPS; i++)
        if (is_due(i, now_ns))
            end_window(i, now_ns, cpu);
    /* The lesser of two: one of them may have been interrupted by other threads. */
    uint64_t reading = clock_monotonic_ns() - now_ns;
    uint64_t window = MIN_OF(reading, last_reading_ns) * WINDOW_TO_READING;
    last_reading_ns = reading;
    store_relaxed(&not_before_ns, now_ns + MIN_OF(MAX_OF(window_min_ns, window), NS_PER_SEC));
    store_release(&is_busy, 0);
}

static void start_group(int group, uint64_t base, bool governed)
{
    groups[group].base = groups[group].in_force = base;
    groups[group].governed = governed;
}

void rates_start(void (*set_period)(uint64_t period_ns),
                 void (*set_tick_period)(uint64_t period_ns))
{
    bool all = options_is_set(&options.overhead);
    bool is_free = all || !options_is_set(&options.frequency);
    setters[TIME] = set_period;
    setters[TICKS] = set_tick_period;
    setters[ALLOC] = alloc_set_interval;
    start_group(TIME, NS_PER_SEC / options.frequency, set_period && is_free);
    start_group(TICKS, NS_PER_SEC / options.frequency, set_tick_period && is_free);
    start_group(ALLOC, options.alloc_interval,
                options.alloc_interval > 1 && (all || !options_is_set(&options.alloc_interval)));
    is_busy = 0;
    last_reading_ns = 0;
    begin_windows();
}

void rates_reset_in_child(void)
{
    is_busy = 0;
    begin_windows();
    for (int i = 0; i < GROUPS; i++)
        groups[i].control.stretch =
            (uint32_t)(groups[i].in_force * RATE_STRETCH_ONE / groups[i].base);
}

uint64_t rates_period_ns(void)
{
    return load_relaxed(&groups[TIME].in_force);
}

uint64_t rates_tick_period_ns(void)
{
    return load_relaxed(&groups[ticks_are_apart() ? TICKS : TIME].in_force);
}

uint64_t rates_alloc_interval(void)
{
    return load_relaxed(&groups[ALLOC].in_force);
}
