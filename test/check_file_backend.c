/* Profiles into files: the folder's rules, names that are taken, and every fault on the way. The
 * suite runs as root too, who is refused nothing: refusals are made by owners, links, and
 * answered system calls, and some again as another user. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/temp_folder.h"
#include "uploader/file_backend.h"

#define NAME "app.77.0003.cpu.pb.gz"

enum { NOBODY = 65534 };

static const uint64_t end_ms = 1700000060000;
static const uint64_t now_ns = 1700000061000000123;

static char base[64];    /* of this test */
static char output[128]; /* base/out, made by the test or by the backend */
static char default_folder[128];
static struct file_backend backend;
static struct file_report report;
static char body[100000];

static void setup(void)
{
    strcpy(base, temp_folder_make());
    snprintf(output, sizeof output, "%s/out", base);
    snprintf(default_folder, sizeof default_folder, "%s/libagent-%u", base, (unsigned)geteuid());
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 + i / 251);
    umask(022);
}

static void teardown(void)
{
    sys_override = NULL;
    umask(022);
    if (geteuid() != getuid())
        ck_assert_int_eq(seteuid(getuid()), 0);
    temp_folder_remove(base);
}

static void use(const char *folder)
{
    ck_assert_int_eq(file_backend_init(&backend, folder, base, 1 << 20, "app", 77), 0);
}

static int write_body_of(size_t size, const char *family)
{
    struct blob_header header = {
        .dialect = "pprof", .end_unix_ns = end_ms * 1000000 + 999999, .sequence = 3};
    strcpy(header.family, family);
    int before = count_descriptors();
    int error =
        file_backend_write(&backend, &header, COMPRESSION_GZIP, body, size, now_ns, &report);
    ck_assert_int_eq(count_descriptors(), before);
    if (error) {
        ck_assert_int_lt(error, 0);
        ck_assert_ptr_nonnull(report.reason);
    } else {
        ck_assert_ptr_null(report.reason);
    }
    return error;
}

static int write_body(void)
{
    return write_body_of(sizeof body, "cpu");
}

static void assert_names(const char *folder, const char *expected)
{
    char *names = list_folder(folder);
    ck_assert_str_eq(names, expected);
    free(names);
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    ck_assert_int_eq(lstat(path, &status), 0);
    return status.st_mode & 07777;
}

static void assert_content(const char *path, const void *data, size_t size)
{
    size_t got;
    char *content = read_file(path, &got);
    ck_assert_uint_eq(got, size);
    ck_assert(memcmp(content, data, size) == 0);
    free(content);
}

/* The file under the name as it should be, and nothing else in the folder. */
static void assert_written(const char *folder)
{
    assert_names(folder, NAME);
    assert_content(in_folder(folder, NAME), body, sizeof body);
    ck_assert_uint_eq(mode_of(in_folder(folder, NAME)), 0600);
    ck_assert_str_eq(report.folder, folder);
    ck_assert_str_eq(report.name, NAME);
}

/* --- The folder ----------------------------------------------------------------------------- */

START_TEST(default_folder_is_made)
{
    static const mode_t umasks[] = {022, 0, 0777};
    umask(umasks[_i]);
    use(NULL);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_uint_eq(mode_of(default_folder), 0700);
    assert_written(default_folder);
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
    use("");
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    umask(0777);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(seteuid(0), 0);
    assert_written(in_folder(base, "libagent-65534"));
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
    use(NULL);
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
    use(output);
    ck_assert_int_eq(write_body(), 0);
    assert_written(output);
    ck_assert_uint_eq(mode_of(in_folder(base, "real")), 0777);
}
END_TEST

START_TEST(given_folder_is_made_one_level)
{
    umask(_i == 0 ? 022 : 0777);
    use(output);
    ck_assert_int_eq(write_body(), 0);
    assert_written(output);
    ck_assert_uint_eq(mode_of(output), 0700);
    use(in_folder(base, "a/b"));
    ck_assert_int_eq(write_body(), -ENOENT);
    ck_assert_str_eq(report.reason, "no such file or directory");
    ck_assert_str_eq(report.folder, in_folder(base, "a/b"));
}
END_TEST

START_TEST(given_folder_that_is_a_file)
{
    write_file(output, "mine", 4);
    use(output);
    ck_assert_int_eq(write_body(), -ENOTDIR);
    ck_assert_str_eq(report.reason, "not a directory");
    assert_content(output, "mine", 4);
}
END_TEST

