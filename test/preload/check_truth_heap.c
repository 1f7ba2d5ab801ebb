/* The live heap against what is known to live.
 *
 * The bound is heap_bound.h's; with log(2 / 5e-11) that is one false alarm in a million runs of the
 * suite, over 20 seeds and 1,000 sites. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/heap_bound.h"
#include "test/preload/heap_site_of.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SEEDS = 20, SAMPLES_MIN = 30 };

#define LOG_ALARM 24.4 /* log(2 / 5e-11) */
#define BIAS_MAX  0.01

struct site {
    double objects, bytes, samples, variance, largest, spread; /* of the truth */
    double objects_seen, bytes_seen;
};

static struct site sites[SITES];

static void read_truth(struct run *run)
{
    memset(sites, 0, sizeof(sites));
    for (char *rest = run->out, *line; (line = strtok_r(NULL, "\n", &rest));) {
        int i, j, k;
        struct site site = {0};
        ck_assert_int_eq(sscanf(line, "site %d %d %d %lf %lf %lf %lf %lf %lf", &i, &j, &k,
                                &site.objects, &site.bytes, &site.samples, &site.variance,
                                &site.largest, &site.spread),
                         9);
        sites[(i * WAYS + j) * WAYS + k] = site;
    }
}

/* Of the last window. Returns the bytes of no site. */
static double read_seen(const struct profile *profile)
{
    double others = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if (stack->file + 1 != profile->file_count)
            continue;
        int number = heap_site_of(stack);
        if (number < 0) {
            others += (double)stack->values[LIVE_BYTES];
            continue;
        }
        struct site *site = &sites[number];
        site->objects_seen += (double)stack->values[LIVE_OBJECTS];
        site->bytes_seen += (double)stack->values[LIVE_BYTES];
    }
    return others;
}

static void run_truth(struct run *run, int seed, const char *interval, const char *operations,
                      const char *places)
{
    char seed_text[16], variable[64];
    snprintf(seed_text, sizeof(seed_text), "%d", seed);
    snprintf(variable, sizeof(variable), "LIBAGENT_ALLOC_INTERVAL=%s", interval);
    struct profile profile;
    run_program(
        run, &(struct run_request){
                 .program = "heap_truth",
                 .arguments = (const char *[]){seed_text, interval, "8", operations, places, NULL},
                 .environment = (const char *[]){variable, "LIBAGENT_PERIOD=1s",
                                                 "LIBAGENT_PROFILES=alloc,heap", NULL}});
    run_expect_quiet_success(run);
    profile_load(&profile, run->profiles, "heap", run->pid);
    ck_assert_uint_ge(profile.file_count, 1);
    ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
    ck_assert_int_eq(profile_figure(&profile, "live heap: samples dropped: tables full"), 0);
    read_truth(run);
    double others = read_seen(&profile);
    fprintf(stderr, "seed %d: %u windows, %.0f bytes of no site\n", seed, profile.file_count,
            others);
    profile_free(&profile);
    run_free(run);
}

START_TEST(test_interval_1_is_exact)
{
    struct run run;
    int seen = 0, wrong = 0;
    run_truth(&run, _i, "1", "5000", "20000");
    for (int i = 0; i < SITES; i++) {
        const struct site *site = &sites[i];
        seen += site->objects > 0;
        if (site->objects_seen == site->objects && site->bytes_seen == site->bytes)
            continue;
        if (wrong++ < 5)
            fprintf(stderr, "site %d: %.0f objects, %.0f bytes; truth %.0f, %.0f\n", i,
                    site->objects_seen, site->bytes_seen, site->objects, site->bytes);
    }
    ck_assert_int_eq(seen, SITES);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_sampled_sites_are_within_their_bounds)
{
    double truth = 0, seen = 0, variance = 0;
    int judged = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        struct run run;
        run_truth(&run, seed, "256", "50000", "200000");
        for (int i = 0; i < SITES; i++) {
            const struct site *site = &sites[i];
            double bound = heap_bound(site->variance, site->largest, LOG_ALARM);
            truth += site->objects;
            seen += site->objects_seen;
            variance += site->spread;
            ck_assert_msg(fabs(site->bytes_seen - site->bytes) <= bound + site->bytes * 1e-5 + 64,
                          "seed %d, site %d: %.0f bytes, truth %.0f, bound %.0f", seed, i,
                          site->bytes_seen, site->bytes, bound);
            judged += site->samples >= SAMPLES_MIN;
        }
    }
    /* Of objects: of bytes the few large blocks, which are sampled for certain, have nearly all. */
    double error = sqrt(variance) / truth;
    fprintf(stderr, "all objects: %.5f of the truth, standard error %.5f\n", seen / truth, error);
    ck_assert_int_gt(judged, SEEDS * SITES / 2);
    ck_assert_msg(fabs(seen / truth - 1) <= fmax(BIAS_MAX, 6 * error), "%.5f of the truth",
                  seen / truth);
    ck_assert_double_le(error, BIAS_MAX / 6); /* so that the bound is one */
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("truth_heap");
    TCase *tcase = tcase_create("against what lives");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_interval_1_is_exact, 1, 3);
    tcase_add_test(tcase, test_sampled_sites_are_within_their_bounds);
    suite_add_tcase(suite, tcase);
    return suite;
}
