/* Allocation profiles against exact numbers of allocations.
 *
 * An allocation of s bytes is sampled with probability p = 1 - exp(-s / interval), each for
 * itself, and counts 1 / p. So of n at a site, the samples X = estimate * p are binomial(n, p).
 *  - A run's site is held against Chernoff's bound, P(X >= x) <= exp(-n KL(x/n || p)), alike on
 *    the other side: n KL <= log(2 / 1e-10), so one alarm in 1e10 for each of 2 x 20 x 18 sites.
 *  - The mean over the runs may be off by 1 % and 2 standard errors, or 6 of them where that is
 *    more. Volumes are chosen so that the standard error is 0.2 % where a run can afford it, at
 *    which the bound is 7 standard errors: 3e-12; 6 are 2e-9, for each of 2 x 18 sites and sums. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SITES = 18, RUNS = 20, AT_A_TIME = 2 };

#define SITE_LOG_ALARM 23.7 /* log(2 / 1e-10) */
#define BIAS_MAX       0.01

/* An emulator affords a hundredth of the volume; the bound of 6 standard errors stays. */
static double wanted_error(void)
{
    return test_is_emulated() ? 0.02 : 0.002;
}

struct site {
    char name[32];
    double size;
    double probability;
    uint64_t count;        /* of a run */
    double objects_sum;    /* over all runs */
    double standard_error; /* of the mean over all runs, relative */
};

/* `count_max` keeps small sizes within the time that there is. */
static void plan(struct site *sites, double interval, double count_max)
{
    for (int i = 0; i < SITES; i++) {
        struct site *site = &sites[i];
        site->size = (double)(8ul << i);
        snprintf(site->name, sizeof(site->name), "site_%.0f", site->size);
        site->probability = -expm1(-site->size / interval);
        double odds = (1 - site->probability) / site->probability;
        double count = ceil(odds / (RUNS * wanted_error() * wanted_error()));
        site->count = (uint64_t)fmin(fmax(count, 2000), count_max);
        site->standard_error = sqrt(odds / ((double)site->count * RUNS));
        site->objects_sum = 0;
        ck_assert_double_ge((double)site->count * site->probability, 30);
    }
}

static double divergence(double x, double p)
{
    double y = 1 - x, q = 1 - p;
    return (x > 0 ? x * log(x / p) : 0) + (y > 0 ? y * log(y / q) : 0);
}

static void expect_site(struct site *site, const struct profile *profile)
{
    double objects = (double)profile_self(profile, ALLOC_OBJECTS, site->name);
    double bytes = (double)profile_self(profile, ALLOC_BYTES, site->name);
    double count = (double)site->count;
    /* Both come from one weight: they differ by roundings only. */
    ck_assert_msg(fabs(bytes - objects * site->size) <= site->size + bytes * 1e-5,
                  "%s: %.0f objects but %.0f bytes", site->name, objects, bytes);
    double share = fmin(objects / count * site->probability, 1);
    ck_assert_msg(count * divergence(share, site->probability) <= SITE_LOG_ALARM,
                  "%s: %.0f objects, truth %.0f, expected samples %.1f", site->name, objects, count,
                  count * site->probability);
    site->objects_sum += objects;
}

static void expect_mean(const char *name, double ratio, double standard_error)
{
    double bound = fmax(BIAS_MAX + 2 * standard_error, 6 * standard_error);
    fprintf(stderr, "%-14s mean %.5f of the truth, standard error %.5f\n", name, ratio,
            standard_error);
    ck_assert_msg(fabs(ratio - 1) <= bound, "%s: mean %.5f of the truth, standard error %.5f", name,
                  ratio, standard_error);
}

static void expect_means(const struct site *sites)
{
    double truth = 0, sum = 0, variance = 0;
    for (int i = 0; i < SITES; i++) {
        const struct site *site = &sites[i];
        double bytes = (double)site->count * RUNS * site->size;
        expect_mean(site->name, site->objects_sum / ((double)site->count * RUNS),
                    site->standard_error);
        truth += bytes;
        sum += site->objects_sum * site->size;
        variance += pow(bytes * site->standard_error, 2);
    }
    ck_assert_double_le(sqrt(variance) / truth, wanted_error());
    expect_mean("all bytes", sum / truth, sqrt(variance) / truth);
}

