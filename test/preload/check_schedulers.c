/* One program under each scheduler: the CPU profiles are the same, whatever tells when threads are
 * sampled; and what is said where a scheduler cannot do what is asked.
 *
 * Sums are measured and so exact, but for what a process does before the agent starts and after
 * its last reading. Statistical is the share of f alone, by count: ticks and phases are
 * independent, so that it is one of `samples` draws: bound 5.4 standard errors, false alarm 7e-8.
 * That f and g were mixed up, or one of them shown for both, is 40 points. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const char *const schedulers[] = {"cputimer", "sigprof", "sigalrm", "sleep", "event"};
enum { SCHEDULERS = sizeof(schedulers) / sizeof(schedulers[0]) };

static void expect_ratio(const char *what, double value, double truth, double bound)
{
    fprintf(stderr, "%s: %.4f of truth\n", what, value / truth);
    ck_assert_msg(value >= truth * (1 - bound) && value <= truth * (1 + bound),
                  "%s: %.4f, truth %.4f, bound %.4f", what, value, truth, bound);
}

static void expect_truth(struct run *run)
{
    struct profile cpu;
    profile_load(&cpu, run->profiles, "cpu", run->pid);
    double f = (double)run_number(run, "f"), g = (double)run_number(run, "g");
    double f_samples = (double)profile_under(&cpu, CPU_SAMPLES, "f");
    double g_samples = (double)profile_under(&cpu, CPU_SAMPLES, "g");
    double samples = f_samples + g_samples, share = f / (f + g);
    fprintf(stderr, "share of f: %.4f of %.0f samples, truth %.4f\n", f_samples / samples, samples,
            share);
    ck_assert_double_ge(samples, 200);
    ck_assert_double_le(fabs(f_samples / samples - share),
                        5.4 * sqrt(share * (1 - share) / samples));
    expect_ratio("sum", (double)profile_total(&cpu, CPU_NS), (double)run_number(run, "process"),
                 0.02);
    expect_ratio("load", (double)profile_under(&cpu, CPU_NS, "load"),
                 (double)run_number(run, "load"), 0.1);
    /* Of threads that live for less than a period most are never sampled. */
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "brief"), 0);
    ck_assert_double_ge(profile_whole_share(&cpu, CPU_NS), 0.99);
    profile_free(&cpu);
}

/* Also one that is beyond what ticks are good for. */
static const char *const frequencies[] = {"LIBAGENT_FREQUENCY=250", "LIBAGENT_FREQUENCY=10000"};

START_TEST(test_same_profile_by_each)
{
    struct run runs[SCHEDULERS];
    for (int i = 0; i < SCHEDULERS; i++) {
        char scheduler[64];
        snprintf(scheduler, sizeof(scheduler), "LIBAGENT_SCHEDULER=%s", schedulers[i]);
        run_start(&runs[i], &(struct run_request){
                                .program = "scheduled",
                                .arguments = (const char *[]){"3000", NULL},
                                .environment = (const char *[]){scheduler, frequencies[_i], NULL},
                                .seconds = 120});
    }
    for (int i = 0; i < SCHEDULERS; i++) {
        run_wait(&runs[i]);
        fprintf(stderr, "-- %s\n", schedulers[i]);
        run_expect_quiet_success(&runs[i]);
        expect_truth(&runs[i]);
        run_free(&runs[i]);
    }
}
END_TEST

static void run_with(struct run *run, const char *scheduler, const char *signals)
{
    run_program(run,
                &(struct run_request){.program = "scheduled",
                                      .arguments = (const char *[]){"200", NULL},
                                      .environment = (const char *[]){scheduler, signals, NULL}});
    run_expect_success(run);
}

