/* How often threads are asked what they do: what that costs stays in bounds, and all are asked
 * alike. Time and costs are the suite's. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/sched/look_budget.h"

enum { THREADS_MAX = 4096 };

static uint64_t now = NS_PER_SEC, spent, looked[THREADS_MAX];
static uint32_t asked[THREADS_MAX];

/* Ticks for `seconds`, `frequency` a second: `threads` move at each, and a look takes `look_ns`.
 * The share of a processor. */
static double run(double seconds, uint64_t frequency, uint32_t threads, uint64_t look_ns)
{
    uint64_t period = NS_PER_SEC / frequency, before = spent, begin = now;
    memset(asked, 0, sizeof(asked));
    while ((double)(now - begin) < seconds * 1e9) {
        now += period;
        for (uint32_t i = 0; i < threads; i++) {
            if (!look_budget_take(&looked[i], now))
                continue;
            asked[i]++;
            spent += look_ns;
            look_budget_spent(look_ns);
        }
        look_budget_renew(now);
    }
    return (double)(spent - before) / (double)(now - begin);
}

static void start(double overhead)
{
    options.overhead = overhead;
    look_budget_start();
    memset(looked, 0, sizeof(looked));
}

static void check_alike(uint32_t threads, uint32_t at_least)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < threads; i++) {
        least = MIN_OF(least, asked[i]);
        most = MAX_OF(most, asked[i]);
    }
    ck_assert_uint_ge(least, at_least);
    ck_assert_uint_le(most, 2 * least + 2);
}

START_TEST(few_threads_are_asked_at_each_tick)
{
    start(1);
    double share = run(10, 101, 4, 25000);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_ge(asked[i], 1009);
    ck_assert_uint_eq(stats_get(STAT_LOOKS_PUT_OFF), 0);
    ck_assert_double_le(share, 0.011);
}
END_TEST

/* The first second has the burst. */
START_TEST(many_threads_are_asked_less_often)
{
    static const struct {
        uint64_t frequency, look_ns;
        uint32_t threads, at_least;
    } loads[] = {{101, 25000, 100, 40}, {1000, 22000, 18, 100}, {101, 25000, 2000, 2},
                 {101, 200000, 100, 4}, {20, 30000, 500, 5},    {10000, 5000, 8, 1000}};
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        start(1);
        run(2, loads[i].frequency, loads[i].threads, loads[i].look_ns);
        double share = run(20, loads[i].frequency, loads[i].threads, loads[i].look_ns);
        fprintf(stderr, "%u threads at %u Hz: %.4f of a processor, %u looks at the first\n",
                loads[i].threads, (unsigned)loads[i].frequency, share, asked[0]);
        ck_assert_double_le(share, 0.021);
        ck_assert_double_ge(share, 0.008);
        check_alike(loads[i].threads, loads[i].at_least);
    }
}
END_TEST

/* LIBAGENT_OVERHEAD bounds them, too: more than a fiftieth of a processor they never take. */
START_TEST(an_overhead_that_is_set)
{
    static const struct {
        double overhead, most;
    } cases[] = {{0.1, 0.002}, {0.5, 0.01}, {1, 0.02}, {20, 0.02}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start(cases[i].overhead);
        run(20, 101, 500, 25000);
        double share = run(60, 101, 500, 25000);
        fprintf(stderr, "at %.1f %%: %.5f of a processor\n", cases[i].overhead, share);
        ck_assert_double_le(share, cases[i].most * 1.05);
        ck_assert_double_ge(share, cases[i].most * 0.5);
    }
}
END_TEST

START_TEST(a_load_that_ends)
{
    start(1);
    run(20, 101, 2000, 25000);
    run(10, 101, 2, 25000);
    run(1, 101, 2, 25000);
    ck_assert_uint_ge(asked[0], 95);
    ck_assert_uint_ge(asked[1], 95);
}
END_TEST

/* A look that took ten seconds silences nobody for long. */
START_TEST(a_hiccup)
{
    start(1);
    run(1, 101, 2, 25000);
    look_budget_spent(10 * NS_PER_SEC);
    run(1, 101, 2, 25000);
    ck_assert_uint_ge(asked[0], 95);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("look_budget");
    TCase *loads = tcase_create("loads");
    tcase_add_test(loads, few_threads_are_asked_at_each_tick);
    tcase_add_test(loads, many_threads_are_asked_less_often);
    tcase_add_test(loads, an_overhead_that_is_set);
    tcase_add_test(loads, a_load_that_ends);
    tcase_add_test(loads, a_hiccup);
    suite_add_tcase(suite, loads);
    return suite;
}
