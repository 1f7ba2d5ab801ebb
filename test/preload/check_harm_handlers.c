/* A program's handlers are its own: what they do, what ends a wait, the stacks that they run on. */
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void start_case(struct run *run, const char *name, unsigned seed, const char *setting,
                       bool with_agent)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", seed);
    run_start(run, &(struct run_request){.program = "harm_handlers",
                                         .arguments = (const char *[]){name, text, NULL},
                                         .environment = (const char *[]){setting, NULL},
                                         .without_agent = !with_agent,
                                         .seconds = 20});
}

static void expect_same_as_without(const char *name, const char *setting)
{
    struct run with, without;
    start_case(&with, name, 1, setting, true);
    start_case(&without, name, 1, setting, false);
    run_wait(&with);
    run_wait(&without);
    run_expect_quiet_success(&without);
    run_expect_same(&with, &without);
    run_free(&with);
    run_free(&without);
}

START_TEST(test_handler_forks_and_waits)
{
    expect_same_as_without("fork", "LIBAGENT_FREQUENCY=101");
}
END_TEST

/* Every allocation is recorded, so that there is a last window to write. A lock of the agent's is
 * held at one exit of five; who waits for it waits for its own thread, in some places for the 3 s
 * that the agent gives an exit. One that does not takes some 20 ms. */
enum { EXITS = 60, AT_ONCE = 4 };
static const double exit_limit = 2.5;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

START_TEST(test_handler_exits)
{
    struct run runs[AT_ONCE];
    for (unsigned seed = 1; seed <= EXITS; seed += AT_ONCE) {
        double start = now();
        for (unsigned i = 0; i < AT_ONCE; i++)
            start_case(&runs[i], "exit", seed + i, "LIBAGENT_ALLOC_INTERVAL=1", true);
        for (unsigned i = 0; i < AT_ONCE; i++) {
            run_wait(&runs[i]);
            double seconds = now() - start;
            ck_assert_msg(WIFEXITED(runs[i].status) && WEXITSTATUS(runs[i].status) == 7,
                          "seed %u: wait status %#x\n%s", seed + i, runs[i].status, runs[i].err);
            ck_assert_msg(runs[i].out_size == 0 && runs[i].err_size == 0, "seed %u: %s%s", seed + i,
                          runs[i].out, runs[i].err);
            ck_assert_msg(seconds < exit_limit, "seed %u: ended after %.1f s", seed + i, seconds);
            run_free(&runs[i]);
        }
    }
}
END_TEST

/* Ticks of the agent's are pending whenever a wait begins. */
/* Samples of time, then of allocations, of code under EFLAGS.AC. */
START_TEST(test_alignment_checks)
{
    struct run run;
    run_program(&run, &(struct run_request){.program = "alignment_checks",
                                            .environment =
                                                (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1KiB",
                                                                 "LIBAGENT_FREQUENCY=250", NULL}});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "lost 0\n");
    run_free(&run);
}
END_TEST

START_TEST(test_masked_waits)
{
    expect_same_as_without("masked-waits", "LIBAGENT_FREQUENCY=1000");
}
END_TEST

/* Ticks are rare enough not to come between a wait and the raise after it. */
START_TEST(test_own_signal_gets_through)
{
    expect_same_as_without("own-in-waits", "LIBAGENT_FREQUENCY=20");
}
END_TEST

START_TEST(test_handler_on_small_stack)
{
    expect_same_as_without("small-stack", "LIBAGENT_FREQUENCY=10000");
}
END_TEST

START_TEST(test_shown_masks)
{
    expect_same_as_without("shown-masks", "LIBAGENT_FREQUENCY=101");
}
END_TEST

/* The signal that samples is the one by which libc cancels. */
START_TEST(test_cancelled_threads)
{
    static const char *const often[] = {"LIBAGENT_FREQUENCY=1000", NULL};
    struct run with, without;
    struct profile profile;
    struct run_request request = {
        .program = "harm_cancel", .environment = often, .without_agent = true};
    run_program(&without, &request);
    run_expect_quiet_success(&without);
    request.without_agent = false;
    run_program(&with, &request);
    run_expect_same(&with, &without);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    /* Sampled still after the first cancellation. */
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "burn_after_all()"), 0.95e9);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_handlers");
    TCase *tcase = tcase_create("handlers");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_handler_forks_and_waits);
    tcase_add_test(tcase, test_handler_exits);
    tcase_add_test(tcase, test_alignment_checks);
    tcase_add_test(tcase, test_masked_waits);
    tcase_add_test(tcase, test_own_signal_gets_through);
    tcase_add_test(tcase, test_handler_on_small_stack);
    tcase_add_test(tcase, test_shown_masks);
    tcase_add_test(tcase, test_cancelled_threads);
    suite_add_tcase(suite, tcase);
    return suite;
}
