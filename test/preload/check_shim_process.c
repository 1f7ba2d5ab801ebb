/* Processes: how they are made, become others, and end. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_pair.h"
#include "test/preload/run_program.h"

/* Much is sampled, so that the agent is met in each state. */
static const char *const often[] = {"LIBAGENT_ALLOC_INTERVAL=1KiB", "LIBAGENT_FREQUENCY=1000",
                                    NULL};

static void expect_same(const char *program, const char *argument)
{
    struct run with, without;
    struct run_request request = {
        .program = program, .arguments = (const char *[]){argument, NULL}, .environment = often};
    run_program(&with, &request);
    request.without_agent = true;
    run_program(&without, &request);
    run_expect_same(&with, &without);
    ck_assert_msg(with.err_size == 0, "%s", with.err);
    run_free(&with);
    run_free(&without);
}

static const char *const fork_shapes[] = {"child",   "nested",  "threads", "in-thread",
                                          "vfork",   "spawn",   "daemon",  "unannounced",
                                          "at-exit", "handlers"};
static const char *const exec_variants[] = {
    "execl",   "execle",   "execlp", "execv",   "execve",         "execvp", "execvpe",
    "fexecve", "execveat", "thread", "blocked", "blocked-thread", "storm",  "missing"};

START_TEST(test_fork)
{
    expect_same("fork", fork_shapes[_i]);
}
END_TEST

START_TEST(test_exec)
{
    expect_same("exec", exec_variants[_i]);
}
END_TEST

START_TEST(test_child_writes_its_own_profile)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "family",
                          .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", NULL}});
    run_expect_quiet_success(&run);
    int child = (int)run_number(&run, "child-pid");
    const struct {
        int pid;
        int64_t cpu;
        const char *own, *other;
        int64_t objects;
    } members[] = {{run.pid, run_number(&run, "parent"), "site_parent", "site_child", 2000},
                   {child, run_number(&run, "child"), "site_child", "site_parent", 1000}};
    for (int i = 0; i < 2; i++) {
        struct profile profile;
        profile_load(&profile, run.profiles, "cpu", members[i].pid);
        ck_assert_uint_eq(profile.file_count, 1);
        ck_assert_ptr_nonnull(strstr(profile.paths[0], ".0000.cpu.pb.gz"));
        double total = (double)profile_total(&profile, CPU_NS), cpu = (double)members[i].cpu;
        ck_assert_msg(total > 0.98 * cpu && total < 1.02 * cpu, "%.0f ns, truth %.0f", total, cpu);
        ck_assert_double_ge((double)profile_under(&profile, CPU_NS, members[i].own), 0.9 * cpu);
        ck_assert_int_eq(profile_under(&profile, CPU_NS, members[i].other), 0);
        /* The rest is the agent's own threads. */
        ck_assert_double_ge((double)profile_of_tid(&profile, CPU_NS, members[i].pid), 0.99 * total);
        profile_free(&profile);
        profile_load(&profile, run.profiles, "heap", members[i].pid);
        ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, members[i].own), members[i].objects);
        ck_assert_int_eq(profile_self(&profile, ALLOC_BYTES, members[i].own),
                         members[i].objects * 100000);
        ck_assert_int_eq(profile_under(&profile, ALLOC_BYTES, members[i].other), 0);
        profile_free(&profile);
    }
    run_free(&run);
}
END_TEST

static const struct {
    const char *way;
    bool writes;
    int64_t objects; /* by work and the handlers */
} exit_ways[] = {
    {"return", true, 1001},
    {"exit", true, 1001},
    {"quick_exit", true, 1001},
    {"pthread_exit", true, 2001},
    {"exit_in_thread", true, 2001},
    {"busy", true, 1001},
    {"_exit", false, 0},
    {"abort", false, 0},
    {"term", false, 0},
    {"segv", false, 0},
    {"exit_again", false, 0},
};

START_TEST(test_exit_ways)
{
    struct run with, without;
    struct run_request request = {.program = "exit_ways",
                                  .arguments = (const char *[]){exit_ways[_i].way, NULL},
                                  .environment =
                                      (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", NULL}};
    run_program(&with, &request);
    request.without_agent = true;
    run_program(&without, &request);
    run_expect_same(&with, &without);
    if (exit_ways[_i].writes) {
        struct profile profile;
        ck_assert_uint_eq(run_file_count(&with, ""), 2);
        profile_load(&profile, with.profiles, "cpu", with.pid);
        ck_assert_int_ge(profile_under(&profile, CPU_NS, "work"),
                         exit_ways[_i].objects > 2000 ? 340000000 : 170000000);
        profile_free(&profile);
        profile_load(&profile, with.profiles, "heap", with.pid);
        ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "work") +
                             profile_self(&profile, ALLOC_OBJECTS, "say"),
                         exit_ways[_i].objects);
        profile_free(&profile);
    } else {
        run_expect_no_file(&with);
    }
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Past libc, of the process's only thread: the ticks' thread does not keep the process. */
START_TEST(test_thread_ends_past_libc)
{
    struct run_pair pair;
    struct profile profile;
    run_pair(&pair, &(struct run_request){.program = "exit_ways",
                                          .arguments = (const char *[]){"thread", NULL},
                                          .environment =
                                              (const char *[]){"LIBAGENT_PROFILES=cpu,wall", NULL},
                                          .seconds = 60});
    run_expect_same(&pair.with, &pair.without);
    ck_assert_int_eq(pair.with.status, 36 << 8);
    ck_assert_uint_eq(run_file_count(&pair.with, ""), 2);
    profile_load(&profile, pair.with.profiles, "cpu", pair.with.pid);
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "work"), 170000000);
    profile_free(&profile);
    run_pair_free(&pair);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Another thread holds the loader's lock at the fork: in the child it is never given back. The
 * child is as without us, and what it loads itself is seen where the lock was free. */
static const struct {
    const char *name, *function;
    double ns; /* of CPU time in it, at least */
} loader_cases[] = {{"held", "child_work", 0.02e9}, {"free", "plugin_work", 0.27e9}};

START_TEST(test_child_of_a_parent_that_loads)
{
    struct run_pair pair;
    struct profile profile;
    char plugin[PATH_MAX];
    snprintf(plugin, sizeof(plugin), "%s", run_program_path("plugin"));
    run_pair(&pair, &(struct run_request){
                        .program = "fork_loader",
                        .arguments = (const char *[]){loader_cases[_i].name, plugin, NULL},
                        .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=16KiB",
                                                        "LIBAGENT_PERIOD=1s", NULL},
                        .seconds = 60});
    run_expect_quiet_success(&pair.without);
    ck_assert_ptr_nonnull(strstr(pair.without.out, "child 0x800"));
    profile_load(&profile, pair.with.profiles, "cpu", 0);
    double ns = (double)profile_under(&profile, CPU_NS, loader_cases[_i].function);
    fprintf(stderr, "%s: %.3f s in %s\n", loader_cases[_i].name, ns * 1e-9,
            loader_cases[_i].function);
    ck_assert_double_ge(ns, loader_cases[_i].ns);
    profile_free(&profile);
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_process");
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_fork, 0, COUNT(fork_shapes));
    tcase_add_loop_test(tcase, test_exec, 0, COUNT(exec_variants));
    tcase_add_test(tcase, test_child_writes_its_own_profile);
    tcase_add_loop_test(tcase, test_child_of_a_parent_that_loads, 0, 2);
    tcase_add_test(tcase, test_thread_ends_past_libc);
    tcase_add_loop_test(tcase, test_exit_ways, 0, COUNT(exit_ways));
    suite_add_tcase(suite, tcase);
    return suite;
}
