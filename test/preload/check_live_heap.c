/* The live heap of whole programs: what each function of libc, a fork child, a stop and start, and
 * each option make of it. Every allocation is a sample, so all numbers are exact, but for those of
 * the two options by which not all samples are kept. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/heap_bound.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SIZE = 1000, MANY = 20000 };

static void run_way(struct run *run, const char *way, const char *first, const char *second)
{
    run_program(run, &(struct run_request){
                         .program = "live_heap",
                         .arguments = (const char *[]){way, NULL},
                         .environment = (const char *[]){
                             "LIBAGENT_ALLOC_INTERVAL=1",
                             first ? first : "NO_OPTION=", second ? second : "NO_OPTION=", NULL}});
    run_expect_quiet_success(run);
}

static void expect_live(const struct profile *profile, const char *site, int64_t objects)
{
    int64_t seen = profile_last_self(profile, LIVE_OBJECTS, site);
    ck_assert_msg(seen == objects, "%s: %lld objects, truth %lld", site, (long long)seen,
                  (long long)objects);
    ck_assert_int_eq(profile_last_self(profile, LIVE_BYTES, site), objects * SIZE);
}

START_TEST(test_what_is_left_at_the_end)
{
    struct run run;
    struct profile profile;
    run_way(&run, "plain", NULL, NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_live(&profile, "site_kept", 60);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_kept"), 100);
    /* Both in one row: the stack and the thread are the same. */
    ck_assert_int_eq(profile.files[0]->n_sample_type, 4);
    int rows = 0;
    for (size_t i = 0; i < profile.stack_count; i++)
        rows += stack_has(&profile.stacks[i], "site_kept");
    ck_assert_int_eq(rows, 1);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_each_function_that_allocates_and_each_that_frees)
{
    struct run run;
    struct profile profile;
    int sites = 0;
    run_program(&run, &(struct run_request){
                          .program = "heap_calls",
                          .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1",
                                                          "LIBAGENT_PROFILES=alloc,heap", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "heap", run.pid);
    for (char *rest = run.out, *line; (line = strtok_r(NULL, "\n", &rest)); sites++) {
        char site[64];
        long long objects, bytes;
        ck_assert_int_eq(sscanf(line, "%63s %lld %lld", site, &objects, &bytes), 3);
        ck_assert_msg(profile_last_self(&profile, LIVE_OBJECTS, site) == objects &&
                          profile_last_self(&profile, LIVE_BYTES, site) == bytes,
                      "%s: %lld objects, %lld bytes; truth %lld, %lld", site,
                      (long long)profile_last_self(&profile, LIVE_OBJECTS, site),
                      (long long)profile_last_self(&profile, LIVE_BYTES, site), objects, bytes);
    }
    ck_assert_int_eq(sites, 13);
    ck_assert_int_eq(profile_last_self(&profile, LIVE_OBJECTS, "other_block"), 0);
    ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_families_that_are_chosen)
{
    static const struct {
        const char *profiles;
        int64_t allocated, live;
    } choices[] = {{"LIBAGENT_PROFILES=alloc", 100, 0},
                   {"LIBAGENT_PROFILES=heap", 0, 60},
                   {"LIBAGENT_PROFILES=alloc,heap", 100, 60}};
    struct run run;
    struct profile profile;
    run_way(&run, "plain", choices[_i].profiles, NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_live(&profile, "site_kept", choices[_i].live);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_kept"), choices[_i].allocated);
    ck_assert_int_eq(profile.files[0]->n_sample_type,
                     (choices[_i].allocated ? 2 : 0) + (choices[_i].live ? 2 : 0));
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_a_child_has_a_live_heap_of_its_own)
{
    struct run run;
    struct profile profile;
    run_way(&run, "fork", NULL, NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_live(&profile, "site_kept", 60);
    expect_live(&profile, "site_child", 0);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap", (int)run_number(&run, "child"));
    expect_live(&profile, "site_kept", 50);
    expect_live(&profile, "site_child", 5);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_kept"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_stop_and_start_leave_no_phantom)
{
    struct run run;
    struct profile profile;
    run_way(&run, "stop", NULL, NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert_uint_ge(profile.file_count, 2);
    expect_live(&profile, "site_kept", 40);
    expect_live(&profile, "site_young", 1);
    ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_age_and_size_are_labels)
{
    struct run run;
    struct profile profile;
    int64_t old = 0, young = 0;
    run_way(&run, "old", "LIBAGENT_HEAP_AGE=1", "LIBAGENT_HEAP_BYTES=1");
    profile_load(&profile, run.profiles, "heap", run.pid);
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        ck_assert_int_eq(stack->age_s >= 0, stack->values[LIVE_OBJECTS] > 0);
        ck_assert_int_eq(stack->bytes >= 0, stack->values[LIVE_OBJECTS] > 0);
        if (!stack->values[LIVE_OBJECTS])
            continue;
        bool is_kept = stack_has(stack, "site_kept");
        if (is_kept || stack_has(stack, "site_young"))
            ck_assert_int_eq(stack->bytes, 1024);
        /* On a busy machine they may be older. */
        if (is_kept && stack->age_s >= 2)
            old += stack->values[LIVE_OBJECTS];
        if (stack_has(stack, "site_young"))
            young += stack->values[LIVE_OBJECTS];
    }
    ck_assert_int_eq(old, 60);
    ck_assert_int_eq(young, 20);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_the_youngest_are_hidden)
{
    struct run run;
    struct profile profile;
    run_way(&run, "old", "LIBAGENT_HEAP_MIN_AGE=2s", NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_live(&profile, "site_kept", 60);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_young"), 20);
    expect_live(&profile, "site_young", 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* A false alarm in 1e9 runs: log(2 / 1e-9). */
static void expect_about_many(const struct profile *profile, double variance, double largest)
{
    double bound = heap_bound(variance, largest, 21.5);
    int64_t seen = profile_last_self(profile, LIVE_OBJECTS, "site_many");
    fprintf(stderr, "%lld objects of %d, bound %.0f\n", (long long)seen, MANY, bound);
    ck_assert_double_le(fabs((double)seen - MANY), bound);
    ck_assert_double_le(bound, MANY / 4.0); /* so that it is one */
    ck_assert_int_eq(profile_last_self(profile, LIVE_BYTES, "site_many"), seen * SIZE);
    ck_assert_int_eq(profile_self(profile, ALLOC_OBJECTS, "site_many"), MANY);
}

START_TEST(test_one_in_some_is_kept_and_stands_for_them)
{
    enum { RATE = 4 };
    struct run run;
    struct profile profile;
    run_way(&run, "many", "LIBAGENT_HEAP_SAMPLE_RATE=4", NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_about_many(&profile, (double)MANY * (RATE - 1), RATE);
    ck_assert_int_eq(profile_last_self(&profile, LIVE_OBJECTS, "site_many") % RATE, 0);
    ck_assert_int_gt(profile_figure(&profile, "records of the live heap"), MANY / RATE / 2);
    ck_assert_int_lt(profile_figure(&profile, "records of the live heap"), MANY / RATE * 2);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Tables of n records are thinned once they are three quarters full: one in 2 for the next n / 60
 * records, then one in 4, and so on. As if n were no more than what there is of records, which
 * thins more; and with twice the variance of that, since these numbers are drawn themselves. */
START_TEST(test_near_the_end_of_memory_sums_stay_right_and_it_is_told)
{
    struct run run;
    struct profile profile;
    run_way(&run, "many", "LIBAGENT_MEMORY=8MiB", NULL);
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert_uint_eq(profile.file_count, 1);
    double records = (double)profile_figure(&profile, "records of the live heap");
    double variance = 0, largest = 1, left = MANY - records * 3 / 4;
    ck_assert_double_lt(records, MANY * 0.75); /* or nothing is thinned much */
    while (left > 0) {
        largest *= 2;
        double part = fmin(left, records / 60 * largest);
        variance += 2 * part * (largest - 1);
        left -= part;
    }
    expect_about_many(&profile, variance, largest);
    ck_assert_int_gt(
        profile_figure(&profile, "live heap: samples thinned out, near LIBAGENT_MEMORY"), 0);
    ck_assert_int_eq(profile_figure(&profile, "live heap: samples dropped: tables full"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("live_heap");
    TCase *tcase = tcase_create("whole programs");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_what_is_left_at_the_end);
    tcase_add_test(tcase, test_each_function_that_allocates_and_each_that_frees);
    tcase_add_loop_test(tcase, test_families_that_are_chosen, 0, 3);
    tcase_add_test(tcase, test_a_child_has_a_live_heap_of_its_own);
    tcase_add_test(tcase, test_stop_and_start_leave_no_phantom);
    tcase_add_test(tcase, test_age_and_size_are_labels);
    tcase_add_test(tcase, test_the_youngest_are_hidden);
    tcase_add_test(tcase, test_one_in_some_is_kept_and_stands_for_them);
    tcase_add_test(tcase, test_near_the_end_of_memory_sums_stay_right_and_it_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
