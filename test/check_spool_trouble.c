/* The spool in trouble: what is torn, what is no file, what cannot be read or renamed, and failures
 * of system calls. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/spool_fixture.h"
#include "test/temp_folder.h"

/* Each byte of a file changed, or the file cut there: it is set aside, not sent. */
START_TEST(torn_files_are_not_sent)
{
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 50), 0);
    char *name = list_folder(spool_folder);
    size_t size;
    char path[256];
    snprintf(path, sizeof(path), "%s", in_folder(spool_folder, name));
    char *whole = read_file(path, &size);
    for (size_t i = 0; i < 2 * size; i++) {
        char *bytes = malloc(size + 1);
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, whole, size);
        if (i < size)
            bytes[i] ^= 1;
        write_file(path, bytes, i < size ? size : i - size);
        ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
        free(bytes);
    }
    ck_assert_uint_eq(spool_lost.dropped, 2 * size);
    char *left = list_folder(spool_folder);
    ck_assert_ptr_nonnull(strstr(left, ".parca.torn"));
    write_file(path, whole, size);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    free(left);
    free(whole);
    free(name);
}
END_TEST

/* What is no file, under the name of one that waits: it holds nobody up, and is set aside. */
START_TEST(what_is_no_file_is_set_aside)
{
    static const char *const kinds[] = {"fifo", "folder", "link", "socket"};
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct stat status;
    char target[256], path[256];
    snprintf(target, sizeof(target), "%s", in_folder(spool_base, "target"));
    write_file(target, "x", 1);
    ck_assert_int_eq(mkdir(spool_folder, 0700), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, target, times, 0), 0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%020lu.%016lx.parca.spool", spool_now + i, i);
        snprintf(path, sizeof(path), "%s", in_folder(spool_folder, name));
        ck_assert_int_eq(i == 0   ? mkfifo(path, 0600)
                         : i == 1 ? mkdir(path, 0700)
                         : i == 2 ? symlink(target, path)
                                  : mknod(path, S_IFSOCK | 0600, 0),
                         0);
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + 100 + i, 10), 0);
        int descriptors = count_descriptors();
        ck_assert_msg(claim_profile(BACKEND_PARCA) == 1, "%s", kinds[i]);
        ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + 100 + i);
        ck_assert_int_eq(count_descriptors(), descriptors);
        spool_end(&test_spool, spool_got.name);
        ck_assert_uint_eq(spool_lost.dropped, i + 1);
        ck_assert_int_eq(count_files(spool_folder), (int)i + 1);
        ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
    }
    ck_assert_int_eq(stat(target, &status), 0);
    ck_assert_int_eq(status.st_mtim.tv_sec, 1);
}
END_TEST

static uint64_t bad_before; /* what ended before is not to be opened */
static int bad_error, lists;

static bool refuse_the_old(long number, const long args[6], long *result)
{
    lists += number == SYS_getdents64;
    if (number != SYS_openat || !strstr((const char *)args[1], ".spool") ||
        strtoull((const char *)args[1], NULL, 10) >= bad_before)
        return false;
    *result = bad_error;
    return true;
}

static void expect_all_wait(int count)
{
    char *names = list_folder(spool_folder);
    ck_assert_ptr_null(strstr(names, "sending"));
    ck_assert_int_eq(count_files(spool_folder), count);
    free(names);
}

/* Another user's, or there are no descriptors: it is not taken from who can, and told; others go
 * on, and thousands do not cost a look at the folder each. */
