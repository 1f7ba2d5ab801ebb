/* Which folders the file backend takes, makes, and refuses. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/backend_fixture.h"
#include "test/temp_folder.h"

START_TEST(default_folder_is_made)
{
    static const mode_t umasks[] = {022, 0, 0777};
    umask(umasks[_i]);
    use_folder(NULL);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_uint_eq(mode_of(default_folder), 0700);
    assert_body_written(default_folder);
    /* And found there the next time. */
    ck_assert_int_eq(write_body_of(1, "heap"), 0);
    ck_assert_int_eq(count_files(default_folder), 2);
}
END_TEST

START_TEST(default_folder_is_of_the_user_of_the_moment)
{
    if (geteuid() != 0)
        return;
    /* A daemon that gives up root after its start, with a umask that takes all. */
    ck_assert_int_eq(chmod(base, 01777), 0);
    use_folder("");
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    umask(0777);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(seteuid(0), 0);
    assert_body_written(in_folder(base, "libagent-65534"));
    ck_assert_uint_eq(mode_of(in_folder(base, "libagent-65534")), 0700);
}
END_TEST

START_TEST(no_tmpdir_is_tmp)
{
    ck_assert_int_eq(file_backend_init(&backend, NULL, NULL, 1, "app", 1), 0);
    ck_assert_str_eq(backend.folder, "/tmp");
    ck_assert_int_eq(file_backend_init(&backend, "", "", 1, "app", 1), 0);
    ck_assert_str_eq(backend.folder, "/tmp");
    ck_assert(backend.is_default);
}
END_TEST

static void assert_refused(int code, const char *reason)
{
    use_folder(NULL);
    ck_assert_int_eq(write_body(), code);
    ck_assert_str_eq(report.reason, reason);
    ck_assert_str_eq(report.folder, default_folder);
    ck_assert(!report.hopeless);
}

START_TEST(default_folder_that_is_a_link_is_refused)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    ck_assert_int_eq(symlink(_i == 0 ? "out" : "nowhere", default_folder), 0);
    assert_refused(-ENOTDIR, "refused: it is a link or not a folder");
    assert_names(output, "");
    ck_assert(!file_exists(in_folder(base, "nowhere")));
}
END_TEST

START_TEST(default_folder_that_is_a_file_is_refused)
{
    write_file(default_folder, "mine", 4);
    assert_refused(-ENOTDIR, "refused: it is a link or not a folder");
    assert_content(default_folder, "mine", 4);
}
END_TEST

START_TEST(default_folder_that_others_may_write_is_refused)
{
    static const mode_t modes[] = {0720, 0702, 01777};
    ck_assert_int_eq(mkdir(default_folder, 0700), 0);
    ck_assert_int_eq(chmod(default_folder, modes[_i]), 0);
    assert_refused(-EPERM, "refused: group or others may write to it");
    assert_names(default_folder, "");
    ck_assert_uint_eq(mode_of(default_folder), modes[_i]);
    ck_assert_int_eq(chmod(default_folder, 0755), 0);
    ck_assert_int_eq(write_body(), 0);
}
END_TEST

static bool be_user_4321(long number, const long args[6], long *result)
{
    (void)args;
    *result = 4321;
    return number == SYS_geteuid;
}

START_TEST(default_folder_of_another_is_refused)
{
    /* Ours, while we are told to be another. */
    snprintf(default_folder, sizeof default_folder, "%s/libagent-4321", base);
    ck_assert_int_eq(mkdir(default_folder, 0700), 0);
    sys_override = be_user_4321;
    assert_refused(-EPERM, "refused: it belongs to another user");
    sys_override = NULL;
    assert_names(default_folder, "");
    if (geteuid() != 0)
        return;
    snprintf(default_folder, sizeof default_folder, "%s/libagent-0", base);
    ck_assert_int_eq(mkdir(default_folder, 0700), 0);
    ck_assert_int_eq(chown(default_folder, NOBODY, NOBODY), 0);
    assert_refused(-EPERM, "refused: it belongs to another user");
    assert_names(default_folder, "");
}
END_TEST

START_TEST(given_folder_need_only_be_writable)
{
    ck_assert_int_eq(mkdir(in_folder(base, "real"), 0700), 0);
    ck_assert_int_eq(chmod(in_folder(base, "real"), 0777), 0);
    ck_assert_int_eq(symlink("real", output), 0);
    use_folder(output);
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(output);
    ck_assert_uint_eq(mode_of(in_folder(base, "real")), 0777);
}
END_TEST

START_TEST(given_folder_is_made_one_level)
{
    umask(_i == 0 ? 022 : 0777);
    use_folder(output);
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(output);
    ck_assert_uint_eq(mode_of(output), 0700);
    use_folder(in_folder(base, "a/b"));
    ck_assert_int_eq(write_body(), -ENOENT);
    ck_assert_str_eq(report.reason, "no such file or directory");
    ck_assert_str_eq(report.folder, in_folder(base, "a/b"));
}
END_TEST

