/* The live heap of programs that allocate and free without end, while profiles are written: at the
 * end it holds what is left, nothing else, and has taken no more memory than after the beginning.
 * make heap-soak: 500 million pairs, and a minute of the race. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

/* Pages that the allocator below, whose heap is in another order each time, touches late. */
enum { MORE_KIB = 1024 };

static bool is_long(void)
{
    return getenv("HEAP_SOAK") != NULL;
}

static void run_way(struct run *run, struct profile *profile, const char *way, const char *length,
                    const char *interval)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "LIBAGENT_ALLOC_INTERVAL=%s", interval);
    run_program(run, &(struct run_request){
                         .program = "heap_churn",
                         .arguments = (const char *[]){way, length, NULL},
                         .environment =
                             (const char *[]){variable, "LIBAGENT_PERIOD=1s",
                                              "GLIBC_TUNABLES=glibc.malloc.tcache_count=0", NULL},
                         .seconds = 580});
    run_expect_quiet_success(run);
    profile_load(profile, run->profiles, "heap", run->pid);
    ck_assert_uint_ge(profile->file_count, 1);
    ck_assert_int_eq(profile_figure(profile, "live heap: frees that were not seen"), 0);
    ck_assert_int_eq(profile_figure(profile, "live heap: samples dropped: tables full"), 0);
    ck_assert_int_eq(
        profile_figure(profile, "live heap: samples thinned out, near LIBAGENT_MEMORY"), 0);
    fprintf(stderr, "%s: %u profiles, %lld samples, %.1f s of CPU time\n", way, profile->file_count,
            (long long)profile_figure(profile, "allocation samples"), run->cpu_seconds);
}

static void expect_left(const struct run *run, const struct profile *profile, const char *site)
{
    char key[64];
    snprintf(key, sizeof(key), "%s_objects", site);
    ck_assert_int_eq(profile_last_self(profile, LIVE_OBJECTS, site), run_number(run, key));
    snprintf(key, sizeof(key), "%s_bytes", site);
    ck_assert_int_eq(profile_last_self(profile, LIVE_BYTES, site), run_number(run, key));
}

START_TEST(test_churn_leaves_what_is_left)
{
    struct run run;
    struct profile profile;
    run_way(&run, &profile, "churn", is_long() ? "500000000" : "4000000", "4096");
    expect_left(&run, &profile, "site_small");
    expect_left(&run, &profile, "site_large");
    int64_t early = run_number(&run, "early"), late = run_number(&run, "late");
    fprintf(stderr, "resident after a fifth %lld KiB, at the end %lld KiB\n", (long long)early,
            (long long)late);
    ck_assert_int_le(late, early + MORE_KIB);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_addresses_that_race_leave_what_is_left)
{
    struct run run;
    struct profile profile;
    run_way(&run, &profile, "race", is_long() ? "60" : "1", "1");
    expect_left(&run, &profile, "site_small");
    expect_left(&run, &profile, "site_moved");
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_churn");
    TCase *tcase = tcase_create("whole programs");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_churn_leaves_what_is_left);
    tcase_add_test(tcase, test_addresses_that_race_leave_what_is_left);
    suite_add_tcase(suite, tcase);
    return suite;
}
