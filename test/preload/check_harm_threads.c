/* Many threads, and threads that do much when they end: as without us, nothing of theirs is lost,
 * and nothing of ours is left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void start_case(struct run *run, const char *name, bool with_agent)
{
    run_start(
        run, &(struct run_request){.program = "harm_threads",
                                   .arguments = (const char *[]){name, NULL},
                                   .environment = (const char *[]){"LIBAGENT_FREQUENCY=1000", NULL},
                                   .without_agent = !with_agent});
}

/* Takes lines whose key has a "-" out of the output; what is left is the same in each run. */
static char *lasting_output(const struct run *run)
{
    char *text = strdup(run->out), *to = text;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        size_t length = (size_t)(end + 1 - line);
        if (memchr(line, '-', strcspn(line, " ")))
            continue;
        memmove(to, line, length);
        to += length;
    }
    *to = 0;
    return text;
}

/* Compares status, output and error output. */
static void run_both(struct run *with, struct run *without, const char *name)
{
    start_case(with, name, true);
    start_case(without, name, false);
    run_wait(with);
    run_wait(without);
    run_expect_quiet_success(without);
    run_expect_quiet_success(with);
    char *with_agent = lasting_output(with), *alone = lasting_output(without);
    ck_assert_str_eq(with_agent, alone);
    free(with_agent);
    free(alone);
}

static int compare_tids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Threads of the program's; the agent's write the last window, and what threads use at their very
 * end is nobody's. */
static size_t count_threads(const struct profile *profile)
{
    size_t count = 0, used = 0;
    int64_t *tids = calloc(profile->stack_count + 1, sizeof(*tids));
    ck_assert_ptr_nonnull(tids);
    for (size_t i = 0; i < profile->stack_count; i++)
        if (profile->stacks[i].tid && strncmp(profile->stacks[i].thread, "libagent", 8) != 0)
            tids[used++] = profile->stacks[i].tid;
    qsort(tids, used, sizeof(*tids), compare_tids);
    for (size_t i = 0; i < used; i++)
        count += i == 0 || tids[i] != tids[i - 1];
    free(tids);
    return count;
}

static void expect_cpu(const struct profile *profile, int64_t truth, double least)
{
    double share = (double)profile_total(profile, CPU_NS) / (double)truth;
    fprintf(stderr, "CPU time in the profile: %.4f of the process's\n", share);
    ck_assert_double_ge(share, least);
    ck_assert_double_le(share, 1.01);
}

/* Compares the number of tasks and the threads' results; their time is in the profile, of 2 ms
 * each: those that were sampled have their numbers, some hundreds. */
START_TEST(test_thousand_threads_at_once)
{
    struct run with, without;
    struct profile profile;
    run_both(&with, &without, "crowd");
    ck_assert_ptr_nonnull(strstr(without.out, "tasks: 1001\n"));
    profile_load(&profile, with.profiles, "cpu", with.pid);
    ck_assert_uint_ge(count_threads(&profile), 50);
    expect_cpu(&profile, run_number(&with, "process-cpu"), 0.97);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* More threads than there are slots for. Compares results, resident memory, of which a tenth of
 * the threads must have taken all but what the tables grow (58 bytes a thread, within their fixed
 * size), and timers: the main thread's. One after them all is sampled as the first. */
START_TEST(test_forty_thousand_threads_leave_nothing)
{
    struct run with, without;
    struct profile profile;
    run_both(&with, &without, "churn");
    int64_t growth = run_number(&with, "late-rss-kib") - run_number(&with, "early-rss-kib");
    int64_t alone = run_number(&without, "late-rss-kib") - run_number(&without, "early-rss-kib");
    fprintf(stderr, "resident memory grew by %lld KiB, without by %lld\n", (long long)growth,
            (long long)alone);
    ck_assert_int_le(growth, alone + 2048);
    ck_assert_int_eq(run_number(&without, "late-timers"), 0);
    ck_assert_int_le(run_number(&with, "late-timers"), 1);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "last_thread(void*)"), 250000000);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Compares how often destructors ran. Of the four rounds of a key's the last may come after the
 * thread's record was closed: 2 of each thread's 10 ms, which are nobody's then. */
START_TEST(test_destructors_that_compute_and_allocate)
{
    struct run with, without;
    struct profile profile;
    run_both(&with, &without, "destructors");
    ck_assert_ptr_nonnull(strstr(without.out, "rounds of keys: 160, objects: 40\n"));
    profile_load(&profile, with.profiles, "cpu", with.pid);
    expect_cpu(&profile, run_number(&with, "process-cpu"), 0.95);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "destroy_value(void*)"), 0);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "Object::destroy()"), 0);
    profile_free(&profile);
    profile_load(&profile, with.profiles, "heap", with.pid);
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "Object::destroy()"), 0);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* The agent writes for 3 s at most; who is not held up takes some 20 ms. */
enum { EXITS = 30, AT_ONCE = 3 };
static const double exit_limit = 2.5;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Compares status and output of 30 processes that four threads end at once, and their time. What
 * the first thread writes, the others may cut off: a window is there whole, or not at all. */
