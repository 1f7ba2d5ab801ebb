/* The controller of rates against a program that is simulated: load, cost and clock are known. */
#include "test/check.h"

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/sched/rate_control.h"

enum { ONE_PERCENT = 10000, STRETCH_MAX = 1024 * RATE_STRETCH_ONE };

/* A program whose samples are due `demand` times in a second of its CPU time, if nothing is
 * stretched, and take `cost_ns` each. It uses `load_percent` of a CPU. */
static struct {
    struct rate_control control;
    struct rate_totals totals;
    uint64_t demand, cost_ns, load_percent;
} program;

static void setup(void)
{
    program.totals = (struct rate_totals){.now_ns = 5 * NS_PER_SEC, .cpu_ns = 77};
    program.demand = 101;
    program.cost_ns = 2000;
    program.load_percent = 100;
    rate_control_start(&program.control, &program.totals, STRETCH_MAX, 0);
}

static void look(void)
{
    if (rate_control_is_due(&program.control, program.totals.now_ns, program.totals.samples))
        rate_control_update(&program.control, &program.totals, ONE_PERCENT);
}

static void spend(uint64_t cpu_ns)
{
    program.totals.cpu_ns += cpu_ns;
    program.totals.now_ns += cpu_ns * 100 / program.load_percent;
}

static void sample_of(uint64_t cost_ns)
{
    spend(cost_ns);
    program.totals.spent_ns += cost_ns;
    program.totals.samples++;
    look();
}

static void run_for(uint64_t cpu_ns)
{
    uint64_t end = program.totals.cpu_ns + cpu_ns;
    while (program.totals.cpu_ns < end) {
        spend(NS_PER_SEC / program.demand * program.control.stretch / RATE_STRETCH_ONE);
        sample_of(program.cost_ns);
    }
}

/* The share of the program's CPU time that its samples take in the next time, in millionths. */
static uint64_t share_of(uint64_t cpu_ns)
{
    uint64_t cpu = program.totals.cpu_ns, spent = program.totals.spent_ns;
    run_for(cpu_ns);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): run_for goes on until there is some */
    return (program.totals.spent_ns - spent) * 1000000 / (program.totals.cpu_ns - cpu);
}

static uint32_t stretch(void)
{
    return program.control.stretch;
}

