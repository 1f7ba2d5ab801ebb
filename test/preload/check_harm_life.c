/* A process that changes what it is (daemon, chroot, setuid), or ends at once: as without us, and
 * profiled before and after. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { NOBODY = 65534 };
/* Two seconds of work in all have windows in them, and our threads live. */
static const char *const each_second[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_ALLOC_INTERVAL=16KiB",
                                          NULL};
/* The same, in the default folder: TMPDIR/libagent-UID. */
static const char *const default_folder[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_ALLOC_INTERVAL=16KiB",
                                             "LIBAGENT_OUTPUT", NULL};

/* The same case with and without the agent, side by side. */
static void run_both(struct run *with, struct run *without, const char *name, const char *argument,
                     const char *const *environment)
{
    struct run_request request = {.program = "harm_life",
                                  .arguments = (const char *[]){name, argument, NULL},
                                  .environment = environment};
    run_start(with, &request);
    request.without_agent = true;
    run_start(without, &request);
    run_wait(with);
    run_wait(without);
}

/* Output from its second line on: the first one has a number of this run. */
static const char *rest_of_output(const struct run *run)
{
    const char *line_end = strchr(run->out, '\n');
    ck_assert_msg(line_end != NULL, "output: %s", run->out);
    return line_end + 1;
}

/* Compares output but for its first line, error output and status. */
static void expect_same_rest(const struct run *with, const struct run *without)
{
    run_expect_quiet_success(without);
    ck_assert_int_eq(with->status, without->status);
    ck_assert_str_eq(with->err, without->err);
    ck_assert_str_eq(rest_of_output(with), rest_of_output(without));
}

/* Some 0.4 to 1.5 s are there to be seen, less what a slow machine leaves to the next window. */
static void expect_function(const char *folder, int pid, const char *function, bool is_there)
{
    struct profile profile;
    profile_load(&profile, folder, "cpu", pid);
    int64_t seen = profile_under(&profile, CPU_NS, function);
    fprintf(stderr, "%s of %d: %lld ns\n", function, pid, (long long)seen);
    if (is_there)
        ck_assert_int_ge(seen, 50000000);
    else
        ck_assert_int_eq(seen, 0);
    profile_free(&profile);
    if (!is_there)
        return;
    profile_load(&profile, folder, "heap", pid);
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, function), 0);
    profile_free(&profile);
}

/* Compares what daemon and parent say, and how they end; a profile of each. */
START_TEST(test_daemon_is_profiled)
{
    struct run with, without;
    run_both(&with, &without, "daemon", NULL, each_second);
    expect_same_rest(&with, &without);
    ck_assert_ptr_nonnull(strstr(with.out, "ended: 0x1500\n"));
    int daemon_pid = (int)run_number(&with, "daemon-pid");
    expect_function(with.profiles, with.pid, "work_before", true);
    expect_function(with.profiles, with.pid, "work_after", false);
    expect_function(with.profiles, daemon_pid, "work_after", true);
    expect_function(with.profiles, daemon_pid, "work_before", false);
    run_free(&with);
    run_free(&without);
}
END_TEST

static bool is_root(const char *test)
{
    if (geteuid() != 0)
        fprintf(stderr, "%s: needs root\n", test);
    return geteuid() == 0;
}

/* The first window, of before, is there; of after one line tells what is wrong, and at the end one
 * more how much is lost. */
