/* What wall profiles cost where threads are many, and where nothing happens. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static struct run run;
static struct profile profile;

/* 10,000 that wait, and one that computes. Half a hundredth of a processor is what ticks may take
 * for their reads (agent/sched/tick.c), and 0.7 of one was measured; the bound is for machines that
 * are slower, or busy with others. */
START_TEST(test_many_idle_threads)
{
    run_program(&run, &(struct run_request){.program = "wall_idle",
                                            .environment =
                                                (const char *[]){"LIBAGENT_PROFILES=cpu,wall",
                                                                 "LIBAGENT_FREQUENCY=20", NULL}});
    run_expect_success(&run);
    profile_load(&profile, run.profiles, "wall", run.pid);
    int64_t window = run_number(&run, "window"), ticks = run_number(&run, "ticks");
    int64_t lives = run_number(&run, "lives");
    int64_t waited = profile_under(&profile, WALL_NS, "wait_for_ever");
    int64_t read = profile_figure(&profile, "stacks of blocked threads read from outside");
    fprintf(stderr, "ticks: %.3f %% of a processor; %lld s of %lld s, %lld stacks read\n",
            100.0 * (double)ticks / (double)window, (long long)waited / 1000000000,
            (long long)lives / 1000000000, (long long)read);
    ck_assert_int_gt(ticks, 0);
    ck_assert_double_le((double)ticks, (double)window * 0.03);
    ck_assert_double_ge((double)waited, (double)lives * 0.99);
    /* They live on while the program ends. */
    ck_assert_double_le((double)waited, (double)lives * 1.01 + 10000 * 0.25e9);
    /* Once each, and a few that were not at rest yet. */
    ck_assert_int_ge(read, 9900);
    ck_assert_int_le(read, 11000);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* No thread of the program comes by to begin the agent's, and no clock moves. */
START_TEST(test_idle_program)
{
    run_program(&run, &(struct run_request){.program = "/bin/sleep",
                                            .arguments = (const char *[]){"2.5", NULL},
                                            /* Set: else ticks of an idle program are rarer. */
                                            .environment = (const char *[]){
                                                "LIBAGENT_PROFILES=wall", "LIBAGENT_FREQUENCY=101",
                                                "LIBAGENT_PERIOD=1s", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "wall", run.pid);
    int64_t asleep = profile_of_state(&profile, WALL_NS, "clock_nanosleep");
    fprintf(stderr, "%.6f s asleep, in %u files\n", (double)asleep / 1e9, profile.file_count);
    ck_assert_uint_ge(profile.file_count, 3);
    /* A tick before and one behind it. */
    ck_assert_int_ge(asleep, 2500000000 - 60000000);
    ck_assert_double_ge((double)asleep, (double)profile_total(&profile, WALL_NS) * 0.98);
    ck_assert_int_le(profile_total(&profile, WALL_SAMPLES), 3 * profile.file_count);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("wall_cost");
    TCase *tcase = tcase_create("idle");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_many_idle_threads);
    tcase_add_test(tcase, test_idle_program);
    suite_add_tcase(suite, tcase);
    return suite;
}
