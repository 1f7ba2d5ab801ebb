/* Threads: made and ended in each way, they are as without us, and nothing of theirs is lost. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const struct {
    const char *program;
    const char *argument;
} programs[] = {{"thread_ends", NULL}, {"thread_throws", NULL}, {"thread_throws", "x"}};

START_TEST(test_same_as_without)
{
    struct run with, without;
    struct run_request request = {.program = programs[_i].program,
                                  .arguments = (const char *[]){programs[_i].argument, NULL},
                                  .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1KiB",
                                                                  "LIBAGENT_FREQUENCY=1000", NULL}};
    run_program(&with, &request);
    request.without_agent = true;
    run_program(&without, &request);
    run_expect_same(&with, &without);
    if (!programs[_i].argument) {
        struct profile profile;
        run_expect_quiet_success(&with);
        profile_load(&profile, with.profiles, "cpu", with.pid);
        /* Less what the loader took before the agent was there, and the end of the process. */
        ck_assert_double_ge((double)profile_total(&profile, CPU_NS),
                            0.97e9 * (with.cpu_seconds - 0.04));
        ck_assert_double_le((double)profile_total(&profile, CPU_NS), 1.01e9 * with.cpu_seconds);
        profile_free(&profile);
    }
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Its malloc is for threads that it knows, and it knows one when it has gone through our routine
 * and its own. Threads begin all the time, the agent's is due after a second. Its own functions on
 * memory would report races of the agent's tables, were they called there: run_expect_quiet_success
 * would see it. */
START_TEST(test_thread_sanitizer_before_us)
{
    char preload[2 * PATH_MAX];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=libtsan.so.2 %s", run_agent_path());
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = "short_threads",
                          .arguments = (const char *[]){"1000", "3000000", "4", NULL},
                          .environment = (const char *[]){preload, "LIBAGENT_PERIOD=1s",
                                                          "LIBAGENT_ALLOC_INTERVAL=64", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS),
                        0.9 * (double)run_number(&run, "threads"));
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_same_as_without, 0, 3);
    tcase_add_test(tcase, test_thread_sanitizer_before_us);
    suite_add_tcase(suite, tcase);
    return suite;
}
