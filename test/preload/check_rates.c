/* LIBAGENT_OVERHEAD: a program that allocates large blocks in a loop would be sampled at each
 * eighth of them, which takes longer than the allocations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

#define BLOCKS  20000000.0
#define BLOCK   65536.0
#define DEFAULT 524288.0

struct outcome {
    double hooks_s; /* CPU time in hooks, by the agent's own account */
    double cpu_s;   /* of the process */
    double samples; /* of allocations */
    double bytes, objects;
    bool is_told; /* that samples were made rarer */
};

static struct outcome run_under(const char *const *environment)
{
    /* The fourteenth site is that of 64 KiB. */
    static const char *const arguments[] = {"0", "0", "0", "0", "0", "0",        "0", "0",
                                            "0", "0", "0", "0", "0", "20000000", NULL};
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "sites", .arguments = arguments, .environment = environment});
    run_expect_quiet_success(&run);
    struct profile cpu, heap;
    profile_load(&cpu, run.profiles, "cpu", 0);
    profile_load(&heap, run.profiles, "heap", 0);
    struct outcome outcome = {
        .hooks_s = (double)profile_figure(&heap, "nanoseconds in allocation hooks") / 1e9,
        .cpu_s = (double)profile_total(&cpu, CPU_NS) / 1e9,
        .samples = (double)profile_figure(&heap, "allocation samples"),
        .bytes = (double)profile_self(&heap, ALLOC_BYTES, "site_65536"),
        .objects = (double)profile_self(&heap, ALLOC_OBJECTS, "site_65536"),
        .is_told = profile_has_comment(&heap, "to keep to LIBAGENT_OVERHEAD allocation samples"),
    };
    profile_free(&cpu);
    profile_free(&heap);
    run_free(&run);
    return outcome;
}

/* The estimate is the sum of `samples` weights that are equal but for the interval in force: its
 * standard error is at most 1.6 / sqrt(samples) while the intervals of half of the blocks lie
 * within a factor of 2; 8 of them are never seen. */
static void expect_truth(const struct outcome *outcome)
{
    double bound = 8 * 1.6 / sqrt(outcome->samples);
    fprintf(stderr, "%.0f samples, %.5f of the bytes, hooks took %.4f s of %.4f s\n",
            outcome->samples, outcome->bytes / (BLOCKS * BLOCK), outcome->hooks_s, outcome->cpu_s);
    ck_assert_double_le(fabs(outcome->bytes / (BLOCKS * BLOCK) - 1), bound);
    ck_assert_double_le(fabs(outcome->objects / BLOCKS - 1), bound);
}

static void expect_governed(const char *const *environment, double percent)
{
    struct outcome outcome = run_under(environment);
    expect_truth(&outcome);
    ck_assert(outcome.is_told);
    /* Without control it is most of the time. The first windows, of 2 ms, are above the budget, and
     * so is what follows a window in which the kernel ran others. */
    ck_assert_double_le(outcome.hooks_s, 1.5 * percent / 100 * outcome.cpu_s + 0.03);
    ck_assert_double_lt(outcome.samples, BLOCKS * BLOCK / DEFAULT / 4);
}

START_TEST(a_default_rate_is_kept_within_a_percent)
{
    expect_governed(NULL, 1);
}
END_TEST

START_TEST(a_budget_governs_a_rate_that_is_set)
{
    expect_governed((const char *[]){"LIBAGENT_ALLOC_INTERVAL=64KiB", "LIBAGENT_OVERHEAD=2", NULL},
                    2);
}
END_TEST

START_TEST(a_rate_that_is_set_is_kept)
{
    struct outcome outcome = run_under((const char *[]){"LIBAGENT_ALLOC_INTERVAL=512KiB", NULL});
    expect_truth(&outcome);
    ck_assert(!outcome.is_told);
    double expected = BLOCKS * -expm1(-BLOCK / DEFAULT);
    /* Binomial: 8 standard errors. */
    ck_assert_double_le(fabs(outcome.samples - expected), 8 * sqrt(expected));
}
END_TEST

/* Looks at many threads that wake up and wait again take all of the budget that they can have: CPU
 * samples do not become rarer by that, or most of a window's CPU time would be told in later ones.
 * (There are some 30 in a second: they would have to take 300 us each.) */
