/* The public functions: start, stop and flush by the program, what a start knows of the time before
 * it, and every way out while the agent is in each state of its life. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

static void run(struct run *run, const char *program, const char *const *arguments,
                const char *const *environment, bool without_agent)
{
    run_program(run, &(struct run_request){.program = program,
                                           .arguments = arguments,
                                           .environment = environment,
                                           .without_agent = without_agent});
}

static int64_t seen(const struct run *run, const char *folder, const char *function)
{
    struct profile profile;
    profile_load(&profile, folder, "cpu", run->pid);
    int64_t ns = profile_under(&profile, CPU_NS, function);
    profile_free(&profile);
    return ns;
}

/* Allocations are sampled whatever the machine does meanwhile. */
static int64_t allocated(const struct run *run, int pid, const char *function)
{
    struct profile profile;
    profile_load(&profile, run->profiles, "heap", pid);
    int64_t bytes = profile_under(&profile, ALLOC_BYTES, function);
    profile_free(&profile);
    return bytes;
}

/* ---- the functions ---- */

/* With the agent what lies between stop and start is not seen, without it nothing is called. Of the
 * 0.3 s that each part takes some are sampled on any machine. */
START_TEST(test_a_program_runs_alike_without_the_agent)
{
    struct run with, without;
    run(&with, "api", NULL, NULL, false);
    run(&without, "api", NULL, NULL, true);
    run_expect_quiet_success(&without);
    run_expect_same(&with, &without);
    ck_assert_int_gt(seen(&with, with.profiles, "work_before"), 0);
    ck_assert_int_eq(seen(&with, with.profiles, "work_between"), 0);
    ck_assert_int_gt(seen(&with, with.profiles, "work_after"), 0);
    ck_assert_uint_eq(run_file_count(&without, ""), 0);
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_starts_and_stops_are_counted)
{
    static const char errors[] =
        "libagent: error: libagent_start: frequenzy is not an option\n"
        "libagent: error: libagent_start: LIBAGENT_FREQUENCY=0 is not understood: it takes a whole "
        "number from 1 to 10000\n"
        "libagent: error: libagent_start: LIBAGENT_PROCESSES can be set in the environment only\n"
        "libagent: error: libagent_start: LIBAGENT_FREQUENCY=0 is not understood: it takes a whole "
        "number from 1 to 10000\n"
        "libagent: warn: libagent_start: options are not used where others have started it, or "
        "LIBAGENT_START is not manual: frequency=1; others like it are not told\n";
    static const struct {
        const char *call;
        int64_t result;
    } expected[] = {
        {"same", 1},
        {"version", 0},
        {"second-start", 1},
        {"first-stop", 1},
        {"last-stop", 0},
        {"stop-too-many", -EALREADY},
        {"flush-while-off", -ENOTCONN},
        {"unknown", -EINVAL},
        {"wrong", -EINVAL},
        {"fixed", -EINVAL},
        {"still-none", -EALREADY},
        {"start", 0},
        {"wrong-while-on", -EINVAL},
        {"unused-while-on", 1},
        {"of-three", 1},
        {"unused-again", 1},
        {"of-two", 1},
        {"stop", 0},
    };
    struct run with;
    run(&with, "api", (const char *[]){"count", NULL}, NULL, false);
    run_expect_success(&with);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        ck_assert_msg(run_number(&with, expected[i].call) == expected[i].result, "%s",
                      expected[i].call);
    ck_assert_str_eq(with.err, errors);
    run_free(&with);
}
END_TEST

/* Before the first start there is no file, no thread, and no time is seen afterwards. */
START_TEST(test_a_manual_start_waits_for_the_program)
{
    struct run with;
    run(&with, "api", (const char *[]){"manual", NULL},
        (const char *[]){"LIBAGENT_START=manual", NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "stop-too-many"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "start"), 0);
    ck_assert_int_eq(run_number(&with, "flush"), 0);
    ck_assert_int_eq(run_number(&with, "stop"), 0);
    ck_assert_int_eq(seen(&with, with.profiles, "work_before"), 0);
    ck_assert_int_gt(seen(&with, with.profiles, "work_between"), 0);
    ck_assert_int_eq(seen(&with, with.profiles, "work_after"), 0);
    run_free(&with);
}
END_TEST

