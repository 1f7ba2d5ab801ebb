/* Calls that the kernel refuses to a process with a second thread succeed as without the agent,
 * also when its threads have been born; and the program is profiled after them as before. Several
 * threads may make them at once. */
#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const char *const ways[] = {"unshare", "syscall", "setns", "refused", "loop"};
static const char *const schedulers[] = {"LIBAGENT_SCHEDULER=event", "LIBAGENT_SCHEDULER=auto"};

START_TEST(test_same_as_without)
{
    struct run with, without;
    struct profile profile;
    struct run_request request = {
        .program = "harm_unshare",
        .arguments = (const char *[]){ways[_i], NULL},
        .environment = (const char *[]){"LIBAGENT_PERIOD=1s", NULL},
        .without_agent = true,
    };
    run_program(&without, &request);
    run_expect_quiet_success(&without);
    request.without_agent = false;
    run_program(&with, &request);
    run_expect_same(&with, &without);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    /* A window before, and at least the next one of its own thread and the last. */
    ck_assert_uint_ge(profile.file_count, 3);
    /* Of 0.5 and 1.5 s; where several programs want a processor the kernel may give a thread no
     * tick in 0.2 s of its time on end, which is [not sampled] then, and in the total. */
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "burn_before"), 0.25e9);
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "burn_after"), 1.25e9);
    double total = (double)profile_total(&profile, CPU_NS);
    ck_assert_double_ge(total, 0.98e9 * with.cpu_seconds);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Each call waits until the agent's threads have ended: all that wait must see it. */
START_TEST(test_threads_at_once)
{
    struct run run;
    struct run_request request = {
        .program = "harm_unshare",
        .arguments = (const char *[]){"threads", NULL},
        .environment = (const char *[]){schedulers[_i], "LIBAGENT_PERIOD=1s", NULL},
        .seconds = 60,
    };
    run_program(&run, &request);
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "threads: 800\n");
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_namespaces");
    TCase *tcase = tcase_create("namespaces");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, test_same_as_without, 0, sizeof(ways) / sizeof(ways[0]));
    tcase_add_loop_test(tcase, test_threads_at_once, 0, sizeof(schedulers) / sizeof(schedulers[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