START_TEST(wall_time_leaves_cpu_samples_their_part)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "wakes",
                          .arguments = (const char *[]){"50", "6", NULL},
                          .environment = (const char *[]){"LIBAGENT_PROFILES=cpu,wall", NULL}});
    run_expect_quiet_success(&run);
    struct profile cpu;
    profile_load(&cpu, run.profiles, "cpu", 0);
    ck_assert(profile_has_comment(&cpu, "to keep to LIBAGENT_OVERHEAD waiting threads"));
    static const char words[] = "OVERHEAD cpu samples come each ";
    const char *told = profile_comment(&cpu, words);
    ck_assert(!told || strtoul(told + strlen(words), NULL, 10) <= 60000);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

/* With the CPU profile and without it, and where one period is that of both (event): looks at
 * threads, which have a bound of their own, come ten times a second at least, and each thread's
 * time is known up to its last look. There are a thousand looks of 20 us in a second where these
 * take 2 % of a processor, so one a thread in 50 ms or at the next tick: of lives of 6 s 1 or 2 %
 * are not. On a machine that others use it may be some times that; half of a life is what it was.
 */
static const char *const with_looks[][2] = {
    {"LIBAGENT_PROFILES=wall", "LIBAGENT_SCHEDULER=auto"},
    {"LIBAGENT_PROFILES=alloc,wall", "LIBAGENT_SCHEDULER=auto"},
    {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=auto"},
    {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=event"},
};

START_TEST(looks_go_on)
{
    struct run run;
    run_program(&run, &(struct run_request){.program = "wakes",
                                            .arguments = (const char *[]){"50", "6", NULL},
                                            .environment = (const char *[]){
                                                with_looks[_i][0], with_looks[_i][1], NULL}});
    run_expect_quiet_success(&run);
    struct profile wall;
    profile_load(&wall, run.profiles, "wall", 0);
    static const char words[] = "waiting threads are looked at each ";
    const char *told = profile_comment(&wall, words);
    unsigned long each_us = told ? strtoul(told + strlen(words), NULL, 10) : 0;
    double unknown = (double)profile_of_state(&wall, WALL_NS, "unknown"),
           all = (double)profile_total(&wall, WALL_NS);
    fprintf(stderr, "%s, %s: each %lu us, %.4f unknown\n", with_looks[_i][0], with_looks[_i][1],
            each_us, unknown / all);
    ck_assert_uint_le(each_us, 100000);
    ck_assert_double_le(unknown / all, 0.1);
    /* What nobody asked for is not spoken of. */
    ck_assert_int_eq(profile_has_comment(&wall, "cpu samples"),
                     !strcmp(with_looks[_i][0], "LIBAGENT_PROFILES=cpu,wall"));
    profile_free(&wall);
    run_free(&run);
}
END_TEST

/* Where an interval timer tells the ticks, it goes slower itself: at its first rate there would be
 * 594 of them. */
START_TEST(an_interval_timer_follows)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "wakes",
                          .arguments = (const char *[]){"50", "6", NULL},
                          .environment = (const char *[]){"LIBAGENT_PROFILES=cpu,wall",
                                                          "LIBAGENT_SCHEDULER=sigalrm", NULL}});
    run_expect_quiet_success(&run);
    struct profile wall;
    profile_load(&wall, run.profiles, "wall", 0);
    ck_assert(profile_has_comment(&wall, "to keep to LIBAGENT_OVERHEAD waiting threads"));
    fprintf(stderr, "%lld ticks\n", (long long)profile_figure(&wall, "ticks"));
    ck_assert_int_lt(profile_figure(&wall, "ticks"), 350);
    profile_free(&wall);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("rates");
    TCase *tcase = tcase_create("budget");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_default_rate_is_kept_within_a_percent);
    tcase_add_test(tcase, a_budget_governs_a_rate_that_is_set);
    tcase_add_test(tcase, a_rate_that_is_set_is_kept);
    tcase_add_test(tcase, wall_time_leaves_cpu_samples_their_part);
    tcase_add_loop_test(tcase, looks_go_on, 0, sizeof(with_looks) / sizeof(with_looks[0]));
    tcase_add_test(tcase, an_interval_timer_follows);
    suite_add_tcase(suite, tcase);
    return suite;
}
