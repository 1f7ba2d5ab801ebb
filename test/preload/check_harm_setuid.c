/* Programs that run for another user than the one who started them, and those that change theirs.
 * Needs root: without it there is no test here, and the number of checks is 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

enum { ROOT = 0, NOBODY = 65534 };

static char folder[TEMP_PATH_SIZE];

static void shell(const char *commands, const char *argument)
{
    char text[4 * PATH_MAX];
    snprintf(text, sizeof(text), "set -e; umask 022; d=%s; a='%s'; %s", folder, argument, commands);
    ck_assert_int_eq(system(text), 0);
}

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "setuid")));
    ck_assert_int_eq(chmod(folder, 01777), 0);
}

static void remove_folder(void)
{
    shell("rm -rf $d", "");
}

/* For programs with AT_SECURE the loader leaves out a preloaded path; `linked` has the agent
 * anyhow, as it is linked with it. Built here, in the source's folder, where the Makefile runs
 * suites. */
static void make_programs(void)
{
    make_folder();
    shell("cp \"$a\" $d/libagent.so; chmod 755 $d/libagent.so; mkdir -m 1777 $d/profiles; "
          "cc -D_GNU_SOURCE -I. -O2 -o $d/bare test/preload/prog_status.c; "
          "cc -D_GNU_SOURCE -I. -O2 -o $d/linked test/preload/prog_status.c "
          "-Wl,--no-as-needed -L$d -l:libagent.so -Wl,-rpath,$d",
          run_agent_path());
}

/* Runs $d/PROGRAM as another user, with the agent preloaded where the loader does that. */
static void run_as(struct run *run, int user, int effective_user, const char *program)
{
    char preload[PATH_MAX], path[PATH_MAX], users[2][16];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/libagent.so", folder);
    snprintf(path, sizeof(path), "%s/%s", folder, program);
    snprintf(users[0], sizeof(users[0]), "%d", user);
    snprintf(users[1], sizeof(users[1]), "%d", effective_user);
    run_program(
        run, &(struct run_request){
                 .program = "harm_setuid",
                 .arguments = (const char *[]){"as", users[0], users[1], path, "100", NULL},
                 .environment = (const char *[]){preload, "LIBAGENT_PROCESSES=bare,linked", NULL},
                 .without_agent = true,
                 .folder = folder,
                 .seconds = 60});
    run_expect_quiet_success(run);
}

static void expect_untouched(const struct run *linked, const struct run *bare)
{
    ck_assert_int_eq(run_number(linked, "secure"), 1);
    run_expect_same(linked, bare);
    ck_assert_ptr_nonnull(strstr(linked->out, "SigCgt:\t0000000000000000"));
    ck_assert_int_eq(run_number(linked, "tasks"), 3); /* with "." and ".." */
    ck_assert_ptr_null(strstr(linked->out, "signal:"));
    run_expect_no_file(linked);
}

/* Who owns the program, its mode, and who runs it. */
static const struct {
    const char *make;
    int user;
} secure[] = {{"chown root $d/$p; chmod 4755 $d/$p", NOBODY},
              {"chown nobody $d/$p; chmod 4755 $d/$p", ROOT},
              {"chgrp nogroup $d/$p; chmod 2755 $d/$p", ROOT}};
enum { SECURE = sizeof(secure) / sizeof(secure[0]) };

START_TEST(test_set_user_id_program)
{
    struct run linked, bare, plain;
    make_programs();
    /* A copy without the attribute is profiled: so that is what switches it off. */
    run_as(&plain, secure[_i].user, secure[_i].user, "linked");
    ck_assert_int_eq(run_number(&plain, "secure"), 0);
    ck_assert_uint_eq(run_file_count(&plain, ".pb.gz"), 2);
    shell("rm $d/profiles/*; for p in linked bare; do eval \"$a\"; done", secure[_i].make);
    run_as(&linked, secure[_i].user, secure[_i].user, "linked");
    run_as(&bare, secure[_i].user, secure[_i].user, "bare");
    expect_untouched(&linked, &bare);
    run_free(&plain);
    run_free(&linked);
    run_free(&bare);
    remove_folder();
}
END_TEST

/* Started by a process whose effective user was another one. */
START_TEST(test_other_effective_user)
{
    struct run linked, bare;
    make_programs();
    run_as(&linked, ROOT, NOBODY, "linked");
    run_as(&bare, ROOT, NOBODY, "bare");
    expect_untouched(&linked, &bare);
    run_free(&linked);
    run_free(&bare);
    remove_folder();
}
END_TEST