START_TEST(what_is_cheap_is_not_stretched)
{
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
    run_for(60 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
}
END_TEST

START_TEST(a_steady_load_is_held_at_the_budget)
{
    static const struct {
        uint64_t demand, cost_ns;
    } loads[] = {{101, 500000}, {10000, 2000}, {10000, 25000}, {1000000, 1500}, {300, 100000}};
    setup();
    program.demand = loads[_i].demand;
    program.cost_ns = loads[_i].cost_ns;
    run_for(20 * NS_PER_SEC);
    uint64_t share = share_of(60 * NS_PER_SEC);
    ck_assert_uint_ge(share, 9 * ONE_PERCENT / 10);
    ck_assert_uint_le(share, 11 * ONE_PERCENT / 10);
}
END_TEST

/* The windows in which a step is noticed are 100 samples long: what those cost is all the excess.
 */
/* Cheap samples are no denser than at their price; dear ones count for what they take. */
START_TEST(a_price_bounds_the_density)
{
    enum { PRICE_NS = 10000, SECONDS = 60 };
    static const uint64_t costs_ns[] = {500, 2000, PRICE_NS, 4 * PRICE_NS};
    setup();
    rate_control_start(&program.control, &program.totals, STRETCH_MAX, PRICE_NS);
    program.demand = 100000;
    program.cost_ns = costs_ns[_i];
    run_for(20 * NS_PER_SEC);
    uint64_t samples = program.totals.samples;
    run_for(SECONDS * NS_PER_SEC);
    uint64_t allowed = SECONDS * NS_PER_SEC / 100 / MAX_OF(costs_ns[_i], (uint64_t)PRICE_NS);
    ck_assert_uint_ge(program.totals.samples - samples, 9 * allowed / 10);
    ck_assert_uint_le(program.totals.samples - samples, 11 * allowed / 10);
}
END_TEST

START_TEST(a_step_of_demand_is_answered_within_some_windows)
{
    run_for(60 * NS_PER_SEC);
    program.demand = 1000000;
    uint64_t spent = program.totals.spent_ns, cpu = program.totals.cpu_ns;
    run_for(2 * NS_PER_SEC);
    uint64_t allowed = (program.totals.cpu_ns - cpu) / 100;
    ck_assert_uint_le(program.totals.spent_ns - spent, allowed + 600 * program.cost_ns);
    ck_assert_uint_gt(stretch(), 150 * RATE_STRETCH_ONE);
}
END_TEST

START_TEST(a_step_of_cost_is_followed)
{
    program.demand = 1000;
    run_for(60 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
    program.cost_ns = 200000;
    run_for(5 * NS_PER_SEC);
    ck_assert_uint_le(share_of(30 * NS_PER_SEC), 11 * ONE_PERCENT / 10);
}
END_TEST

START_TEST(after_a_spike_the_rate_comes_back)
{
    program.demand = 1000000;
    run_for(5 * NS_PER_SEC);
    ck_assert_uint_gt(stretch(), 150 * RATE_STRETCH_ONE);
    program.demand = 101;
    program.load_percent = 25;
    run_for(15 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
}
END_TEST

START_TEST(one_hiccup_is_forgotten_within_seconds)
{
    run_for(10 * NS_PER_SEC);
    sample_of(100 * NS_PER_MS);
    run_for(2 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
    /* So is one in the first window. */
    setup();
    sample_of(100 * NS_PER_MS);
    run_for(10 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), RATE_STRETCH_ONE);
}
END_TEST

START_TEST(sampling_comes_back_when_nothing_is_sampled)
{
    program.demand = 10000000;
    run_for(NS_PER_SEC);
    program.demand = 100000000;
    run_for(NS_PER_SEC);
    uint32_t seconds = 0;
    for (; stretch() > RATE_STRETCH_ONE; seconds++) {
        ck_assert_uint_lt(seconds, 11); /* 2^10 is the longest stretch */
        program.totals.now_ns += NS_PER_SEC;
        look();
    }
    ck_assert_uint_gt(seconds, 5);
}
END_TEST

START_TEST(a_stretch_has_an_end)
{
    program.demand = 1000000000;
    program.cost_ns = 10 * NS_PER_MS;
    run_for(600 * NS_PER_SEC);
    ck_assert_uint_eq(stretch(), STRETCH_MAX);
}
END_TEST

START_TEST(clocks_that_jump_do_no_harm)
{
    program.demand = 20000;
    run_for(10 * NS_PER_SEC);
    uint32_t before = stretch();
    ck_assert_uint_gt(before, RATE_STRETCH_ONE);
    /* The machine slept for a year. */
    program.totals.now_ns += 365ull * 86400 * NS_PER_SEC;
    look();
    ck_assert_uint_gt(share_of(10 * NS_PER_SEC), ONE_PERCENT / 2);
    ck_assert_uint_le(share_of(10 * NS_PER_SEC), 11 * ONE_PERCENT / 10);
    /* Backwards, each of the totals: a window begins anew. */
    static const struct rate_totals zero;
    before = stretch();
    ck_assert_uint_eq(rate_control_update(&program.control, &zero, ONE_PERCENT), before);
    ck_assert_uint_eq(program.control.begin.samples, 0);
    /* A window without CPU time, whatever was sampled in it. */
    struct rate_totals idle = {.now_ns = NS_PER_SEC, .samples = 5, .spent_ns = 10000};
    ck_assert_uint_le(rate_control_update(&program.control, &idle, ONE_PERCENT), STRETCH_MAX);
}
END_TEST

START_TEST(a_window_ends_by_time_or_by_samples)
{
    struct rate_totals begin = program.totals;
    ck_assert(!rate_control_is_due(&program.control, begin.now_ns + NS_PER_SEC - 1, 99));
    ck_assert(rate_control_is_due(&program.control, begin.now_ns + NS_PER_SEC, 0));
    ck_assert(rate_control_is_due(&program.control, begin.now_ns, 100));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("rate_control");
    TCase *tcase = tcase_create("controller");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, what_is_cheap_is_not_stretched);
    tcase_add_loop_test(tcase, a_steady_load_is_held_at_the_budget, 0, 5);
    tcase_add_loop_test(tcase, a_price_bounds_the_density, 0, 4);
    tcase_add_test(tcase, a_step_of_demand_is_answered_within_some_windows);
    tcase_add_test(tcase, a_step_of_cost_is_followed);
    tcase_add_test(tcase, after_a_spike_the_rate_comes_back);
    tcase_add_test(tcase, one_hiccup_is_forgotten_within_seconds);
    tcase_add_test(tcase, sampling_comes_back_when_nothing_is_sampled);
    tcase_add_test(tcase, a_stretch_has_an_end);
    tcase_add_test(tcase, clocks_that_jump_do_no_harm);
    tcase_add_test(tcase, a_window_ends_by_time_or_by_samples);
    suite_add_tcase(suite, tcase);
    return suite;
}
