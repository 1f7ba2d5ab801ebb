/* Profiles into files: names that are taken, every fault on the way, and the limit. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/backend_fixture.h"
#include "test/temp_folder.h"

/* --- The name ------------------------------------------------------------------------------- */

START_TEST(taken_names_are_left_alone)
{
    /* 0: renameat2, 1: the hard link of old kernels. */
    ck_assert_int_eq(mkdir(output, 0700), 0);
    write_file(in_folder(output, NAME), "foreign", 7);
    write_file(in_folder(base, "victim"), "victim", 6);
    ck_assert_int_eq(symlink("../victim", in_folder(output, "app.77.0003-2.cpu.pb.gz")), 0);
    ck_assert_int_eq(symlink("../nowhere", in_folder(output, "app.77.0003-3.cpu.pb.gz")), 0);
    ck_assert_int_eq(mkdir(in_folder(output, "app.77.0003-4.cpu.pb.gz"), 0700), 0);
    ck_assert_int_eq(link(in_folder(base, "victim"), in_folder(output, "app.77.0003-5.cpu.pb.gz")),
                     0);
    use_folder(output);
    if (_i == 1)
        fault_set(SYS_renameat2, 0, 100, -ENOSYS);
    ck_assert_int_eq(write_body(), 0);
    if (_i == 1)
        ck_assert_int_eq(fault_clear(), 6);
    ck_assert_str_eq(report.name, "app.77.0003-6.cpu.pb.gz");
    assert_content(in_folder(output, report.name), body, sizeof body);
    ck_assert_uint_eq(mode_of(in_folder(output, report.name)), 0600);
    assert_content(in_folder(output, NAME), "foreign", 7);
    assert_content(in_folder(base, "victim"), "victim", 6);
    ck_assert(!file_exists(in_folder(base, "nowhere")));
    ck_assert_int_eq(count_files(output), 6);
}
END_TEST

START_TEST(names_end_with_the_time_and_then_end)
{
    use_folder(output);
    for (int i = 0; i < 9 + 8; i++) {
        ck_assert_int_eq(write_body_of(1, "cpu"), 0);
        char expected[64];
        if (i == 0)
            strcpy(expected, NAME);
        else if (i < 9)
            snprintf(expected, sizeof expected, "app.77.0003-%d.cpu.pb.gz", i + 1);
        else
            snprintf(expected, sizeof expected, "app.77.0003-%llu.cpu.pb.gz",
                     (unsigned long long)end_ms + (unsigned)i - 9);
        ck_assert_str_eq(report.name, expected);
    }
    ck_assert_int_eq(write_body_of(1, "cpu"), -EEXIST);
    ck_assert_str_eq(report.reason, "name already taken");
    ck_assert_int_eq(count_files(output), 17);
    ck_assert_int_eq(write_body_of(1, "heap"), 0);
}
END_TEST

START_TEST(link_where_rename_cannot)
{
    static const long refusals[] = {-ENOSYS, -EINVAL, -EPERM};
    use_folder(output);
    fault_set(SYS_renameat2, 0, 1, refusals[_i]);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 1);
    assert_body_written(output);
}
END_TEST

static bool refuse_both(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EPERM;
    return number == SYS_renameat2 || number == SYS_linkat;
}

/* Where there are no hard links, a taken name is still told from a refused call. */
START_TEST(taken_names_without_links)
{
    use_folder(output);
    ck_assert_int_eq(write_body(), 0);
    fault_set(SYS_linkat, 0, 100, -EPERM);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 0);
    ck_assert_str_eq(report.name, "app.77.0003-2.cpu.pb.gz");
}
END_TEST

START_TEST(neither_link_nor_rename)
{
    use_folder(output);
    sys_override = refuse_both;
    ck_assert_int_eq(write_body(), -EPERM);
    sys_override = NULL;
    assert_names(output, "");
    ck_assert_int_eq(write_body(), 0);
}
END_TEST

