/* The agent's threads are none of the program's: libc goes on taking it for single-threaded, it
 * ends when its own last thread does, and no thread keeps an identity that the program gave up. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void start(struct run *run, const char *name, bool with_agent)
{
    run_start(run, &(struct run_request){
                       .program = "own_threads",
                       .arguments = (const char *[]){name, with_agent ? "1" : "0", NULL},
                       .environment = (const char *[]){"LIBAGENT_PERIOD=1s", NULL},
                       .without_agent = !with_agent,
                       .seconds = 60});
}

static void expect_same_output(const char *name, struct run *with, struct run *without)
{
    start(with, name, true);
    start(without, name, false);
    run_wait(with);
    run_wait(without);
    run_expect_success(without);
    ck_assert_msg(with->status == without->status, "%s: status %#x, without %#x", name,
                  (unsigned)with->status, (unsigned)without->status);
    ck_assert_str_eq(with->out, without->out);
}

static const char *const cases[] = {"single-threaded", "main-leaves", "main-leaves-first"};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

START_TEST(program_does_not_see_them)
{
    struct run with, without;
    struct profile cpu;
    expect_same_output(cases[_i], &with, &without);
    ck_assert_str_eq(with.err, without.err);
    profile_load(&cpu, with.profiles, "cpu", with.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "work"), 0);
    profile_free(&cpu);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* These need root; what they give up they cannot write with afterwards, and say so. */
static const char *const changes[] = {"setuid",    "setgid",     "seteuid",   "setegid",
                                      "setreuid",  "setregid",   "setresuid", "setresgid",
                                      "setgroups", "initgroups", "capset"};
enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };

START_TEST(changes_of_identity_leave_no_thread_behind)
{
    struct run with, without;
    expect_same_output(changes[_i], &with, &without);
    ck_assert_ptr_nonnull(strstr(with.out, ": 0, changed, 0 others"));
    run_free(&with);
    run_free(&without);
}
END_TEST

/* What another preload has in libc's place is not meant for the agent: its threads have no such
 * thread-local data, and the windows of its profiles are of the kernel's time. */
START_TEST(another_preloads_clock_is_not_theirs)
{
    struct run run;
    struct profile cpu;
    int64_t begin_ns = (int64_t)time(NULL) * 1000000000;
    run_program(&run,
                &(struct run_request){.program = "own_threads",
                                      .arguments = (const char *[]){"single-threaded", "1", NULL},
                                      .environment = (const char *[]){"LIBAGENT_PERIOD=1s", NULL},
                                      .beside = run_program_path("other_clock"),
                                      .seconds = 60});
    int64_t end_ns = (int64_t)time(NULL) * 1000000000 + 1000000000;
    run_expect_quiet_success(&run);
    ck_assert_ptr_nonnull(strstr(run.out, "single-threaded: "));
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "work"), 0);
    for (uint32_t i = 0; i < cpu.file_count; i++) {
        ck_assert_int_ge(cpu.files[i]->time_nanos, begin_ns);
        ck_assert_int_le(cpu.files[i]->time_nanos + cpu.files[i]->duration_nanos, end_ns);
    }
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

/* The kernel's number of the process is main's, and leads nowhere when main has ended. */
START_TEST(what_main_leaves_behind_has_stacks_and_names)
{
    struct run run;
    struct profile wall, cpu;
    run_program(&run, &(struct run_request){
                          .program = "left_waits",
                          .environment = (const char *[]){"LIBAGENT_PERIOD=1s",
                                                          "LIBAGENT_PROFILES=cpu,wall", NULL},
                          .seconds = 60});
    run_expect_quiet_success(&run);
    profile_load(&wall, run.profiles, "wall", run.pid);
    ck_assert_int_gt(profile_under(&wall, WALL_NS, "wait_here"), 1000000000);
    profile_free(&wall);
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "[jit]"), profile_under(&cpu, CPU_NS, "work") / 2);
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "work"), 0);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("own_threads");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, program_does_not_see_them, 0, CASES);
    tcase_add_test(all, another_preloads_clock_is_not_theirs);
    tcase_add_test(all, what_main_leaves_behind_has_stacks_and_names);
    if (geteuid() == 0)
        tcase_add_loop_test(all, changes_of_identity_leave_no_thread_behind, 0, CHANGES);
    suite_add_tcase(suite, all);
    return suite;
}