static int lines(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

START_TEST(test_unknown_name)
{
    struct run run;
    run_with(&run, "LIBAGENT_SCHEDULER=bogus", NULL);
    ck_assert_int_eq(lines(run.err), 1);
    ck_assert_ptr_nonnull(strstr(run.err, "error: LIBAGENT_SCHEDULER=bogus is not understood"));
    ck_assert_ptr_nonnull(strstr(run.err, "auto, cputimer, sigprof, sigalrm, sleep, event"));
    ck_assert_uint_eq(run_file_count(&run, ".cpu.pb.gz"), 0);
    run_free(&run);
}
END_TEST

START_TEST(test_scheduler_that_needs_a_signal)
{
    struct run run;
    char scheduler[64];
    snprintf(scheduler, sizeof(scheduler), "LIBAGENT_SCHEDULER=%s", schedulers[_i]);
    run_with(&run, scheduler, "LIBAGENT_SIGNALS=0");
    ck_assert_int_eq(lines(run.err), 1);
    ck_assert_ptr_nonnull(strstr(run.err, "needs a signal, and LIBAGENT_SIGNALS=0 allows none"));
    ck_assert_uint_eq(run_file_count(&run, ".cpu.pb.gz"), 0);
    run_free(&run);
}
END_TEST

/* The first two of the schedulers have ticks of CPU time alone. */
START_TEST(test_wall_time_is_not_for_all)
{
    struct run run;
    char scheduler[64];
    snprintf(scheduler, sizeof(scheduler), "LIBAGENT_SCHEDULER=%s", schedulers[_i]);
    run_with(&run, scheduler, "LIBAGENT_PROFILES=cpu,wall");
    bool has_wall = _i >= 2;
    ck_assert_msg(lines(run.err) == !has_wall, "%s", run.err);
    if (!has_wall)
        ck_assert_ptr_nonnull(strstr(run.err, "no wall profile"));
    ck_assert_uint_eq(run_file_count(&run, ".wall.pb.gz"), has_wall);
    ck_assert_uint_eq(run_file_count(&run, ".cpu.pb.gz"), 1);
    run_free(&run);
}
END_TEST

static const char *const without_signals[] = {NULL, "LIBAGENT_SCHEDULER=sleep",
                                              "LIBAGENT_SCHEDULER=event"};

START_TEST(test_time_without_signals)
{
    struct run run;
    struct profile cpu;
    run_program(&run, &(struct run_request){.program = "scheduled",
                                            .arguments = (const char *[]){"1500", NULL},
                                            .environment = (const char *[]){
                                                "LIBAGENT_SIGNALS=0", "LIBAGENT_PERIOD=1s",
                                                without_signals[_i], NULL}});
    run_expect_quiet_success(&run);
    /* No allocation is sampled, and none of the app's threads begins late: a thread of ours sees
     * the end of a period. */
    ck_assert_uint_ge(run_file_count(&run, ".cpu.pb.gz"), 2);
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    double total = (double)profile_total(&cpu, CPU_NS);
    expect_ratio("sum", total, (double)run_number(&run, "process"), 0.02);
    expect_ratio("running, of all", (double)profile_self(&cpu, CPU_NS, "running (not sampled)"),
                 total, 0.05);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

/* The program's signal comes first and ours at its handler's first instruction: what was computed
 * until then is the interrupted code's. The handler itself takes less than a microsecond of each
 * tick's four milliseconds. */
START_TEST(test_time_before_a_handler_is_not_its)
{
    struct run run;
    struct profile cpu;
    run_program(&run, &(struct run_request){.program = "ticks_together",
                                            .arguments = (const char *[]){"1000", NULL},
                                            .environment =
                                                (const char *[]){"LIBAGENT_FREQUENCY=1000", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_SAMPLES, "work"), 10);
    ck_assert_double_le((double)profile_under(&cpu, CPU_NS, "empty_handler"),
                        0.05 * (double)profile_total(&cpu, CPU_NS));
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

/* No thread is sampled: all of the time is in the profile, and said to be not sampled. Where timers
 * of CPU time would be the program's end it has none; nor has the one that sets the limit, as the
 * kernel remembers a timer past exec. */
static const struct {
    const char *limit, *scheduler;
} no_timers[] = {
    {"--sigpending=0", "LIBAGENT_SCHEDULER=cputimer"},
    {"--rttime=0", "LIBAGENT_SCHEDULER=cputimer"},
    {"--rttime=0", "LIBAGENT_SCHEDULER=sigprof"},
    {"--rttime=0", "LIBAGENT_SCHEDULER=event"},
    {"--rttime=0:unlimited", "LIBAGENT_SCHEDULER=auto"},
};

START_TEST(test_no_timer_for_any_thread)
{
    struct run run;
    struct profile cpu;
    char preload[PATH_MAX];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", run_agent_path());
    run_program(
        &run,
        &(struct run_request){
            .program = "/usr/bin/prlimit",
            .arguments = (const char *[]){no_timers[_i].limit, "/usr/bin/env", preload,
                                          run_program_path("shares"), "20000", "1", NULL},
            .environment = (const char *[]){"LIBAGENT_PROFILES=cpu", no_timers[_i].scheduler, NULL},
            .without_agent = true});
    run_expect_success(&run);
    ck_assert_ptr_nonnull(
        strstr(run.err, "threads are not sampled, their CPU time is [not sampled]"));
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    expect_ratio("not sampled", (double)profile_self(&cpu, CPU_NS, "[not sampled]"),
                 (double)run_number(&run, "process"), 0.02);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("schedulers");
    TCase *tcase = tcase_create("by each");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, test_same_profile_by_each, 0, 2);
    tcase_add_test(tcase, test_unknown_name);
    tcase_add_loop_test(tcase, test_scheduler_that_needs_a_signal, 0, 3);
    tcase_add_loop_test(tcase, test_wall_time_is_not_for_all, 0, SCHEDULERS);
    tcase_add_loop_test(tcase, test_time_without_signals, 0, 3);
    tcase_add_test(tcase, test_time_before_a_handler_is_not_its);
    tcase_add_loop_test(tcase, test_no_timer_for_any_thread, 0,
                        sizeof(no_timers) / sizeof(no_timers[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