START_TEST(taken_temporary_names)
{
    char name[PROFILE_NAME_SIZE];
    write_file(in_folder(base, "victim"), "victim", 6);
    ck_assert_int_eq(mkdir(output, 0700), 0);
    profile_name_make_temporary(name, 77, now_ns);
    ck_assert_int_eq(symlink("../victim", in_folder(output, name)), 0);
    profile_name_make_temporary(name, 77, now_ns + 1);
    ck_assert_int_eq(symlink("../nowhere", in_folder(output, name)), 0);
    profile_name_make_temporary(name, 77, now_ns + 2);
    write_file(in_folder(output, name), "other", 5);
    use_folder(output);
    ck_assert_int_eq(write_body(), 0);
    assert_content(in_folder(base, "victim"), "victim", 6);
    ck_assert(!file_exists(in_folder(base, "nowhere")));
    assert_content(in_folder(output, name), "other", 5);
    assert_content(in_folder(output, NAME), body, sizeof body);
    ck_assert_int_eq(count_files(output), 4);
    /* Others of them exist until all are taken. */
    for (unsigned i = 3; i < 8; i++) {
        profile_name_make_temporary(name, 77, now_ns + i);
        write_file(in_folder(output, name), "", 0);
    }
    ck_assert_int_eq(write_body_of(1, "heap"), -EEXIST);
    ck_assert_int_eq(count_files(output), 9);
}
END_TEST

/* --- The write ------------------------------------------------------------------------------ */

/* Each: a call that fails for good once, what the caller gets, and that the next try is whole. */
static const struct {
    long number;
    int open_flags;
    int skip;
    long result;
    const char *reason;
} faults[] = {
    {SYS_openat, O_PATH, 0, -EMFILE, "too many open files in the process"},
    {SYS_openat, O_PATH, 0, -ENFILE, "too many open files in the system"},
    {SYS_openat, O_PATH, 0, -EACCES, "permission denied"},
    {SYS_openat, O_CREAT, 0, -EACCES, "permission denied"},
    {SYS_openat, O_CREAT, 0, -EROFS, "read-only file system"},
    {SYS_openat, O_CREAT, 0, -ENOSPC, "no space left on device"},
    {SYS_openat, O_CREAT, 0, -EDQUOT, "disk quota exceeded"},
    {SYS_getdents64, 0, 0, -EIO, "input/output error"},
    {SYS_mmap, 0, 0, -ENOMEM, "out of memory"},
    {SYS_fchmod, 0, 0, -EPERM, "operation not permitted"},
    {SYS_write, 0, 0, -ENOSPC, "no space left on device"},
    {SYS_write, 0, 0, -EDQUOT, "disk quota exceeded"},
    {SYS_write, 0, 0, -EIO, "input/output error"},
    {SYS_write, 0, 0, 0, "input/output error"},
    {SYS_write, 0, 0, -EBADF, "descriptor closed by the program"},
    {SYS_write, 0, 0, -EHOSTDOWN, "unexpected error"},
};

START_TEST(faults_leave_nothing_and_can_be_tried_again)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    use_folder(output);
    if (faults[_i].open_flags)
        fault_set_open(faults[_i].open_flags, faults[_i].skip, 1, faults[_i].result);
    else
        fault_set(faults[_i].number, faults[_i].skip, 1, faults[_i].result);
    int expected = faults[_i].result ? (int)faults[_i].result : -EIO;
    ck_assert_int_eq(write_body(), expected);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_str_eq(report.reason, faults[_i].reason);
    ck_assert_str_eq(report.folder, output);
    ck_assert_str_eq(report.name, "");
    ck_assert(!report.hopeless);
    assert_names(output, "");
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(output);
}
END_TEST

static size_t disk_left;  /* bytes until the disk is full */
static size_t write_most; /* bytes that one call takes */
static size_t disk_more;  /* bytes that are freed when it is full */
static bool interrupted;  /* every other call */
static int calls;

static bool small_disk(long number, const long args[6], long *result)
{
    if (number != SYS_write)
        return false;
    calls++;
    if (interrupted && calls % 2) {
        *result = -EINTR;
        return true;
    }
    size_t size = (size_t)args[2];
    if (size > write_most)
        size = write_most;
    if (size > disk_left)
        size = disk_left;
    if (size == 0) {
        disk_left = disk_more;
        *result = -ENOSPC;
        return true;
    }
    *result = sys_raw6(number, args[0], args[1], (long)size, 0, 0, 0);
    disk_left -= size;
    return true;
}

START_TEST(short_and_interrupted_writes)
{
    static const size_t most[] = {1000, 99999, 1, 4096};
    use_folder(output);
    disk_left = SIZE_MAX;
    write_most = most[_i];
    interrupted = true;
    calls = 0;
    sys_override = small_disk;
    ck_assert_int_eq(write_body(), 0);
    sys_override = NULL;
    ck_assert_int_eq(calls, 2 * (int)((sizeof body + most[_i] - 1) / most[_i]));
    assert_body_written(output);
}
END_TEST

