/* heap-growth and heap-peak of whole programs: what leaks is the first line, what does not is none;
 * marks by the function, by the option and by a start; the peak by the agent's thread and by a
 * flush; fork.
 *
 * With samples a site's growth is a sum of independent variables, as heap_bound.h has it, of what
 * is live at the end less what was at the mark (blocks of both cancel, so that the variance is at
 * most that of all). With log(2 / 1e-9), and four sites judged, one in 250 million runs is a false
 * alarm.
 *
 * HEAP_GROWTH_GIB=n: the load allocates so much, at 512 KiB between samples (600 are about a minute
 * under load), in the place of 1 GiB at 16 KiB. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/heap_bound.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SIZE = 1000, LARGE = 100000 };
#define LOG_ALARM 21.5 /* log(2 / 1e-9) */

static void load_family(struct profile *profile, const struct run *run, const char *family)
{
    profile_load(profile, run->profiles, family, run->pid);
    ck_assert_uint_ge(profile->file_count, 1);
}

/* ---- load ---- */

static double expect_growth(const struct run *run, const struct profile *profile, const char *site)
{
    double truth, variance, largest;
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "%s %%lf %%lf %%lf", site);
    const char *line = strstr(run->out, site);
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(sscanf(line, pattern, &truth, &variance, &largest), 3);
    double seen = (double)profile_last_self(profile, LIVE_BYTES, site);
    double bound = heap_bound(variance, largest, LOG_ALARM);
    fprintf(stderr, "%s grew by %.0f bytes, truth %.0f, bound %.0f\n", site, seen, truth, bound);
    ck_assert_msg(fabs(seen - truth) <= bound + 64, "%s: %.0f bytes, truth %.0f, bound %.0f", site,
                  seen, truth, bound);
    return seen;
}

static bool last_says(const struct profile *profile, const char *text)
{
    const Perftools__Profiles__Profile *last = profile->files[profile->file_count - 1];
    for (size_t i = 0; i < last->n_comment; i++)
        if (strstr(last->string_table[last->comment[i]], text))
            return true;
    return false;
}

/* The growth's profile. Where nothing has grown there is none: the window's says that it was looked
 * for. */
static void run_load(struct run *run, struct profile *profile, const char *way)
{
    const char *gib = getenv("HEAP_GROWTH_GIB");
    const char *interval = gib ? "524288" : "16384";
    char variable[64], bytes[32];
    snprintf(variable, sizeof(variable), "LIBAGENT_ALLOC_INTERVAL=%s", interval);
    snprintf(bytes, sizeof(bytes), "%lld", (gib ? atoll(gib) : 1) << 30);
    run_program(run, &(struct run_request){
                         .program = "heap_growth",
                         .arguments = (const char *[]){way, interval, bytes, NULL},
                         .environment = (const char *[]){variable, "LIBAGENT_PERIOD=0", NULL}});
    run_expect_quiet_success(run);
    load_family(profile, run, "heap");
    ck_assert(last_says(profile, "heap-growth counts from a mark"));
    profile_free(profile);
    profile_load(profile, run->profiles, "heap-growth", run->pid);
}