static void expect_truth(struct site *sites, const char *const *environment)
{
    char counts[SITES][24];
    const char *arguments[SITES + 1] = {NULL};
    for (int i = 0; i < SITES; i++) {
        snprintf(counts[i], sizeof(counts[i]), "%lu", (unsigned long)sites[i].count);
        arguments[i] = counts[i];
    }
    for (int done = 0; done < RUNS; done += AT_A_TIME) {
        struct run runs[AT_A_TIME];
        for (int i = 0; i < AT_A_TIME; i++)
            run_start(&runs[i], &(struct run_request){.program = "sites",
                                                      .arguments = arguments,
                                                      .environment = environment});
        for (int i = 0; i < AT_A_TIME; i++) {
            struct profile profile;
            run_wait(&runs[i]);
            run_expect_quiet_success(&runs[i]);
            profile_load(&profile, runs[i].profiles, "heap", runs[i].pid);
            for (int k = 0; k < SITES; k++)
                expect_site(&sites[k], &profile);
            profile_free(&profile);
            run_free(&runs[i]);
        }
    }
    expect_means(sites);
}

START_TEST(test_default_interval)
{
    struct site sites[SITES];
    plan(sites, 512 * 1024, 5e7);
    /* The default one; set, so that it is kept whatever it costs. */
    expect_truth(
        sites, (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=512KiB", NULL});
}
END_TEST

START_TEST(test_small_interval)
{
    struct site sites[SITES];
    plan(sites, 64 * 1024, 1e9);
    expect_truth(
        sites, (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=64KiB", NULL});
}
END_TEST

/* Lines "self|under FUNCTION OBJECTS BYTES"; a function's name may have spaces. */
static int expect_exact(char *line, const struct profile *profile)
{
    char *end_of_bytes, *bytes_at = strrchr(line, ' ');
    ck_assert_ptr_nonnull(bytes_at);
    *bytes_at = 0;
    char *objects_at = strrchr(line, ' ');
    ck_assert_ptr_nonnull(objects_at);
    *objects_at = 0;
    bool self = strncmp(line, "self ", 5) == 0;
    ck_assert(self || strncmp(line, "under ", 6) == 0);
    const char *name = strchr(line, ' ') + 1;
    int64_t objects = strtoll(objects_at + 1, NULL, 10);
    int64_t bytes = strtoll(bytes_at + 1, &end_of_bytes, 10);
    ck_assert_int_eq(*end_of_bytes, 0);
    int64_t objects_seen = self ? profile_self(profile, ALLOC_OBJECTS, name)
                                : profile_under(profile, ALLOC_OBJECTS, name);
    int64_t bytes_seen =
        self ? profile_self(profile, ALLOC_BYTES, name) : profile_under(profile, ALLOC_BYTES, name);
    bool good = objects_seen == objects && bytes_seen == bytes;
    if (!good)
        fprintf(stderr, "%s: %lld objects, %lld bytes; truth %lld, %lld\n", name,
                (long long)objects_seen, (long long)bytes_seen, (long long)objects,
                (long long)bytes);
    return good ? 0 : 1;
}

static void expect_all_exact(const char *program, int sites)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = program,
                          .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "heap", run.pid);
    int seen = 0, wrong = 0;
    for (char *rest = run.out, *line; (line = strtok_r(NULL, "\n", &rest)); seen++)
        wrong += expect_exact(line, &profile);
    ck_assert_int_eq(seen, sites);
    ck_assert_msg(wrong == 0, "%d sites of %s are not exact", wrong, program);
    if (profile_whole_share(&profile, ALLOC_OBJECTS) < 1) {
        profile_print(&profile, ALLOC_OBJECTS, true, 3);
        ck_abort_msg("stacks of %s are not whole", program);
    }
    profile_free(&profile);
    run_free(&run);
}

START_TEST(test_interval_1_is_exact_in_c)
{
    expect_all_exact("alloc_exact", 23);
}
END_TEST

START_TEST(test_interval_1_is_exact_in_cc)
{
    expect_all_exact("new_exact", 8);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("truth_alloc");
    TCase *tcase = tcase_create("against numbers of allocations");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_default_interval);
    tcase_add_test(tcase, test_small_interval);
    tcase_add_test(tcase, test_interval_1_is_exact_in_c);
    tcase_add_test(tcase, test_interval_1_is_exact_in_cc);
    suite_add_tcase(suite, tcase);
    return suite;
}