START_TEST(what_cannot_be_read_stays)
{
    static const struct {
        int error;
        uint64_t count;
    } cases[] = {{-EACCES, 300}, {-EACCES, 1}, {-EMFILE, 3}, {-EIO, 3}, {-ENOMEM, 15}};
    bad_error = cases[_i].error;
    const uint64_t count = cases[_i].count;
    for (uint64_t i = 0; i < count + 2; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, 10), 0);
    bad_before = spool_now + count;
    for (uint64_t i = 0; i < 3; i++) {
        spool_lost = (struct spool_losses){0};
        lists = 0;
        sys_override = refuse_the_old;
        int found = claim_profile(BACKEND_PARCA);
        sys_override = NULL;
        ck_assert_int_eq(found, i < 2);
        ck_assert_uint_eq(spool_lost.untaken, count);
        ck_assert_int_eq(spool_lost.error, bad_error);
        ck_assert_uint_eq(strtoull(spool_lost.name, NULL, 10), spool_now);
        ck_assert_int_lt(lists, 2 * 20); /* two calls each */
        if (found) {
            ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + count + i);
            spool_end(&test_spool, spool_got.name);
        }
    }
    expect_all_wait((int)count);
    ck_assert_uint_eq(spool_lost.dropped + spool_lost.unknown, 0);
    spool_lost = (struct spool_losses){0};
    for (uint64_t i = 0; i < count; i++) {
        ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
        ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + i);
    }
    ck_assert_uint_eq(spool_lost.untaken, 0);
    ck_assert_int_eq(spool_lost.error, 0);
}
END_TEST

/* Of each there may be more than can be tried, then it is tried again later. */
START_TEST(what_cannot_be_read_ends_a_claim)
{
    for (uint64_t i = 0; i < 100; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, 10), 0);
    int descriptors = count_descriptors();
    fault_set(SYS_read, 0, 1000, -EIO);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), -EIO);
    ck_assert_int_lt(fault_clear(), 20);
    ck_assert_int_eq(count_descriptors(), descriptors);
    ck_assert_uint_gt(spool_lost.untaken, 0);
    ck_assert_int_eq(spool_lost.error, -EIO);
    expect_all_wait(100);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
}
END_TEST

/* A folder has the name that the claimed one, or the torn one, is to get. */
START_TEST(names_that_are_taken)
{
    static const char *const suffixes[] = {".sending", ".torn"};
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), 0);
    char *name = list_folder(spool_folder), path[256];
    if (_i)
        write_file(in_folder(spool_folder, name), "torn", 4);
    *strstr(name, ".spool") = 0;
    snprintf(path, sizeof(path), "%s%s", in_folder(spool_folder, name), suffixes[_i]);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + 1, 10), 0);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + 1);
    ck_assert_uint_eq(spool_lost.untaken, 1);
    ck_assert_uint_eq(spool_lost.dropped, 0);
    ck_assert_int_eq(spool_lost.error, -EISDIR);
    ck_assert_ptr_nonnull(strstr(spool_lost.name, name));
    free(name);
}
END_TEST

START_TEST(failures)
{
    static const int calls[] = {SYS_openat, SYS_write, SYS_fchmod, SYS_renameat2, SYS_getdents64};
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), 0);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    spool_end(&test_spool, spool_got.name);
    test_spool.limit = 5000; /* each put looks at what is there */
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int descriptors = count_descriptors();
        fault_set(calls[i], 0, 100, -EIO);
        if (calls[i] == SYS_renameat2) /* a hard link is tried then */
            ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), 0);
        else
            ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), -EIO);
        ck_assert_int_gt(fault_clear(), 0);
        ck_assert_int_eq(count_descriptors(), descriptors);
        ck_assert_int_eq(count_files(spool_folder), calls[i] == SYS_renameat2);
        if (claim_profile(BACKEND_PARCA) == 1)
            spool_end(&test_spool, spool_got.name);
    }
    test_spool.folder = "/dev/null";
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), -ENOTDIR);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), -ENOTDIR);
    test_spool.folder = in_folder(spool_base, "none");
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("spool_trouble");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, spool_fixture_start, spool_fixture_end);
    tcase_add_test(all, torn_files_are_not_sent);
    tcase_add_test(all, what_is_no_file_is_set_aside);
    tcase_add_loop_test(all, what_cannot_be_read_stays, 0, 5);
    tcase_add_test(all, what_cannot_be_read_ends_a_claim);
    tcase_add_loop_test(all, names_that_are_taken, 0, 2);
    tcase_add_test(all, failures);
    suite_add_tcase(suite, all);
    return suite;
}
