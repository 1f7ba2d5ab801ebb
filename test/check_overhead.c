/* The time of handlers and hooks, where other threads come in between: they are measured by a clock
 * that goes on meanwhile. The clocks are the suite's, so that the worst moment is met each time. */
#include "test/check.h"

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "test/cpu_fixture.h"
#include "test/stand_in_walk.h"

/* These stand in for agent/base/clock.c. */
static uint64_t monotonic_ns = NS_PER_SEC, thread_cpu_ns = NS_PER_SEC;
static uint64_t each_look_ns; /* between a look at the clock and the next one */

uint64_t clock_monotonic_ns(void)
{
    return monotonic_ns += each_look_ns;
}

uint64_t clock_realtime_ns(void)
{
    return monotonic_ns;
}

uint64_t clock_thread_cpu_ns(void)
{
    return thread_cpu_ns;
}

uint64_t clock_thread_cpu_of_ns(int tid)
{
    (void)tid;
    return thread_cpu_ns;
}

uint64_t clock_process_cpu_ns(void)
{
    return thread_cpu_ns;
}

uint64_t clock_tick_ns(void)
{
    return NS_PER_SEC / 100;
}

int clock_id_of_thread(int tid)
{
    return (int)(~(unsigned)tid << 3 | 6u);
}

enum { LONGEST_NS = 200000, TIMES = 8 };

static struct thread_slot *start(void)
{
    cpu_fixture_start(NS_PER_SEC);
    return thread_attach(0, 0);
}

START_TEST(a_short_hook_costs_what_it_took)
{
    struct thread_slot *slot = start();
    uint64_t begin = monotonic_ns;
    monotonic_ns += 700;
    ck_assert_uint_eq(thread_add_overhead(slot, OVERHEAD_HOOKS, begin, TIMES), begin + 700);
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HOOKS], 700 * TIMES);
    ck_assert_uint_eq(stats_get(STAT_HOOKS_NS), 700 * TIMES);
    ck_assert_uint_eq(slot->cpu_last_ns, thread_cpu_ns + 700 * TIMES);
}
END_TEST

/* The thread loses the processor at its end, between any two looks at the clock. */
START_TEST(an_interrupted_hook_costs_no_more_than_the_limit)
{
    struct thread_slot *slot = start();
    uint64_t begin = monotonic_ns;
    each_look_ns = LONGEST_NS / 2;
    thread_add_overhead(slot, OVERHEAD_HOOKS, begin, 1);
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HOOKS], LONGEST_NS / 2);
    begin = monotonic_ns;
    each_look_ns = NS_PER_SEC;
    thread_add_overhead(slot, OVERHEAD_HOOKS, begin, TIMES);
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HOOKS], LONGEST_NS / 2 + LONGEST_NS * TIMES);
    /* Less than the limit at the first look, far more at a second one. */
    begin = monotonic_ns + NS_PER_SEC - 1000;
    thread_add_overhead(slot, OVERHEAD_HOOKS, begin, 1);
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HOOKS], LONGEST_NS / 2 + LONGEST_NS * TIMES + 1000);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("overhead");
    TCase *tcase = tcase_create("hooks");
    tcase_add_test(tcase, a_short_hook_costs_what_it_took);
    tcase_add_test(tcase, an_interrupted_hook_costs_no_more_than_the_limit);
    suite_add_tcase(suite, tcase);
    return suite;
}
