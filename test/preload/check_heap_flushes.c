/* The live heap at every flush. Each allocation recorded: exact to the object and the byte at 1,000
 * sites while the program's threads stand still, and between what it must be and what it can be
 * where the flush is under way while they run (prog_heap_flushes.cc tells both sides). With
 * samples: within the bound (heap_bound.h) wherever threads stand still, by callers of ten sites
 * each, so that there are samples enough; 4,000 are judged with log(2 / 2.5e-10), which is one
 * false alarm in a million runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/heap_bound.h"
#include "test/preload/heap_site_of.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SEEDS = 20, ROUNDS = 2, FLUSHES = 2 * ROUNDS };

struct sum {
    int64_t objects, bytes;
};

static struct site {
    struct sum least, most, seen;
    double samples, variance, largest, spread; /* of those that stand still */
} sites[FLUSHES][SITES];

static void read_truth(char *text)
{
    int lines = 0;
    for (char *rest = text, *line; (line = strtok_r(NULL, "\n", &rest));) {
        int flush, number;
        long long n[4];
        struct site site = {.samples = 0};
        if (strncmp(line, "at ", 3) != 0)
            continue;
        ck_assert_int_ge(sscanf(line, "at %d %d %lld %lld %lld %lld %lf %lf %lf %lf", &flush,
                                &number, &n[0], &n[1], &n[2], &n[3], &site.samples, &site.variance,
                                &site.largest, &site.spread),
                         6);
        site.least = (struct sum){n[0], n[1]};
        site.most = (struct sum){n[2], n[3]};
        sites[flush][number] = site;
        lines++;
    }
    ck_assert_int_eq(lines, FLUSHES * SITES);
}

static void read_seen(const struct profile *profile)
{
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        int number = heap_site_of(stack);
        if (number < 0 || stack->file >= FLUSHES)
            continue;
        sites[stack->file][number].seen.objects += stack->values[LIVE_OBJECTS];
        sites[stack->file][number].seen.bytes += stack->values[LIVE_BYTES];
    }
}

/* Objects that must be in flushes while threads run, and that may be. */
static int64_t must, may;

static void judge_flush(int seed, int flush)
{
    bool still = flush % 2 == 1;
    for (int i = 0; i < SITES; i++) {
        const struct site *site = &sites[flush][i];
        ck_assert_msg(
            site->seen.objects >= site->least.objects && site->seen.objects <= site->most.objects &&
                site->seen.bytes >= site->least.bytes && site->seen.bytes <= site->most.bytes,
            "seed %d, flush %d, site %d: %lld objects, %lld bytes; truth %lld to %lld, "
            "%lld to %lld",
            seed, flush, i, (long long)site->seen.objects, (long long)site->seen.bytes,
            (long long)site->least.objects, (long long)site->most.objects,
            (long long)site->least.bytes, (long long)site->most.bytes);
        if (still) {
            ck_assert_int_eq(site->least.bytes, site->most.bytes);
            continue;
        }
        must += site->least.objects > 0 ? site->least.objects : 0;
        may += site->most.objects - site->least.objects;
    }
}

/* Returns how many allocations failed. */
static int64_t run_flushes(int seed, const char *interval, const char *places,
                           const char *operations, const char *labels)
{
    struct run run;
    struct profile profile;
    char texts[2][16], variable[64];
    snprintf(texts[0], sizeof(texts[0]), "%d", seed);
    snprintf(texts[1], sizeof(texts[1]), "%d", ROUNDS);
    snprintf(variable, sizeof(variable), "LIBAGENT_ALLOC_INTERVAL=%s", interval);
    run_program(&run, &(struct run_request){
                          .program = "heap_flushes",
                          .arguments = (const char *[]){texts[0], texts[1], interval, places,
                                                        operations, NULL},
                          .environment = (const char *[]){variable, labels, "LIBAGENT_PERIOD=0",
                                                          "LIBAGENT_PROFILES=heap", NULL}});
    run_expect_quiet_success(&run);
    int64_t failed = run_number(&run, "failed");
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert_uint_ge(profile.file_count, FLUSHES);
    ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
    ck_assert_int_eq(profile_figure(&profile, "live heap: samples dropped: tables full"), 0);
    read_truth(run.out);
    read_seen(&profile);
    profile_free(&profile);
    run_free(&run);
    return failed;
}

START_TEST(test_every_flush_is_exact)
{
    int64_t failed = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        failed += run_flushes(seed, "1", "5000", "300", "LIBAGENT_THREAD_LABELS=1");
        for (int flush = 0; flush < FLUSHES; flush++)
            judge_flush(seed, flush);
    }
    fprintf(stderr,
            "%lld allocations failed; in flushes while threads ran %lld blocks had to be, "
            "%lld could be\n",
            (long long)failed, (long long)must, (long long)may);
    /* That the test tests. */
    ck_assert_int_ge(failed, SEEDS * 20);
    ck_assert_int_ge(must, SEEDS * ROUNDS * SITES / 2);
    ck_assert_int_ge(may, SEEDS);
}
END_TEST

enum { SAMPLES_MIN = 30 };
#define LOG_ALARM 22.8 /* log(2 / 2.5e-10) */

struct total {
    double objects, objects_seen, spread;
    int judged, sampled;
};

static void judge_callers(int seed, int flush, struct total *total)
{
    for (int caller = 0; caller < SITES; caller += WAYS) {
        double truth = 0, seen = 0, samples = 0, variance = 0, largest = 0;
        for (int i = caller; i < caller + WAYS; i++) {
            const struct site *site = &sites[flush][i];
            truth += (double)site->least.bytes;
            seen += (double)site->seen.bytes;
            samples += site->samples;
            variance += site->variance;
            largest = fmax(largest, site->largest);
            total->objects += (double)site->least.objects;
            total->objects_seen += (double)site->seen.objects;
            total->spread += site->spread;
        }
        double bound = heap_bound(variance, largest, LOG_ALARM) + truth * 1e-5 + 64;
        ck_assert_msg(fabs(seen - truth) <= bound,
                      "seed %d, flush %d, caller %d: %.0f bytes, truth %.0f, bound %.0f", seed,
                      flush, caller, seen, truth, bound);
        total->judged++;
        total->sampled += samples >= SAMPLES_MIN;
    }
}

START_TEST(test_sampled_flushes_are_within_their_bounds)
{
    struct total total = {.judged = 0};
    for (int seed = 1; seed <= SEEDS; seed++) {
        /* A row for each site, not for each of its threads: rows are whole objects. */
        run_flushes(seed, "24", "20000", "1500", "LIBAGENT_THREAD_LABELS=0");
        for (int flush = 1; flush < FLUSHES; flush += 2)
            judge_callers(seed, flush, &total);
    }
    /* The flushes of one seed have blocks in common: as if they were the same. */
    double error = sqrt(total.spread * ROUNDS) / total.objects;
    double ratio = total.objects_seen / total.objects;
    fprintf(stderr, "%d callers, %d with %d samples; all objects: %.5f, standard error %.5f\n",
            total.judged, total.sampled, SAMPLES_MIN, ratio, error);
    ck_assert_int_gt(total.sampled, total.judged * 9 / 10);
    ck_assert_double_le(fabs(ratio - 1), 0.01);
    ck_assert_double_le(error, 0.01 / 6); /* so that this is no chance */
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_flushes");
    TCase *tcase = tcase_create("against what lives");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_every_flush_is_exact);
    tcase_add_test(tcase, test_sampled_flushes_are_within_their_bounds);
    suite_add_tcase(suite, tcase);
    return suite;
}