START_TEST(disk_fills_up_in_the_middle)
{
    use_folder(output);
    disk_left = 50001;
    write_most = 20000;
    sys_override = small_disk;
    ck_assert_int_eq(write_body(), -ENOSPC);
    assert_names(output, "");
    disk_left = sizeof body;
    ck_assert_int_eq(write_body(), 0);
    assert_body_written(output);
    /* Full, and at once no more: what was written stays, the rest follows. */
    ck_assert_int_eq(unlink(in_folder(output, NAME)), 0);
    disk_left = 50001;
    disk_more = sizeof body;
    ck_assert_int_eq(write_body(), 0);
    sys_override = NULL;
    assert_body_written(output);
}
END_TEST

/* As NFS does: the descriptor is closed, and only then is the error told. */
static int written_fd;
static bool close_fails(long number, const long args[6], long *result)
{
    if (number == SYS_write)
        written_fd = (int)args[0];
    if (number != SYS_close || (int)args[0] != written_fd)
        return false;
    written_fd = -1;
    sys_raw6(SYS_close, args[0], 0, 0, 0, 0, 0);
    *result = -EDQUOT;
    return true;
}

START_TEST(late_errors_are_seen_at_close)
{
    use_folder(output);
    sys_override = close_fails;
    ck_assert_int_eq(write_body(), -EDQUOT);
    sys_override = NULL;
    assert_names(output, "");
}
END_TEST

START_TEST(interrupted_opens_are_repeated)
{
    use_folder(output);
    fault_set(SYS_openat, 0, 3, -EINTR);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 3);
    assert_body_written(output);
}
END_TEST

static int lowest_written;
static bool note_descriptor(long number, const long args[6], long *result)
{
    (void)result;
    if (number == SYS_write && (int)args[0] < lowest_written)
        lowest_written = (int)args[0];
    return false;
}

START_TEST(standard_descriptors_are_never_used)
{
    int saved[3];
    for (int i = 0; i < 3; i++) {
        saved[i] = fcntl(i, F_DUPFD, 10);
        close(i);
    }
    use_folder(output);
    lowest_written = INT32_MAX;
    sys_override = note_descriptor;
    int error = write_body();
    sys_override = NULL;
    bool closed = true;
    for (int i = 0; i < 3; i++) {
        closed &= fcntl(i, F_GETFD) < 0;
        dup2(saved[i], i);
        close(saved[i]);
    }
    ck_assert_int_eq(error, 0);
    ck_assert(closed);
    ck_assert_int_ge(lowest_written, 3);
    ck_assert_int_lt(lowest_written, INT32_MAX);
    assert_body_written(output);
}
END_TEST

START_TEST(limit_on_file_sizes_kills_nobody)
{
    struct rlimit unlimited;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    struct rlimit small = {sizeof body - 1, unlimited.rlim_max};
    use_folder(output);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int error = write_body();
    int fits = write_body_of(sizeof body - 1, "heap");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    ck_assert_int_eq(error, -EFBIG);
    ck_assert_int_eq(fits, 0);
    assert_names(output, "app.77.0003.heap.pb.gz");
    /* A kernel or filter without the call: the write is tried. */
    fault_set(SYS_prlimit64, 0, 1, -ENOSYS);
    ck_assert_int_eq(write_body(), 0);
    fault_clear();
}
END_TEST

START_TEST(unwritable_for_others_than_root)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(mkdir(output, 0755), 0);
    ck_assert_int_eq(chmod(base, 0755), 0);
    use_folder(output);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    ck_assert_int_eq(write_body(), -EACCES);
    ck_assert_str_eq(report.reason, "permission denied");
    ck_assert_int_eq(seteuid(0), 0);
    assert_names(output, "");
    /* A drop box: it may be written to but not read. */
    ck_assert_int_eq(chmod(output, 01733), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    ck_assert_int_eq(write_body(), 0);
    ck_assert(report.unlisted);
    ck_assert_int_eq(seteuid(0), 0);
    assert_names(output, NAME);
    ck_assert_int_eq(write_body_of(1, "heap"), 0);
    ck_assert(!report.unlisted);
}
END_TEST

/* --- The limit, as far as it is the backend's (see check_output_limit) ----------------------- */

