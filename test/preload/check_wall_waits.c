/* No wait of a program's is ended by the agent, however it is sampled, 1,000 times a second, on the
 * wall too: but by the signals of sigprof and sigalrm, which say so (EINTR). WALL_WAITS_SECONDS:
 * how long each way is tried (make waits: 60). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const char *const kinds[] = {"nanosleep", "usleep",        "poll",       "epoll_wait",
                                    "select",    "sem_timedwait", "futex",      "sigtimedwait",
                                    "recv",      "connect",       "semtimedop", "io_getevents",
                                    "msgrcv",    "semop",         "turns",      "turns-too"};

static const struct way {
    const char *scheduler, *profiles;
    bool has_wall, has_signals;
} ways[] = {
    {"auto", "cpu,wall", .has_wall = true},
    {"auto", "wall", .has_wall = true},
    {"event", "cpu,wall", .has_wall = true},
    {"sleep", "cpu,wall", .has_wall = true},
    {"cputimer", "cpu", .has_wall = false},
    {"sigprof", "cpu", .has_signals = true},
    {"sigalrm", "cpu,wall", .has_wall = true, .has_signals = true},
};

static const char *seconds(void)
{
    const char *text = getenv("WALL_WAITS_SECONDS");
    return text ? text : "3";
}

static int64_t ended(const struct run *run, const char *kind, const char *how)
{
    char key[64];
    snprintf(key, sizeof(key), "%s-%s", kind, how);
    return run_number(run, key);
}

/* `interrupted`: the number of those that were, of the waits that are returned. */
static int64_t expect_waits(const struct run *run, const struct way *way, int64_t *interrupted)
{
    int64_t waits = 0;
    *interrupted = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int64_t count = run_number(run, kinds[i]);
        int64_t by_signal = ended(run, kinds[i], "interrupted");
        waits += count;
        *interrupted += by_signal;
        ck_assert_int_ge(count, 20);
        ck_assert_msg(way->has_signals || by_signal == 0, "%s: %lld of %lld interrupted", kinds[i],
                      (long long)by_signal, (long long)count);
        /* None that does not say so. */
        ck_assert_msg(ended(run, kinds[i], "early") <= by_signal, "%s: %lld of %lld early",
                      kinds[i], (long long)ended(run, kinds[i], "early"), (long long)count);
        ck_assert_msg(ended(run, kinds[i], "failed") == 0, "%s: %lld of %lld failed", kinds[i],
                      (long long)ended(run, kinds[i], "failed"), (long long)count);
    }
    return waits;
}

START_TEST(test_no_wait_is_ended)
{
    const struct way *way = &ways[_i];
    char scheduler[64], profiles[64];
    snprintf(scheduler, sizeof(scheduler), "LIBAGENT_SCHEDULER=%s", way->scheduler);
    snprintf(profiles, sizeof(profiles), "LIBAGENT_PROFILES=%s", way->profiles);
    struct run run;
    run_program(&run, &(struct run_request){.program = "wall_waits",
                                            .arguments = (const char *[]){seconds(), NULL},
                                            .environment = (const char *[]){
                                                scheduler, profiles, "LIBAGENT_FREQUENCY=1000",
                                                "LIBAGENT_PERIOD=1s", NULL}});
    run_expect_quiet_success(&run);
    int64_t interrupted, waits = expect_waits(&run, way, &interrupted);
    /* They were looked at. */
    const char *name = strstr(way->profiles, "cpu") ? "cpu samples" : "samples of running threads";
    struct profile profile;
    profile_load(&profile, run.profiles, way->has_wall ? "wall" : "cpu", run.pid);
    int64_t read = profile_figure(&profile, "stacks of blocked threads read from outside");
    int64_t samples = profile_figure(&profile, name);
    fprintf(stderr, "%s, %s: %lld waits, %lld ended; %lld %s, %lld stacks read\n", way->scheduler,
            way->profiles, (long long)waits, (long long)interrupted, (long long)samples, name,
            (long long)read);
    ck_assert_int_ge(samples, 20 * atoi(seconds()));
    if (way->has_wall)
        ck_assert_int_ge(read, 200 * atoi(seconds()));
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("wall_waits");
    TCase *tcase = tcase_create("waits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_no_wait_is_ended, 0, sizeof(ways) / sizeof(ways[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
