/* The live heap at every flush, each allocation recorded: exact to the object and the byte at 1,000
 * sites while the program's threads stand still, and between what it must be and what it can be
 * where the flush is under way while they run (prog_heap_flushes.cc tells both sides). */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/heap_site_of.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SEEDS = 20, ROUNDS = 2, FLUSHES = 2 * ROUNDS };

struct sum {
    int64_t objects, bytes;
};

static struct site {
    struct sum least, most, seen;
} sites[FLUSHES][SITES];

static void read_truth(char *text)
{
    int lines = 0;
    for (char *rest = text, *line; (line = strtok_r(NULL, "\n", &rest));) {
        int flush, number;
        long long n[4];
        if (strncmp(line, "at ", 3) != 0)
            continue;
        ck_assert_int_eq(sscanf(line, "at %d %d %lld %lld %lld %lld", &flush, &number, &n[0], &n[1],
                                &n[2], &n[3]),
                         6);
        sites[flush][number] = (struct site){{n[0], n[1]}, {n[2], n[3]}, {0, 0}};
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

START_TEST(test_every_flush_is_exact)
{
    int64_t failed = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        struct run run;
        struct profile profile;
        char seed_text[16], rounds_text[16];
        snprintf(seed_text, sizeof(seed_text), "%d", seed);
        snprintf(rounds_text, sizeof(rounds_text), "%d", ROUNDS);
        run_program(&run, &(struct run_request){
                              .program = "heap_flushes",
                              .arguments = (const char *[]){seed_text, rounds_text, NULL},
                              .environment =
                                  (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_PERIOD=0",
                                                   "LIBAGENT_PROFILES=heap", NULL}});
        run_expect_quiet_success(&run);
        failed += run_number(&run, "failed");
        profile_load(&profile, run.profiles, "heap", run.pid);
        ck_assert_uint_ge(profile.file_count, FLUSHES);
        ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
        ck_assert_int_eq(profile_figure(&profile, "live heap: samples dropped: tables full"), 0);
        read_truth(run.out);
        read_seen(&profile);
        for (int flush = 0; flush < FLUSHES; flush++)
            judge_flush(seed, flush);
        profile_free(&profile);
        run_free(&run);
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

Suite *suite(void)
{
    Suite *suite = suite_create("heap_flushes");
    TCase *tcase = tcase_create("against what lives");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_every_flush_is_exact);
    suite_add_tcase(suite, tcase);
    return suite;
}