START_TEST(folder_that_cannot_be_made)
{
    use_folder(output);
    fault_set(SYS_mkdirat, 0, 1, -EROFS);
    ck_assert_int_eq(write_body(), -EROFS);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_str_eq(report.reason, "read-only file system");
    /* Another process made it in between. */
    fault_set(SYS_openat, 0, 1, -ENOENT);
    ck_assert_int_eq(mkdir(output, 0711), 0);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_uint_eq(mode_of(output), 0711);
    /* Its mode cannot be repaired. */
    temp_folder_remove(output);
    umask(0777);
    fault_set(SYS_fchmodat, 0, 1, -ENOENT);
    ck_assert_int_eq(write_body(), -ENOENT);
    ck_assert_int_eq(fault_clear(), 1);
}
END_TEST

START_TEST(given_folder_that_is_a_file)
{
    write_file(output, "mine", 4);
    use_folder(output);
    ck_assert_int_eq(write_body(), -ENOTDIR);
    ck_assert_str_eq(report.reason, "not a directory");
    assert_content(output, "mine", 4);
}
END_TEST

START_TEST(link_circles_are_told)
{
    ck_assert_int_eq(symlink("out", output), 0);
    use_folder(output);
    ck_assert_int_eq(write_body(), -ELOOP);
}
END_TEST

START_TEST(relative_folder_is_of_the_start)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    ck_assert_int_eq(chdir(base), 0);
    use_folder("out");
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(output);

    ck_assert_int_eq(chdir(base), 0);
    ck_assert_int_eq(file_backend_init(&backend, NULL, ".", 1 << 20, "app", 77), 0);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(write_body(), 0);
    ck_assert(file_exists(in_folder(default_folder, NAME)));
}
END_TEST

START_TEST(long_folders_are_refused)
{
    char path[5000];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[4096] = 0;
    ck_assert_int_eq(file_backend_init(&backend, path, NULL, 1, "app", 1), -ENAMETOOLONG);
    path[0] = 'x';
    path[4090] = 0;
    ck_assert_int_eq(file_backend_init(&backend, path, NULL, 1, "app", 1), -ENAMETOOLONG);
    /* Fits, but not with the default folder's name; cut it would be another folder. */
    for (size_t i = 0; i < 4090; i += 2)
        memcpy(path + i, "/x", 2);
    path[4090] = 0;
    ck_assert_int_eq(file_backend_init(&backend, NULL, path, 1, "app", 1), 0);
    ck_assert_int_eq(write_body(), -ENAMETOOLONG);
    ck_assert_str_eq(report.reason, "name too long");
}
END_TEST

START_TEST(vanished_folder)
{
    char deep[160];
    snprintf(deep, sizeof deep, "%s/deep", output);
    ck_assert_int_eq(mkdir(output, 0700), 0);
    use_folder(deep);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(unlink(in_folder(deep, NAME)), 0);
    ck_assert_int_eq(rmdir(deep), 0);
    ck_assert_int_eq(write_body(), 0); /* made again */
    ck_assert_int_eq(unlink(in_folder(deep, NAME)), 0);
    ck_assert_int_eq(rmdir(deep), 0);
    ck_assert_int_eq(rmdir(output), 0);
    ck_assert_int_eq(write_body(), -ENOENT);
    ck_assert_int_eq(mkdir(output, 0700), 0);
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(deep);
}
END_TEST

/* Between the opening of the folder and that of the file somebody puts a link in its place. */
static bool exchange_folder(long number, const long args[6], long *result)
{
    (void)result;
    if (number != SYS_openat || !(args[2] & O_CREAT))
        return false;
    sys_override = NULL;
    ck_assert_int_eq(rename(default_folder, in_folder(base, "moved")), 0);
    ck_assert_int_eq(symlink("out", default_folder), 0);
    return false;
}

START_TEST(exchanged_folder_is_not_followed)
{
    ck_assert_int_eq(mkdir(output, 0777), 0);
    use_folder(NULL);
    sys_override = exchange_folder;
    ck_assert_int_eq(write_body(), 0);
    assert_names(output, "");
    assert_names(in_folder(base, "moved"), NAME);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("output_folder");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, backend_setup, backend_teardown);
    tcase_add_loop_test(all, default_folder_is_made, 0, 3);
    tcase_add_test(all, default_folder_is_of_the_user_of_the_moment);
    tcase_add_test(all, no_tmpdir_is_tmp);
    tcase_add_loop_test(all, default_folder_that_is_a_link_is_refused, 0, 2);
    tcase_add_test(all, default_folder_that_is_a_file_is_refused);
    tcase_add_loop_test(all, default_folder_that_others_may_write_is_refused, 0, 3);
    tcase_add_test(all, default_folder_of_another_is_refused);
    tcase_add_test(all, given_folder_need_only_be_writable);
    tcase_add_loop_test(all, given_folder_is_made_one_level, 0, 2);
    tcase_add_test(all, folder_that_cannot_be_made);
    tcase_add_test(all, given_folder_that_is_a_file);
    tcase_add_test(all, link_circles_are_told);
    tcase_add_test(all, relative_folder_is_of_the_start);
    tcase_add_test(all, long_folders_are_refused);
    tcase_add_test(all, vanished_folder);
    tcase_add_test(all, exchanged_folder_is_not_followed);
    suite_add_tcase(suite, all);
    return suite;
}