START_TEST(test_a_leak_is_the_first_line)
{
    struct run run;
    struct profile profile;
    run_load(&run, &profile, "leak");
    double leaked = expect_growth(&run, &profile, "site_once");
    double others = expect_growth(&run, &profile, "site_load");
    ck_assert_double_gt(leaked, others);
    for (size_t i = 0; i < profile.stack_count; i++)
        ck_assert(strcmp(profile.stacks[i].frames[0].function, "site_once") == 0 ||
                  profile.stacks[i].values[LIVE_BYTES] < leaked);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_without_a_leak_nothing_grows)
{
    struct run run;
    struct profile profile;
    run_load(&run, &profile, "steady");
    expect_growth(&run, &profile, "site_once");
    expect_growth(&run, &profile, "site_load");
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* ---- exact ---- */

static void run_way(struct run *run, const char *way, const char *option)
{
    run_program(run, &(struct run_request){.program = "heap_growth",
                                           .arguments = (const char *[]){way, NULL},
                                           .environment = (const char *[]){
                                               "LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_LOG=debug",
                                               "LIBAGENT_LOG_FILE=agent.log",
                                               option ? option : "NO_OPTION=", NULL}});
    run_expect_quiet_success(run);
}

static void expect_blocks(const struct profile *profile, const char *site, int64_t blocks,
                          int64_t size)
{
    int64_t seen = profile_last_self(profile, LIVE_OBJECTS, site);
    ck_assert_msg(seen == blocks, "%s: %lld objects, truth %lld", site, (long long)seen,
                  (long long)blocks);
    ck_assert_int_eq(profile_last_self(profile, LIVE_BYTES, site), blocks * size);
}

START_TEST(test_growth_counts_from_the_last_mark)
{
    static const struct {
        const char *way, *option, *says;
        int64_t before;
    } ways[] = {
        {"mark", NULL, "from a mark", -40},
        {"option", "LIBAGENT_HEAP_MARK=200ms", "from a mark", -40},
        {"restart", "LIBAGENT_PROFILES=cpu,heap-growth", "from a mark", -40},
        {"start", "LIBAGENT_PROFILES=heap-growth", "from the start", 60},
    };
    struct run run;
    struct profile profile;
    run_way(&run, ways[_i].way, ways[_i].option);
    load_family(&profile, &run, "heap-growth");
    expect_blocks(&profile, "site_before", ways[_i].before, SIZE);
    expect_blocks(&profile, "site_after", 60, SIZE);
    ck_assert(last_says(&profile, ways[_i].says));
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_without_being_asked_for_there_are_no_such_files)
{
    struct run run;
    run_way(&run, "start", NULL);
    ck_assert_uint_ge(run_file_count(&run, ".heap.pb.gz"), 1);
    ck_assert_uint_eq(run_file_count(&run, ".heap-growth.pb.gz"), 0);
    ck_assert_uint_eq(run_file_count(&run, ".heap-peak.pb.gz"), 0);
    run_free(&run);
    run_way(&run, "start", "LIBAGENT_PROFILES=heap-growth,heap-peak");
    ck_assert_uint_eq(run_file_count(&run, ".heap.pb.gz"), 0);
    ck_assert_uint_eq(run_file_count(&run, ".heap-growth.pb.gz"), 1);
    ck_assert_uint_eq(run_file_count(&run, ".heap-peak.pb.gz"), 1);
    run_free(&run);
}
END_TEST

START_TEST(test_a_mark_without_a_live_heap_is_told)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "recursion",
                          .arguments = (const char *[]){"malloc", "300", "main", NULL},
                          .environment = (const char *[]){"LIBAGENT_HEAP_MARK=10ms",
                                                          "LIBAGENT_PROFILES=cpu,alloc", NULL}});
    run_expect_success(&run);
    ck_assert_str_eq(run.err, "libagent: warn: LIBAGENT_HEAP_MARK is of the live heap, which "
                              "LIBAGENT_PROFILES leaves out: add heap or heap-growth\n");
    run_free(&run);
}
END_TEST

START_TEST(test_a_child_keeps_the_mark)
{
    struct run run;
    struct profile profile;
    run_way(&run, "fork", "LIBAGENT_PROFILES=cpu,alloc,heap");
    load_family(&profile, &run, "heap-growth");
    expect_blocks(&profile, "site_before", -40, SIZE);
    expect_blocks(&profile, "site_after", 60, SIZE);
    expect_blocks(&profile, "site_child", 0, SIZE);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap-growth", (int)run_number(&run, "child"));
    expect_blocks(&profile, "site_before", -40, SIZE);
    expect_blocks(&profile, "site_after", 60, SIZE);
    expect_blocks(&profile, "site_child", 5, SIZE);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* By the agent's thread, which was rung for, and by a flush. What is kept is within a twentieth. */
START_TEST(test_the_peak_is_shown_when_it_is_over)
{
    struct run run;
    struct profile profile;
    run_way(&run, _i ? "flushed" : "peak", "LIBAGENT_PROFILES=heap,heap-peak");
    load_family(&profile, &run, "heap");
    expect_blocks(&profile, "site_peak", 0, LARGE);
    expect_blocks(&profile, "site_after", 10, LARGE);
    profile_free(&profile);
    load_family(&profile, &run, "heap-peak");
    int64_t seen = profile_last_self(&profile, LIVE_OBJECTS, "site_peak");
    ck_assert_int_ge(seen, 60 * 100 / 105);
    ck_assert_int_le(seen, 60);
    expect_blocks(&profile, "site_peak", seen, LARGE);
    expect_blocks(&profile, "site_after", 0, LARGE);
    const uint32_t files = profile.file_count;
    profile.file_count = 1; /* each says it */
    int64_t highest = profile_figure(&profile, "heap-peak, highest estimate of live bytes");
    int64_t taken = profile_figure(&profile, "heap-peak, live bytes when it was taken");
    profile.file_count = files;
    ck_assert_int_ge(highest, 60 * LARGE);
    ck_assert_int_le(taken, highest);
    ck_assert_int_gt(taken * 105, highest * 100 - 105);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_growth");
    TCase *tcase = tcase_create("whole programs");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_a_leak_is_the_first_line);
    tcase_add_test(tcase, test_without_a_leak_nothing_grows);
    tcase_add_loop_test(tcase, test_growth_counts_from_the_last_mark, 0, 4);
    tcase_add_test(tcase, test_without_being_asked_for_there_are_no_such_files);
    tcase_add_test(tcase, test_a_mark_without_a_live_heap_is_told);
    tcase_add_test(tcase, test_a_child_keeps_the_mark);
    tcase_add_loop_test(tcase, test_the_peak_is_shown_when_it_is_over, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
