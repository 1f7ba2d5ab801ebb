/* Signals: the program's are the program's, ours are never seen. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const char *const often[] = {"LIBAGENT_FREQUENCY=1000", NULL};

static void run_case(struct run *run, const char *name, bool with_agent)
{
    run_program(run, &(struct run_request){.program = "signals",
                                           .arguments = (const char *[]){name, NULL},
                                           .environment = often,
                                           .without_agent = !with_agent});
    ck_assert_msg(run->err_size == 0, "%s", run->err);
}

static const char *const cases[] = {"dispositions",  "sent",      "default",
                                    "reset-default", "reset-all", "wait"};

START_TEST(test_same_as_without)
{
    struct run with, without;
    run_case(&with, cases[_i], true);
    run_case(&without, cases[_i], false);
    run_expect_same(&with, &without);
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_cpu_is_sampled_all_the_while)
{
    struct run run;
    struct profile profile;
    run_case(&run, "reset-all", true);
    run_expect_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    /* 0.05 s, 0.4 s after the first reset and as much after the second; on a busy machine ticks may
     * miss the thread for 0.3 s of it. */
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "reset_all"), 0.5e9);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), 0.9e9 * run.cpu_seconds);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* The program's calls with the agent, of those without. */
static double own_timer_share(struct run *with)
{
    struct run without;
    run_case(with, "own-timer", true);
    run_case(&without, "own-timer", false);
    run_expect_success(with);
    run_expect_success(&without);
    double count = (double)run_number(with, "count");
    double truth = (double)run_number(&without, "count");
    fprintf(stderr, "own timer: %.0f calls, without the agent %.0f\n", count, truth);
    run_free(&without);
    return count / truth;
}

/* What the kernel's tick makes of 10 ms is 8 or 12, as it comes: the same program gave 308 to 350
 * without the agent, and on a machine with other work once a quarter less than beside it. Calls
 * that went to the agent or were merged would be half in each of three tries. */
START_TEST(test_own_timer_counts_as_without)
{
    struct run with;
    struct profile profile;
    double share = own_timer_share(&with);
    for (int try = 1; try < 3 && (share < 0.8 || share > 1.25); try++) {
        run_free(&with);
        share = own_timer_share(&with);
    }
    ck_assert_double_ge(share, 0.8);
    ck_assert_double_le(share, 1.25);
    ck_assert_int_eq(run_number(&with, "code-is-kernel"), 1);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    double total = (double)profile_total(&profile, CPU_NS);
    double process = (double)run_number(&with, "process");
    ck_assert_double_ge(total, 0.99 * process);
    ck_assert_double_le(total, 1.01 * process);
    /* 750 are asked for in 3 s; how many there are is the tick's affair, and a busy machine's. */
    ck_assert_int_ge(profile_total(&profile, CPU_SAMPLES), 100);
    profile_free(&profile);
    run_free(&with);
}
END_TEST

START_TEST(test_waits_are_not_interrupted)
{
    struct run run;
    run_case(&run, "interrupted", true);
    run_expect_success(&run);
    fprintf(stderr, "%lld of %lld waits were interrupted\n", (long long)run_number(&run, "eintr"),
            (long long)run_number(&run, "waits"));
    ck_assert_int_ge(run_number(&run, "waits"), 1000);
    ck_assert_int_eq(run_number(&run, "eintr"), 0);
    run_free(&run);
}
END_TEST

/* The program's own profiler goes off at the same ticks of the kernel's as ours, and sees where the
 * program was: had ours the signal first, a third of these ticks would be in it. */
START_TEST(test_own_profiler_sees_the_program)
{
    static const char *const ways[][2] = {{"prof", "LIBAGENT_SCHEDULER=cputimer"},
                                          {"virtual", "LIBAGENT_SCHEDULER=cputimer"},
                                          {"prof", "LIBAGENT_SCHEDULER=event"}};
    struct run run;
    run_program(
        &run, &(struct run_request){.program = "own_profiler",
                                    .arguments = (const char *[]){ways[_i][0], "250", NULL},
                                    .environment = (const char *[]){ways[_i][1], often[0], NULL}});
    run_expect_quiet_success(&run);
    ck_assert_int_eq(run_number(&run, "elsewhere"), 0);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_signals");
    TCase *tcase = tcase_create("signals");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_same_as_without, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(tcase, test_cpu_is_sampled_all_the_while);
    tcase_add_test(tcase, test_own_timer_counts_as_without);
    tcase_add_test(tcase, test_waits_are_not_interrupted);
    tcase_add_loop_test(tcase, test_own_profiler_sees_the_program, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