START_TEST(link_circles_are_told)
{
    ck_assert_int_eq(symlink("out", output), 0);
    use(output);
    ck_assert_int_eq(write_body(), -ELOOP);
}
END_TEST

START_TEST(relative_folder_is_of_the_start)
{
    ck_assert_int_eq(mkdir(output, 0700), 0);
    ck_assert_int_eq(chdir(base), 0);
    use("out");
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(write_body(), 0);
    assert_written(output);

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
    path[0] = '/';
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
    use(deep);
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
    assert_written(deep);
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
    use(NULL);
    sys_override = exchange_folder;
    ck_assert_int_eq(write_body(), 0);
    assert_names(output, "");
    assert_names(in_folder(base, "moved"), NAME);
}
END_TEST

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
    use(output);
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
    use(output);
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
    use(output);
    fault_set(SYS_renameat2, 0, 1, refusals[_i]);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 1);
    assert_written(output);
}
END_TEST

static bool refuse_both(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EPERM;
    return number == SYS_renameat2 || number == SYS_linkat;
}

START_TEST(neither_link_nor_rename)
{
    use(output);
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
    use(output);
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
    use(output);
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
    assert_written(output);
}
END_TEST

static size_t disk_left;  /* bytes until the disk is full */
static size_t write_most; /* bytes that one call takes */
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
    *result = size == 0 ? -ENOSPC : sys_raw6(number, args[0], args[1], (long)size, 0, 0, 0);
    disk_left -= size;
    return true;
}

START_TEST(short_and_interrupted_writes)
{
    static const size_t most[] = {1000, 99999, 1, 4096};
    use(output);
    disk_left = SIZE_MAX;
    write_most = most[_i];
    interrupted = true;
    calls = 0;
    sys_override = small_disk;
    ck_assert_int_eq(write_body(), 0);
    sys_override = NULL;
    ck_assert_int_eq(calls, 2 * (int)((sizeof body + most[_i] - 1) / most[_i]));
    assert_written(output);
}
END_TEST

START_TEST(disk_fills_up_in_the_middle)
{
    use(output);
    disk_left = 50001;
    write_most = 20000;
    sys_override = small_disk;
    ck_assert_int_eq(write_body(), -ENOSPC);
    assert_names(output, "");
    disk_left = sizeof body;
    ck_assert_int_eq(write_body(), 0);
    sys_override = NULL;
    assert_written(output);
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
    use(output);
    sys_override = close_fails;
    ck_assert_int_eq(write_body(), -EDQUOT);
    sys_override = NULL;
    assert_names(output, "");
}
END_TEST

START_TEST(interrupted_opens_are_repeated)
{
    use(output);
    fault_set(SYS_openat, 0, 3, -EINTR);
    ck_assert_int_eq(write_body(), 0);
    ck_assert_int_eq(fault_clear(), 3);
    assert_written(output);
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
    use(output);
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
    assert_written(output);
}
END_TEST

START_TEST(limit_on_file_sizes_kills_nobody)
{
    struct rlimit unlimited;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    struct rlimit small = {sizeof body - 1, unlimited.rlim_max};
    use(output);
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
    use(output);
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
    use(output);
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
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, default_folder_is_made, 0, 3);
    tcase_add_test(all, default_folder_is_of_the_user_of_the_moment);
    tcase_add_test(all, no_tmpdir_is_tmp);
    tcase_add_loop_test(all, default_folder_that_is_a_link_is_refused, 0, 2);
    tcase_add_test(all, default_folder_that_is_a_file_is_refused);
    tcase_add_loop_test(all, default_folder_that_others_may_write_is_refused, 0, 3);
    tcase_add_test(all, default_folder_of_another_is_refused);
    tcase_add_test(all, given_folder_need_only_be_writable);
    tcase_add_loop_test(all, given_folder_is_made_one_level, 0, 2);
    tcase_add_test(all, given_folder_that_is_a_file);
    tcase_add_test(all, link_circles_are_told);
    tcase_add_test(all, relative_folder_is_of_the_start);
    tcase_add_test(all, long_folders_are_refused);
    tcase_add_test(all, vanished_folder);
    tcase_add_test(all, exchanged_folder_is_not_followed);
    tcase_add_loop_test(all, taken_names_are_left_alone, 0, 2);
    tcase_add_test(all, names_end_with_the_time_and_then_end);
    tcase_add_loop_test(all, link_where_rename_cannot, 0, 3);
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
    tcase_add_test(all, limit_that_cannot_be_kept);
    tcase_add_test(all, unknown_family_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