START_TEST(test_exit_from_four_threads_at_once)
{
    struct run runs[AT_ONCE], without;
    start_case(&without, "exits", false);
    run_wait(&without);
    ck_assert_int_eq(without.status, 51 << 8);
    for (int i = 0; i < EXITS; i += AT_ONCE) {
        double start = now();
        for (int k = 0; k < AT_ONCE; k++)
            start_case(&runs[k], "exits", true);
        for (int k = 0; k < AT_ONCE; k++) {
            struct profile profile;
            run_wait(&runs[k]);
            ck_assert_double_lt(now() - start, exit_limit);
            run_expect_same(&runs[k], &without);
            profile_load(&profile, runs[k].profiles, "cpu", runs[k].pid);
            profile_free(&profile);
            run_free(&runs[k]);
        }
    }
    run_free(&without);
}
END_TEST

/* Threads that have another thread pointer than libc's, none, or that of their creator: they and
 * the memory of their runtime are left alone, and they are sampled once they are found, by a look
 * in the first tenths of a second, or, where nobody is sampled then, at the end of the period. */
START_TEST(test_threads_of_another_runtime)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = "harm_raw_threads",
                          .environment = (const char *[]){_i ? "LIBAGENT_PERIOD=1s" : NULL, NULL}});
    run_expect_quiet_success(&run);
    ck_assert_ptr_nonnull(strstr(run.out, "block is as it was: 1\n"));
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t sampled = profile_under(&profile, CPU_NS, "run");
    int64_t not_sampled = profile_self(&profile, CPU_NS, "[not sampled]");
    fprintf(stderr, "%lld ns of theirs sampled, %lld not, of %lld\n", (long long)sampled,
            (long long)not_sampled, (long long)run_number(&run, "process-cpu"));
    /* They compute for 2.4 s in all, and mostly for far more. */
    ck_assert_int_gt(sampled, 1000000000);
    ck_assert_int_lt(not_sampled, sampled);
    ck_assert_int_ge(profile_figure(&profile, "threads that are not libc's"), 2);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "main"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Threads that have ended before anybody could look for them are in no sample, but not forgotten.
 * Samples are so far from each other that of a thousand runs one has a sample of the main thread,
 * which uses 1 ms, and by which one of them may be found. */
