/* A program that puts itself under seccomp is not killed for calls of the agent's, and one that has
 * its calls, or reads of the time stamp counter, raise signals gets none for the agent's. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void start_case(struct run *run, const char *name, unsigned ms, const char *period,
                       bool with_agent)
{
    char text[16];
    bool raises = strncmp(name, "dispatch", 8) == 0 || strncmp(name, "tsc", 3) == 0;
    snprintf(text, sizeof(text), "%u", ms);
    run_start(run,
              &(struct run_request){.program = raises ? "harm_dispatch" : "harm_seccomp",
                                    .arguments = (const char *[]){name, text, NULL},
                                    .environment = (const char *[]){"LIBAGENT_FREQUENCY=1000",
                                                                    "LIBAGENT_ALLOC_INTERVAL=16KiB",
                                                                    period, NULL},
                                    .without_agent = !with_agent,
                                    .seconds = 60});
}

static void run_both(struct run *with, unsigned ms, struct run *without, unsigned ms_without,
                     const char *name, const char *period)
{
    start_case(with, name, ms, period, true);
    start_case(without, name, ms_without, period, false);
    run_wait(with);
    run_wait(without);
}

/* What came before is in the profiles, what came after is not. */
static void expect_recorded_before(const struct run *run, unsigned ms)
{
    struct profile cpu, heap;
    profile_load(&cpu, run->profiles, "cpu", run->pid);
    profile_load(&heap, run->profiles, "heap", run->pid);
    /* Where other programs want the processor, too, a thread may run for long between ticks: what
     * no sample reached counts. */
    double reached = (double)profile_under(&cpu, CPU_NS, "before") +
                     (double)profile_self(&cpu, CPU_NS, "[thread end]") +
                     (double)profile_self(&cpu, CPU_NS, "[not sampled]");
    ck_assert_double_ge(reached, 0.8e6 * ms);
    /* One block in ~2 us. */
    ck_assert_int_ge(profile_under(&heap, ALLOC_OBJECTS, "before"), 10 * ms);
    ck_assert_int_eq(profile_under(&cpu, CPU_NS, "after"), 0);
    ck_assert_int_eq(profile_under(&heap, ALLOC_OBJECTS, "after"), 0);
    profile_free(&cpu);
    profile_free(&heap);
}

static void expect_same_as_without(const char *name, unsigned ms, const char *period)
{
    struct run with, without;
    run_both(&with, ms, &without, 1, name, period);
    ck_assert_msg(WIFEXITED(without.status), "wait status %#x without", without.status);
    ck_assert_uint_eq(without.err_size, 0);
    run_expect_same(&with, &without);
    expect_recorded_before(&with, ms);
    run_free(&with);
    run_free(&without);
}

static const char *const cases[] = {"strict-prctl",     "strict-seccomp",   "strict-syscall-prctl",
                                    "filter-prctl",     "filter-seccomp",   "filter-syscall-prctl",
                                    "over-threads",     "each-thread",      "filter-no-handlers",
                                    "few-prctl",        "few-seccomp",      "few-syscall-prctl",
                                    "few-over-threads", "over-newborn",     "over-ending",
                                    "dispatch-prctl",   "dispatch-syscall", "tsc-prctl",
                                    "tsc-syscall"};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

START_TEST(test_works_on)
{
    expect_same_as_without(cases[_i], 300, "LIBAGENT_PERIOD=60s");
}
END_TEST

/* After the first period the agent has threads: they may neither make calls nor keep the process
 * when its own threads have ended. */
static const char *const late_cases[] = {"strict-prctl", "filter-seccomp",   "over-threads",
                                         "few-prctl",    "few-over-threads", "dispatch-prctl",
                                         "tsc-prctl"};
enum { LATE_CASES = sizeof(late_cases) / sizeof(late_cases[0]) };

