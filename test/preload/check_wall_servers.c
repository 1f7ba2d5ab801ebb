/* Wall profiles of programs as Debian ships them. Of the stacks that their blocked threads were
 * read with from outside, nearly all reach main or the thread's start. Workers of nginx, which
 * changed their user, show no stack: there the last one that was sampled stands, and is marked. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_pair.h"

#define WHOLE_MIN 0.98

static const char *const environment[] = {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_FREQUENCY=250",
                                          "LIBAGENT_PERIOD=1s", "LC_ALL=C", NULL};

static struct run run;
static struct profile profile;

static void run_script(const char *script, const char *const *arguments)
{
    char path[PATH_MAX];
    const char *all[4] = {path};
    run_script_path(script, path);
    for (int i = 0; i < 2 && arguments[i]; i++)
        all[i + 1] = arguments[i];
    run_program(&run, &(struct run_request){.program = run_script_interpreter(script),
                                            .arguments = all,
                                            .environment = environment,
                                            .seconds = 60});
    run_expect_success(&run);
    profile_load(&profile, run.profiles, "wall", 0);
}

static void done(void)
{
    profile_free(&profile);
    run_free(&run);
}

static bool is_blocked(const struct stack *stack)
{
    return strcmp(stack->state, "running") != 0;
}

/* Of blocked stacks: share of `value` in those that are whole, among those with `function`. */
static double whole_share(int value, const char *function, int64_t *all)
{
    int64_t whole = 0;
    *all = 0;
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        if (!is_blocked(stack) || (function && !stack_has(stack, function)))
            continue;
        *all += stack->values[value];
        whole += stack_is_whole(stack) ? stack->values[value] : 0;
    }
    return *all ? (double)whole / (double)*all : 1;
}

static const struct server {
    const char *script, *arguments[3];
    const char *object; /* that its threads wait under */
    int64_t blocked_ms; /* at least */
} servers[] = {
    {"wall_servers.sh", {"redis"}, "redis", 1500},
    {"wall_servers.sh", {"nginx", "root"}, "nginx", 1500},
    {"wall_servers.sh", {"postgres"}, "postgres", 2000},
    {"wall_threads.py", {NULL}, "python3", 8000},
};

START_TEST(test_blocked_stacks_are_whole)
{
    const struct server *server = &servers[_i];
    int64_t samples, ns, under = 0;
    run_script(server->script, server->arguments);
    double by_samples = whole_share(WALL_SAMPLES, NULL, &samples);
    double by_time = whole_share(WALL_NS, NULL, &ns);
    for (size_t i = 0; i < profile.stack_count; i++)
        for (uint32_t k = 0; is_blocked(&profile.stacks[i]) && k < profile.stacks[i].depth; k++)
            if (strstr(profile.stacks[i].frames[k].object, server->object)) {
                under += profile.stacks[i].values[WALL_NS];
                break;
            }
    int64_t read = profile_figure(&profile, "stacks of blocked threads read from outside");
    int64_t broken = profile_figure(
        &profile, "stacks of blocked threads that did not reach main or thread start");
    fprintf(stderr,
            "%s: %lld blocked samples, %.4f whole; %lld ms, %.4f whole, %lld of them in it; "
            "%lld stacks read, %lld broken\n",
            server->object, (long long)samples, by_samples, (long long)ns / 1000000, by_time,
            (long long)under / 1000000, (long long)read, (long long)broken);
    if (by_samples < WHOLE_MIN || by_time < WHOLE_MIN)
        profile_print(&profile, WALL_NS, true, 10);
    ck_assert_double_ge(by_samples, WHOLE_MIN);
    ck_assert_double_ge(by_time, WHOLE_MIN);
    ck_assert_int_ge(samples, 50);
    ck_assert_int_ge(under, server->blocked_ms * 1000000);
    ck_assert_int_ge(read, 50);
    ck_assert_int_le((double)broken, (double)read * (1 - WHOLE_MIN));
    done();
}
END_TEST

/* nginx makes its workers dumpable again after it changed their user. */
START_TEST(test_workers_of_another_user)
{
    if (getuid() != 0)
        return;
    run_script("wall_servers.sh", (const char *[]){"nginx", "nobody", NULL});
    int64_t ns, waiting = 0;
    double whole = whole_share(WALL_NS, "ngx_spawn_process", &ns);
    for (size_t i = 0; i < profile.stack_count; i++)
        if (stack_has(&profile.stacks[i], "ngx_spawn_process") && !profile.stacks[i].approximate &&
            strcmp(profile.stacks[i].state, "epoll_wait") == 0)
            waiting += profile.stacks[i].values[WALL_NS];
    fprintf(stderr, "workers: %lld ms blocked, %.4f with a whole stack, %lld in epoll_wait\n",
            (long long)ns / 1000000, whole, (long long)waiting / 1000000);
    ck_assert_double_ge(whole, WHOLE_MIN);
    ck_assert_int_ge(waiting, 1500000000);
    done();
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("wall_servers");
    TCase *tcase = tcase_create("servers");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_blocked_stacks_are_whole, 0,
                        sizeof(servers) / sizeof(servers[0]));
    tcase_add_test(tcase, test_workers_of_another_user);
    suite_add_tcase(suite, tcase);
    return suite;
}
