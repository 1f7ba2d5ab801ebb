/* Waits with a time limit: none is cut short, none fails, while the process is sampled as often as
 * the kernel can. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

/* Compares how 16 kinds of waits end, each 24 times; and both those that wait and those beside them
 * must have been sampled meanwhile. */
START_TEST(test_waits_end_by_their_limit)
{
    struct run with, without;
    struct profile profile;
    struct run_request request = {
        .program = "harm_waits",
        .environment =
            (const char *[]){"LIBAGENT_FREQUENCY=10000", "LIBAGENT_ALLOC_INTERVAL=4KiB", NULL}};
    run_start(&with, &request);
    request.without_agent = true;
    run_start(&without, &request);
    run_wait(&with);
    run_wait(&without);
    run_expect_quiet_success(&without);
    run_expect_same(&with, &without);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    /* 16 * 12 times 6 ms, less half of it for what the other run takes from the tick. */
    int64_t before = profile_under(&profile, CPU_NS, "compute_before_wait");
    int64_t beside = profile_under(&profile, CPU_NS, "burn");
    fprintf(stderr, "%lld ns before waits, %lld beside\n", (long long)before, (long long)beside);
    ck_assert_int_ge(before, 16 * 12 * 6000000ll / 2);
    ck_assert_int_ge(beside, 200000000);
    ck_assert_int_ge(profile_total(&profile, CPU_SAMPLES), 100);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_waits");
    TCase *tcase = tcase_create("waits");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_waits_end_by_their_limit);
    suite_add_tcase(suite, tcase);
    return suite;
}