START_TEST(test_chroot_without_the_folder)
{
    if (!is_root("chroot"))
        return;
    struct run with, without;
    run_both(&with, &without, "chroot", "0", each_second);
    run_expect_quiet_success(&without);
    run_expect_success(&with);
    ck_assert_str_eq(with.out, without.out);
    ck_assert_str_eq(with.out, "root is the jail: 1\n");
    expect_function(with.profiles, with.pid, "work_before", true);
    char expected[2 * PATH_MAX];
    snprintf(expected, sizeof(expected),
             "libagent: error: cannot write profiles to %s: no such file or directory (errno 2); ",
             with.profiles);
    ck_assert_msg(strncmp(with.err, expected, strlen(expected)) == 0, "%s", with.err);
    const char *second = strchr(with.err, '\n') + 1;
    ck_assert_msg(strstr(second, "are lost: ") && strchr(second, '\n')[1] == 0, "%s", with.err);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* All windows are written, and the CPU time of after is there, of the program's file; names of
 * functions cannot be: there is no file to read them from. */
START_TEST(test_chroot_with_the_folder)
{
    if (!is_root("chroot"))
        return;
    struct run with, without;
    struct profile profile;
    char folder[2 * PATH_MAX + 8];
    run_both(&with, &without, "chroot", "1", each_second);
    run_expect_quiet_success(&without);
    run_expect_same(&with, &without);
    expect_function(with.profiles, with.pid, "work_before", true);
    snprintf(folder, sizeof(folder), "%s/jail%s", with.folder, with.profiles);
    profile_load(&profile, folder, "cpu", with.pid);
    int64_t in_program = 0;
    for (size_t i = 0; i < profile.stack_count; i++)
        if (strstr(profile.stacks[i].frames[0].object, "/prog_harm_life"))
            in_program += profile.stacks[i].values[CPU_NS];
    ck_assert_int_ge(in_program, 50000000);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Windows whose file belongs to `user`. */
static size_t count_files_of(const char *folder, const struct run *run, uid_t user)
{
    struct profile profile;
    size_t count = 0;
    profile_load(&profile, folder, "cpu", run->pid);
    for (uint32_t i = 0; i < profile.file_count; i++) {
        struct stat status;
        ck_assert_int_eq(stat(profile.paths[i], &status), 0);
        ck_assert_uint_eq(status.st_mode & 0777, 0600);
        count += status.st_uid == user;
    }
    profile_free(&profile);
    return count;
}

/* Compares ids of the process, and the count of tasks that are still root: 0 in /proc, our threads
 * among them. Windows before are root's files, those after the user's. */
START_TEST(test_setuid_changes_all_threads)
{
    if (!is_root("setuid"))
        return;
    bool is_default = _i == 1;
    struct run with, without;
    char before[2 * PATH_MAX], after[2 * PATH_MAX];
    run_both(&with, &without, "setuid", NULL, is_default ? default_folder : each_second);
    expect_same_rest(&with, &without);
    ck_assert_ptr_nonnull(strstr(with.out, "still root: 0\nstill root: 0\nroot again: -1 1\n"));
    ck_assert_int_gt(run_number(&with, "tasks"), run_number(&without, "tasks"));
    snprintf(before, sizeof(before), "%s%s", is_default ? with.folder : with.profiles,
             is_default ? "/libagent-0" : "");
    snprintf(after, sizeof(after), "%s%s", is_default ? with.folder : with.profiles,
             is_default ? "/libagent-65534" : "");
    ck_assert_uint_ge(count_files_of(before, &with, 0), 1);
    ck_assert_uint_ge(count_files_of(after, &with, NOBODY), 1);
    expect_function(before, with.pid, "work_before", true);
    expect_function(after, with.pid, "work_after", true);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* A thread of ours that does not come back is waited for, three seconds and not for ever; it makes
 * no file when it does come back, ends, and there is another one, which does. */
START_TEST(test_setuid_behind_a_file_system_that_hangs)
{
    struct run run;
    char said[PATH_MAX + 400];
    run_program(&run, &(struct run_request){
                          .program = "harm_held", .environment = each_second, .seconds = 60});
    run_expect_success(&run);
    snprintf(said, sizeof(said),
             "libagent: error: a thread of the agent is held up (a file system, a library): the "
             "program goes on, and nothing is written before that thread has ended\n"
             "libagent: error: cannot write profiles to %s: a thread of the agent was held up "
             "(errno 125); the latest are kept and tried again\n",
             run.profiles);
    ck_assert_str_eq(run.err, said);
    ck_assert_int_eq(run_number(&run, "setuid"), 0);
    ck_assert_int_ge(run_number(&run, "ms"), 3000);
    ck_assert_int_eq(run_number(&run, "gone"), run_number(&run, "held"));
    ck_assert_int_gt(run_number(&run, "ended"), run_number(&run, "gone"));
    run_free(&run);
}
END_TEST

/* May the kernel leave a core file where the program runs? */
static bool has_cores(void)
{
    struct rlimit limit;
    char pattern = '|';
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");
    if (file) {
        pattern = (char)fgetc(file);
        fclose(file);
    }
    getrlimit(RLIMIT_CORE, &limit);
    return limit.rlim_max > 0 && pattern != '|' && pattern != '\n';
}

static const struct {
    const char *way;
    int signal;
    bool core;
} ends[] = {{"segv", SIGSEGV, true},
            {"abort", SIGABRT, true},
            {"kill", SIGKILL, false},
            {"_exit", 0, false}};

/* Compares the wait status, the bit of a core among it, of a process whose threads are sampled. */
START_TEST(test_ends_are_as_without)
{
    struct run with, without;
    run_both(&with, &without, ends[_i].way, NULL, each_second);
    run_expect_same(&with, &without);
    ck_assert_str_eq(with.out, "working\n");
    if (ends[_i].signal) {
        ck_assert(WIFSIGNALED(without.status));
        ck_assert_int_eq(WTERMSIG(without.status), ends[_i].signal);
        ck_assert(!ends[_i].core || !has_cores() || WCOREDUMP(without.status));
    } else {
        ck_assert_int_eq(without.status, 41 << 8);
    }
    run_free(&with);
    run_free(&without);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_life");
    TCase *tcase = tcase_create("changes and ends");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_daemon_is_profiled);
    tcase_add_test(tcase, test_chroot_without_the_folder);
    tcase_add_test(tcase, test_chroot_with_the_folder);
    tcase_add_loop_test(tcase, test_setuid_changes_all_threads, 0, 2);
    tcase_add_test(tcase, test_setuid_behind_a_file_system_that_hangs);
    tcase_add_loop_test(tcase, test_ends_are_as_without, 0, sizeof(ends) / sizeof(ends[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