/* A process that is not to be profiled is not by libagent_start either. */
START_TEST(test_a_process_that_is_left_out_is_not_started)
{
    static const char *const ways[] = {"LIBAGENT_ENABLED=0", "LIBAGENT_PROCESSES=other"};
    struct run with;
    run(&with, "api", (const char *[]){"manual", NULL}, (const char *[]){ways[_i], NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "start"), -ESHUTDOWN);
    ck_assert_int_eq(run_number(&with, "flush"), -ENOTCONN);
    run_expect_no_file(&with);
    run_free(&with);
}
END_TEST

/* ---- what a start knows ---- */

/* RESTART_LONG=1 (make restarts): 5 s on, 5 s off, 1 s on; else 1, 1, 0.5. */
static const char *const *restart_times(void)
{
    static const char *const times[] = {"5000", "5000", "1000", NULL};
    return getenv("RESTART_LONG") ? times : NULL;
}

/* A thread's time in the profile of the second run is at most what it took of the processor in it:
 * the program reads clocks before the start and after the stop, so there is no tolerance. Those
 * that ran (0.1 s at least) are seen. */
START_TEST(test_a_start_knows_nothing_of_the_time_before)
{
    static const char *const kinds[] = {"running", "blocked", "born", "main"};
    struct run with;
    struct profile profile;
    char folder[PATH_MAX + 16], key[32];
    run(&with, "restart", restart_times(), (const char *[]){"LIBAGENT_ALLOC_INTERVAL=64KiB", NULL},
        false);
    run_expect_quiet_success(&with);
    snprintf(folder, sizeof(folder), "%s/second", with.folder);
    profile_load(&profile, folder, "cpu", with.pid);
    int64_t all = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        snprintf(key, sizeof(key), "%s-tid", kinds[i]);
        int64_t of_profile = profile_of_tid(&profile, CPU_NS, run_number(&with, key));
        snprintf(key, sizeof(key), "%s-ns", kinds[i]);
        int64_t spent = run_number(&with, key);
        fprintf(stderr, "%s: %lld of %lld ns\n", kinds[i], (long long)of_profile, (long long)spent);
        ck_assert_int_le(of_profile, spent);
        if (strcmp(kinds[i], "blocked") == 0)
            ck_assert_int_lt(spent, 1000000);
        else
            ck_assert_int_gt(of_profile, spent / 2);
        all += of_profile;
    }
    ck_assert_int_eq(profile_of_tid(&profile, CPU_NS, run_number(&with, "dead-tid")), 0);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "spin_until_end") > 0, 1);
    /* All else is our threads' own. */
    ck_assert_int_eq(profile_total(&profile, CPU_NS) - all,
                     profile_of_thread(&profile, CPU_NS, "libagent") +
                         profile_of_thread(&profile, CPU_NS, "libagent-up"));
    profile_free(&profile);
    profile_load(&profile, folder, "heap", with.pid);
    ck_assert_int_gt(profile_of_tid(&profile, ALLOC_BYTES, run_number(&with, "running-tid")), 0);
    ck_assert_int_gt(profile_of_tid(&profile, ALLOC_BYTES, run_number(&with, "born-tid")), 0);
    profile_free(&profile);
    run_free(&with);
}
END_TEST

/* The same of wall time, which passes alike for all of them: at most what the program measured
 * around the run, and most of that. */
START_TEST(test_a_start_knows_no_wall_time_before_it)
{
    static const char *const kinds[] = {"running", "blocked", "born", "main"};
    struct run with;
    struct profile profile;
    char folder[PATH_MAX + 16], key[32];
    run(&with, "restart", restart_times(), (const char *[]){"LIBAGENT_PROFILES=cpu,wall", NULL},
        false);
    run_expect_quiet_success(&with);
    snprintf(folder, sizeof(folder), "%s/second", with.folder);
    profile_load(&profile, folder, "wall", with.pid);
    /* The one that waits all the time has its name, too. */
    for (size_t i = 0; i < profile.stack_count; i++)
        ck_assert(!profile.stacks[i].tid || profile.stacks[i].thread[0]);
    int64_t passed = run_number(&with, "wall-ns");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        snprintf(key, sizeof(key), "%s-tid", kinds[i]);
        int64_t of_profile = profile_of_tid(&profile, CPU_NS, run_number(&with, key));
        fprintf(stderr, "%s: %lld of %lld ns\n", kinds[i], (long long)of_profile,
                (long long)passed);
        ck_assert_int_le(of_profile, passed);
        ck_assert_int_gt(of_profile, passed / 2);
    }
    ck_assert_int_eq(profile_of_tid(&profile, CPU_NS, run_number(&with, "dead-tid")), 0);
    profile_free(&profile);
    run_free(&with);
}
END_TEST