START_TEST(limit_is_kept)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    write_file_at(in_folder(output, "old.1.0000.cpu.pb.gz"), 500, 1000000000);
    write_file_at(in_folder(output, "new.1.0000.cpu.pb.gz"), 500, 2000000000);
    write_file_at(in_folder(output, "notes.txt"), 500, 1000000000);
    ck_assert_int_eq(file_backend_init(&backend, output, NULL, 1000, "app", 77), 0);
    ck_assert_int_eq(write_body_of(500, "cpu"), 0);
    assert_names(output, NAME " new.1.0000.cpu.pb.gz notes.txt");
    ck_assert_uint_eq(report.removed.count, 1);
    ck_assert_uint_eq(report.removed.bytes, 500);
    ck_assert_uint_eq(stats_get(STAT_FILES_REMOVED), 1);
    /* Exactly the limit is allowed, more never is, and then nothing goes. */
    ck_assert_int_eq(write_body_of(1001, "heap"), -EFBIG);
    ck_assert(report.hopeless);
    assert_names(output, NAME " new.1.0000.cpu.pb.gz notes.txt");
    ck_assert_int_eq(write_body_of(1000, "heap"), 0);
    assert_names(output, "app.77.0003.heap.pb.gz notes.txt");
    ck_assert(!report.hopeless);
}
END_TEST

static int looks;

static bool count_looks(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    looks += number == SYS_getdents64;
    return false;
}

/* Each look at an empty folder is two calls. 400 files of 1000 bytes are 1/2684 of the limit: 0.095
 * looks are expected, and the probability of more than four is 6e-8. Of files of a 16th of the
 * limit each has one. */
START_TEST(looks_at_the_folder_are_few)
{
    use_folder(output);
    ck_assert_int_eq(write_body(), 0); /* the folder is there */
    unlink(in_folder(output, NAME));
    sys_override = count_looks;
    backend.limit = (uint64_t)1 << 30;
    for (int i = 0; i < 400; i++) {
        ck_assert_int_eq(write_body_of(1000, "cpu"), 0);
        unlink(in_folder(output, NAME));
    }
    ck_assert_int_le(looks, 8);
    looks = 0;
    backend.limit = 16000;
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(write_body_of(1000, "cpu"), 0);
        unlink(in_folder(output, NAME));
    }
    sys_override = NULL;
    ck_assert_int_eq(looks, 20);
}
END_TEST

START_TEST(limit_that_cannot_be_kept)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    write_file_at(in_folder(output, "old.1.0000.cpu.pb.gz"), 500, 1000000000);
    ck_assert_int_eq(file_backend_init(&backend, output, NULL, 600, "app", 77), 0);
    fault_set(SYS_unlinkat, 0, 1, -EPERM);
    ck_assert_int_eq(write_body_of(500, "cpu"), -EDQUOT);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_str_eq(report.reason,
                     "LIBAGENT_OUTPUT_LIMIT is reached and old profiles cannot be removed");
    assert_names(output, "old.1.0000.cpu.pb.gz");
}
END_TEST

START_TEST(unknown_family_is_refused)
{
    use_folder(output);
    ck_assert_int_eq(write_body_of(1, "frozen"), -EINVAL);
    ck_assert(report.hopeless);
    ck_assert_int_eq(write_body_of(1, ""), -EINVAL);
    ck_assert_int_eq(write_body_of(1, "../cpu"), -EINVAL);
    ck_assert(!file_exists(output));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("file_backend");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, backend_setup, backend_teardown);
    tcase_add_loop_test(all, taken_names_are_left_alone, 0, 2);
    tcase_add_test(all, names_end_with_the_time_and_then_end);
    tcase_add_loop_test(all, link_where_rename_cannot, 0, 3);
    tcase_add_test(all, taken_names_without_links);
    tcase_add_test(all, neither_link_nor_rename);
    tcase_add_test(all, taken_temporary_names);
    tcase_add_loop_test(all, faults_leave_nothing_and_can_be_tried_again, 0,
                        sizeof faults / sizeof faults[0]);
    tcase_add_loop_test(all, short_and_interrupted_writes, 0, 4);
    tcase_add_test(all, disk_fills_up_in_the_middle);
    tcase_add_test(all, late_errors_are_seen_at_close);
    tcase_add_test(all, interrupted_opens_are_repeated);
    tcase_add_test(all, standard_descriptors_are_never_used);
    tcase_add_test(all, limit_on_file_sizes_kills_nobody);
    tcase_add_test(all, unwritable_for_others_than_root);
    tcase_add_test(all, limit_is_kept);
    tcase_add_test(all, looks_at_the_folder_are_few);
    tcase_add_test(all, limit_that_cannot_be_kept);
    tcase_add_test(all, unknown_family_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