START_TEST(test_works_on_after_a_period)
{
    expect_same_as_without(late_cases[_i], 1300, "LIBAGENT_PERIOD=1s");
}
END_TEST

/* An upload was tried before it enters, and libcurl and what that needs is there: none of them has
 * exit call what the filter kills for. */
START_TEST(test_upload_leaves_nothing_to_exit)
{
    struct run with, without;
    struct run_request request = {
        .program = "harm_seccomp",
        .arguments = (const char *[]){"few-prctl", "100", NULL},
        /* Nobody listens there. */
        .environment = (const char *[]){"LIBAGENT_UPLOAD_URL=http://127.0.0.1:1",
                                        "LIBAGENT_PERIOD=60s", "LIBAGENT_LOG=warn", NULL},
        .seconds = 60};
    run_start(&with, &request);
    request.without_agent = true;
    run_start(&without, &request);
    run_wait(&with);
    run_wait(&without);
    run_expect_quiet_success(&without);
    ck_assert_msg(strstr(with.err, "a profile was not taken by post"), "%s", with.err);
    ck_assert_int_eq(with.status, without.status);
    ck_assert_str_eq(with.out, without.out);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* What its parent sees of a process that entered after the agent's first period. */
START_TEST(test_nothing_of_the_agent_is_left)
{
    struct run with, without;
    run_both(&with, 1300, &without, 1, "looked-at", "LIBAGENT_PERIOD=1s");
    run_expect_quiet_success(&with);
    run_expect_quiet_success(&without);
    /* There was something to go. */
    ck_assert_int_ge(run_number(&with, "tasks-before"), 2);
    ck_assert_int_ge(run_number(&with, "timers-before"), 1);
    ck_assert_int_eq(run_number(&without, "tasks-before"), 1);
    ck_assert_int_eq(run_number(&with, "tasks-after"), 1);
    ck_assert_int_eq(run_number(&with, "timers-after"), 0);
    ck_assert_int_eq(run_number(&with, "status"), 0);
    ck_assert_int_eq(run_number(&without, "status"), 0);
    /* The last window was written while it entered: files of two windows and families. */
    ck_assert_int_ge(run_number(&with, "files-after"), 4);
    ck_assert_int_eq(run_number(&without, "files-after"), 0);
    /* Where several programs want a processor the kernel may give a thread no tick in 0.2 s of its
     * time on end, which is [not sampled]. */
    const double missed = 0.2e9;
    struct profile cpu;
    profile_load(&cpu, with.profiles, "cpu", (int)run_number(&with, "child"));
    ck_assert_double_ge((double)profile_under(&cpu, CPU_NS, "before"), 0.95 * 1300e6 - missed);
    ck_assert_int_eq(profile_under(&cpu, CPU_NS, "after"), 0);
    profile_free(&cpu);
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_asking_changes_nothing)
{
    struct run with, without;
    struct profile cpu;
    const char *name = _i ? "dispatch-off" : "asks";
    run_both(&with, 100, &without, 1, name, "LIBAGENT_PERIOD=60s");
    run_expect_quiet_success(&without);
    run_expect_same(&with, &without);
    profile_load(&cpu, with.profiles, "cpu", with.pid);
    double total = (double)profile_total(&cpu, CPU_NS);
    ck_assert_double_ge(total, 0.9e9 * with.cpu_seconds);
    ck_assert_double_ge((double)profile_under(&cpu, CPU_NS, "after"), 0.5 * total);
    profile_free(&cpu);
    run_free(&with);
    run_free(&without);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_seccomp");
    TCase *tcase = tcase_create("seccomp");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_works_on, 0, CASES);
    tcase_add_loop_test(tcase, test_works_on_after_a_period, 0, LATE_CASES);
    tcase_add_test(tcase, test_upload_leaves_nothing_to_exit);
    tcase_add_test(tcase, test_nothing_of_the_agent_is_left);
    tcase_add_loop_test(tcase, test_asking_changes_nothing, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