/* A stop gives up what is still being sent; until that has come to an end no start makes anything
 * anew, as the thread that sends uses it. */
START_TEST(test_a_start_does_not_overtake_the_last_window)
{
    struct run with;
    run(&with, "api", (const char *[]){"start-behind-the-backend", NULL},
        (const char *[]){"LIBAGENT_START=manual", "LIBAGENT_LOG_FILE=log", NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "start"), 0);
    ck_assert_int_eq(run_number(&with, "stop"), -ETIMEDOUT);
    ck_assert_int_eq(run_number(&with, "start-too-early"), -EBUSY);
    ck_assert_int_eq(run_number(&with, "start-later"), 0);
    ck_assert_int_eq(run_number(&with, "stop-later"), 0);
    ck_assert_int_gt(seen(&with, with.profiles, "work_after"), 0);
    run_free(&with);
}
END_TEST

/* ---- ways out, in each state ---- */

static const char *const states[] = {"never", "watched", "stopped", "on", "changing", "resizing"};
enum { STATES = sizeof(states) / sizeof(states[0]) };

/* What starts and stops, where it resizes with other tables each time. */
static bool is_changing(const char *state)
{
    return strcmp(state, "changing") == 0 || strcmp(state, "resizing") == 0;
}

/* A thread of ours stays over stops. */
static bool is_watched(const char *state)
{
    return strcmp(state, "watched") == 0 || strcmp(state, "resizing") == 0;
}

/* It starts by its own call only. Where it is watched there is a thread of ours before that. */
static bool is_manual(const char *state)
{
    return strcmp(state, "never") == 0 || strcmp(state, "watched") == 0;
}

static void run_in_state(struct run *with, const char *state, const char *way, const char *ms)
{
    char path[TEMP_PATH_SIZE], config[TEMP_PATH_SIZE + 32];
    int file = mkstemp(temp_path(path, "config"));
    ck_assert_int_ge(file, 0);
    snprintf(config, sizeof(config), "LIBAGENT_CONFIG=%s", path);
    run(with, "life_states", (const char *[]){state, way, ms, NULL},
        (const char *[]){is_manual(state) ? "LIBAGENT_START=manual" : "LIBAGENT_START=auto",
                         "LIBAGENT_ALLOC_INTERVAL=16KiB", is_watched(state) ? config : NULL, NULL},
        false);
    close(file);
    unlink(path);
    run_expect_quiet_success(with);
}

/* Compares with the same program without the agent, which does not start or stop. */
static void check_way(const char *state, const char *way, const char *ms)
{
    struct run with;
    run_in_state(&with, state, way, ms);
    if (strcmp(way, "exec") == 0)
        ck_assert_str_eq(with.out, "executed\n");
    else if (strcmp(way, "seccomp") == 0)
        ck_assert_str_eq(with.out, "filtered\n");
    else if (strcmp(way, "pause") == 0)
        ck_assert_str_eq(with.out, "end\n");
    else
        ck_assert_str_eq(with.out, "");
    /* What was recorded before is written, whatever comes after. */
    if (!is_manual(state))
        ck_assert_int_gt(allocated(&with, with.pid, "work"), 0);
    run_free(&with);
}

/* While it changes the moment is another one each time. */
static void check_ways(const char *state, const char *way)
{
    static const char *const moments[] = {"0", "3", "10", "31"};
    size_t count = is_changing(state) ? 4 : 1;
    for (size_t i = 0; i < count; i++)
        check_way(state, way, moments[i]);
}

START_TEST(test_exit_in_each_state)
{
    check_ways(states[_i], "exit");
}
END_TEST

START_TEST(test_exec_in_each_state)
{
    check_ways(states[_i], "exec");
}
END_TEST

START_TEST(test_seccomp_in_each_state)
{
    check_ways(states[_i], "seccomp");
}
END_TEST

START_TEST(test_pause_in_each_state)
{
    check_ways(states[_i], "pause");
}
END_TEST