START_TEST(test_threads_too_short_to_be_found)
{
    struct run run;
    struct profile profile;
    run_program(
        &run, &(struct run_request){.program = "harm_raw_threads",
                                    .arguments = (const char *[]){"15", "1", "20000000", NULL},
                                    .environment = (const char *[]){"LIBAGENT_FREQUENCY=1", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_int_ge(profile_self(&profile, CPU_NS, "[threads not seen]"), 270000000);
    expect_cpu(&profile, run_number(&run, "process-cpu"), 0.95);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* But where such threads go on to come they are looked for at each of the kernel's ticks, while the
 * main thread is asleep: a hundredth of a second of each is enough. (The first look is taken where
 * the main thread allocates: on a busy machine the kernel's ticks may all miss it.) What is behind
 * their last samples is told for their outermost frames, and makes up for some that were not found.
 * Where others had the processor, too (the threads took longer than they computed), the kernel's
 * ticks may miss one altogether: four spinning programs left a third nowhere. Without these looks
 * all of it is. */
START_TEST(test_short_threads_that_nobody_told_of)
{
    static const struct {
        const char *count, *ns;
        int64_t ns_in_all;
    } cases[] = {{"100", "10000000", 1000000000}, {"20", "50000000", 1000000000}};
    struct run run;
    struct profile profile;
    run_program(&run,
                &(struct run_request){
                    .program = "harm_raw_threads",
                    .arguments = (const char *[]){cases[_i].count, "1", cases[_i].ns, "25", NULL},
                    .environment = (const char *[]){"LIBAGENT_FREQUENCY=101",
                                                    "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t theirs = profile_under(&profile, CPU_NS, "run");
    int64_t tails = profile_self(&profile, CPU_NS, "[thread end]");
    fprintf(stderr, "theirs: %lld ns, after last samples: %lld, of %lld; first ones: %lld\n",
            (long long)theirs, (long long)tails, (long long)cases[_i].ns_in_all,
            (long long)profile_under(&profile, CPU_NS, "run_first"));
    bool is_alone = run_number(&run, "wall") < cases[_i].ns_in_all / 10 * 11;
    ck_assert_int_ge(theirs, cases[_i].ns_in_all / 100 * (is_alone ? 95 : 25));
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "work"), cases[_i].ns_in_all / 4);
    expect_cpu(&profile, run_number(&run, "process-cpu"), 0.95);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* libc's own are looked for where they come from, as the program's threads may all be asleep from
 * there on. A look finds each within some ticks of the kernel's; half of what they do leaves room
 * for a busy machine. Without it all of it is nowhere. */
START_TEST(test_threads_of_libcs_own)
{
    static const char *const kinds[] = {"timer", "queue"};
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){.program = "harm_notified",
                                            .arguments = (const char *[]){kinds[_i], NULL},
                                            .seconds = 60});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t theirs = profile_under(&profile, CPU_NS, "notified");
    fprintf(stderr, "%s: %lld ns\n", kinds[_i], (long long)theirs);
    ck_assert_int_ge(theirs, 600000000);
    expect_cpu(&profile, run_number(&run, "process-cpu"), 0.95);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Where samples saw it, not what was told for it after its threads' ends. */
static int64_t sampled_under(const struct profile *profile, const char *function)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < profile->stack_count; i++)
        if (stack_has(&profile->stacks[i], function) && !stack_is_pseudo(&profile->stacks[i]))
            sum += profile->stacks[i].values[CPU_NS];
    return sum;
}

/* Those that are made by libc's clone are sampled from their first instruction on, as a pthread is.
 * What is behind a thread's last sample is told for its routine, up to some ticks of the kernel's:
 * so much as these threads take in all, or, of a longer one, as is far below the bound; so a busy
 * machine changes nothing but the share that is in samples, of which a few are sure. */
START_TEST(test_short_threads_of_a_bare_clone)
{
    static const struct {
        const char *frequency, *count, *ns;
        int64_t percent_sampled; /* 0: nothing is sure */
    } cases[] = {
        {"LIBAGENT_FREQUENCY=101", "100", "5000000", 0},
        {"LIBAGENT_FREQUENCY=101", "50", "20000000", 5},
        {"LIBAGENT_FREQUENCY=101", "1", "1000000000", 25},
        {"LIBAGENT_FREQUENCY=1000", "100", "5000000", 0},
        {"LIBAGENT_FREQUENCY=1000", "50", "20000000", 5},
    };
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = "harm_raw_threads",
                          .arguments = (const char *[]){cases[_i].count, "0", cases[_i].ns, NULL},
                          .environment = (const char *[]){cases[_i].frequency, NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t truth = run_number(&run, "process-cpu");
    int64_t theirs = profile_under(&profile, CPU_NS, "run");
    int64_t sampled = sampled_under(&profile, "run");
    fprintf(stderr, "theirs: %.4f, in samples: %.4f\n", (double)theirs / (double)truth,
            (double)sampled / (double)truth);
    ck_assert_int_ge(theirs, truth / 100 * 95);
    ck_assert_int_ge(sampled, truth / 100 * cases[_i].percent_sampled);
    expect_cpu(&profile, truth, 0.98);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Threads that were made by libc itself, past the hook, and come by with an allocation: they are
 * sampled from there on (0.97 of their time alone, 0.948 beside a compiler). */
START_TEST(test_threads_that_come_by_themselves)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){.program = "late_threads"});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t truth = run_number(&run, "threads-cpu");
    int64_t sampled = profile_under(&profile, CPU_NS, "churn");
    fprintf(stderr, "sampled: %.4f\n", (double)sampled / (double)truth);
    ck_assert_int_ge(sampled, truth / 100 * 90);
    expect_cpu(&profile, run_number(&run, "process-cpu"), 0.97);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_thousand_threads_at_once);
    tcase_add_test(tcase, test_forty_thousand_threads_leave_nothing);
    tcase_add_test(tcase, test_destructors_that_compute_and_allocate);
    tcase_add_test(tcase, test_exit_from_four_threads_at_once);
    tcase_add_loop_test(tcase, test_threads_of_another_runtime, 0, 2);
    tcase_add_test(tcase, test_threads_too_short_to_be_found);
    tcase_add_loop_test(tcase, test_short_threads_that_nobody_told_of, 0, 2);
    tcase_add_loop_test(tcase, test_threads_of_libcs_own, 0, 2);
    tcase_add_loop_test(tcase, test_short_threads_of_a_bare_clone, 0, 5);
    tcase_add_test(tcase, test_threads_that_come_by_themselves);
    suite_add_tcase(suite, tcase);
    return suite;
}