/* The windows of process `pid` in the default folder of `user`, each file of whom is the user's. */
static void load_of_user(struct profile *profile, unsigned user, int pid)
{
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof(path), "%s/libagent-%u", folder, user);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_uid, user);
    ck_assert_uint_eq(status.st_mode & 07777, 0700);
    profile_load(profile, path, "cpu", pid);
    ck_assert_uint_gt(profile->file_count, 0);
    for (uint32_t i = 0; i < profile->file_count; i++) {
        ck_assert_int_eq(stat(profile->paths[i], &status), 0);
        ck_assert_uint_eq(status.st_uid, user);
    }
}

/* With the agent longer than its period as each user. */
static void run_changes(struct run *run, const char *output, bool with_agent)
{
    run_program(run, &(struct run_request){
                         .program = "harm_setuid",
                         .arguments = (const char *[]){"changes", with_agent ? "1100" : "1", NULL},
                         .environment = (const char *[]){"LIBAGENT_PERIOD=1s", output, NULL},
                         .without_agent = !with_agent,
                         .folder = folder,
                         .seconds = 120});
    run_expect_success(run);
}

/* Nothing but the clock, in the last line, may differ. */
static void expect_same_users(const struct run *with, const struct run *without)
{
    size_t length = (size_t)(strstr(without->out, "process ") - without->out);
    ck_assert_msg(strncmp(with->out, without->out, length) == 0, "with: %s\nwithout: %s", with->out,
                  without->out);
}

START_TEST(test_user_changes_at_run_time)
{
    struct run with, without;
    struct profile of_root, of_nobody;
    make_folder();
    run_changes(&without, "LIBAGENT_OUTPUT", false);
    run_changes(&with, "LIBAGENT_OUTPUT", true); /* which is removed */
    run_expect_quiet_success(&with);
    expect_same_users(&with, &without);
    load_of_user(&of_root, ROOT, with.pid);
    load_of_user(&of_nobody, NOBODY, with.pid);
    double total = (double)(profile_total(&of_root, CPU_NS) + profile_total(&of_nobody, CPU_NS));
    double truth = (double)run_number(&with, "process");
    fprintf(stderr, "cpu %.0f, truth %.0f\n", total, truth);
    ck_assert_double_ge(total, 0.98 * truth);
    ck_assert_double_le(total, 1.02 * truth);
    /* What was done in the last seconds as one user is written as the next. */
    ck_assert_int_gt(profile_under(&of_root, CPU_NS, "site_root"), 0);
    ck_assert_int_gt(profile_under(&of_nobody, CPU_NS, "site_nobody"), 0);
    ck_assert_int_gt(profile_under(&of_nobody, CPU_NS, "site_for_good"), 0);
    ck_assert_int_eq(profile_under(&of_root, CPU_NS, "site_for_good"), 0);
    profile_free(&of_root);
    profile_free(&of_nobody);
    run_free(&with);
    run_free(&without);
    remove_folder();
}
END_TEST

/* A folder that the next user may not write to costs profiles and a line in the log. */
START_TEST(test_folder_of_the_user_before)
{
    struct run with, without;
    struct profile profile;
    make_folder();
    char output[PATH_MAX];
    snprintf(output, sizeof(output), "LIBAGENT_OUTPUT=%s/profiles", folder);
    run_changes(&without, output, false);
    run_changes(&with, output, true);
    expect_same_users(&with, &without);
    ck_assert_ptr_nonnull(strstr(with.err, "cannot write profiles to"));
    ck_assert_uint_le(with.err_size, 1000);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "site_root"), 0);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "site_root_again"), 0);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "site_for_good"), 0);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
    remove_folder();
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_setuid");
    TCase *tcase = tcase_create("users");
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    if (geteuid() != ROOT) {
        fprintf(stderr, "harm_setuid: NOT TESTED, users can be changed by root only\n");
        return suite;
    }
    tcase_add_loop_test(tcase, test_set_user_id_program, 0, SECURE);
    tcase_add_test(tcase, test_other_effective_user);
    tcase_add_test(tcase, test_user_changes_at_run_time);
    tcase_add_test(tcase, test_folder_of_the_user_before);
    return suite;
}