START_TEST(test_fork_in_each_state)
{
    struct run with;
    char key[32];
    run_in_state(&with, states[_i], "fork", "5");
    for (int i = 0; i < 10; i++) {
        struct profile profile;
        snprintf(key, sizeof(key), "child-%d", i);
        int pid = (int)run_number(&with, key);
        ck_assert_int_gt(allocated(&with, pid, "work"), 0);
        profile_load(&profile, with.profiles, "cpu", pid);
        int64_t total = profile_total(&profile, CPU_NS);
        snprintf(key, sizeof(key), "child-ns-%d", i);
        /* Beside the thread that works there are our own. */
        int64_t own = profile_of_thread(&profile, CPU_NS, "libagent") +
                      profile_of_thread(&profile, CPU_NS, "libagent-up");
        /* And what it does after it has told; its parent's would be tens of milliseconds. */
        ck_assert_int_le(total - own, run_number(&with, key) + 1000000);
        profile_free(&profile);
    }
    run_free(&with);
}
END_TEST

START_TEST(test_many_threads_flush_at_once)
{
    struct run with;
    run(&with, "api", (const char *[]){"flush-by-many", NULL},
        (const char *[]){"LIBAGENT_ALLOC_INTERVAL=64KiB", NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "late"), 0);
    run_free(&with);
}
END_TEST

/* The caller is told, and nothing is lost: no line in the log. */
START_TEST(test_a_flush_that_is_too_late_is_no_error)
{
    struct run with;
    run(&with, "api", (const char *[]){"flush-in-no-time", NULL},
        (const char *[]){"LIBAGENT_ALLOC_INTERVAL=64KiB", NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "then"), 0);
    run_free(&with);
}
END_TEST

/* The live heap's tables stay over a stop: its blocks are live still. */
START_TEST(test_a_start_has_room_for_wall_time_after_one_of_the_heap)
{
    struct run with;
    run(&with, "api", (const char *[]){"wall-after-heap", NULL},
        (const char *[]){"LIBAGENT_START=manual", NULL}, false);
    run_expect_quiet_success(&with);
    ck_assert_int_eq(run_number(&with, "wall"), 0);
    ck_assert_uint_eq(run_file_count(&with, ".wall.pb.gz"), 1);
    run_free(&with);
}
END_TEST

/* A start that allows less than what earlier ones have taken keeps their figure, and says so. */
START_TEST(test_a_start_with_less_memory_than_is_in_use_profiles)
{
    struct run with;
    run(&with, "api", (const char *[]){"less-memory", NULL}, NULL, false);
    run_expect_success(&with);
    ck_assert_int_eq(run_number(&with, "large"), 0);
    ck_assert_int_eq(run_number(&with, "small"), 0);
    const char *line =
        "libagent: warn: LIBAGENT_MEMORY: 8388608 bytes are less than what is in use: ";
    ck_assert_msg(strstr(with.err, line) == with.err &&
                      !strstr(with.err + strlen(line), "libagent"),
                  "%s", with.err);
    ck_assert_int_gt(seen(&with, with.profiles, "work_after"), 0);
    run_free(&with);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("api");
    TCase *functions = tcase_create("functions");
    tcase_set_timeout(functions, 120);
    tcase_add_test(functions, test_a_program_runs_alike_without_the_agent);
    tcase_add_test(functions, test_starts_and_stops_are_counted);
    tcase_add_test(functions, test_a_manual_start_waits_for_the_program);
    tcase_add_loop_test(functions, test_a_process_that_is_left_out_is_not_started, 0, 2);
    tcase_add_test(functions, test_a_start_has_room_for_wall_time_after_one_of_the_heap);
    tcase_add_test(functions, test_a_start_with_less_memory_than_is_in_use_profiles);
    tcase_add_test(functions, test_a_start_does_not_overtake_the_last_window);
    tcase_add_test(functions, test_many_threads_flush_at_once);
    tcase_add_test(functions, test_a_flush_that_is_too_late_is_no_error);
    suite_add_tcase(suite, functions);
    TCase *restarts = tcase_create("restarts");
    tcase_set_timeout(restarts, 120);
    tcase_add_test(restarts, test_a_start_knows_nothing_of_the_time_before);
    tcase_add_test(restarts, test_a_start_knows_no_wall_time_before_it);
    suite_add_tcase(suite, restarts);
    TCase *ways = tcase_create("ways out");
    tcase_set_timeout(ways, 120);
    tcase_add_loop_test(ways, test_exit_in_each_state, 0, STATES);
    tcase_add_loop_test(ways, test_exec_in_each_state, 0, STATES);
    tcase_add_loop_test(ways, test_seccomp_in_each_state, 0, STATES);
    tcase_add_loop_test(ways, test_pause_in_each_state, 0, STATES);
    tcase_add_loop_test(ways, test_fork_in_each_state, 0, STATES);
    suite_add_tcase(suite, ways);
    return suite;
}
