#include "uploader/file_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "agent/base/clock.h"
#include "agent/base/default_folder.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "uploader/folder_file.h"
#include "uploader/oldest_files.h"

enum {
    FOLDER_MODE = 0700,
    FILE_MODE = 0600,
    WRITABLE_BY_OTHERS = 0022,
    COUNTED_NAMES = 9,   /* SEQ, SEQ-2 to SEQ-9; counting on and on would be slow one day */
    TIMED_NAMES = 8,     /* for processes that end a window in the same millisecond */
    TEMPORARY_NAMES = 8, /* for processes of one pid that write in the same nanosecond */
};

int file_backend_init(struct file_backend *backend, const char *folder, const char *tmpdir,
                      uint64_t limit, const char *program, int pid)
{
    backend->is_default = !folder || !folder[0];
    if (backend->is_default)
        folder = default_folder_parent(tmpdir);
    backend->limit = limit;
    backend->pid = pid;
    profile_name_program(backend->program, program);
    return sys_absolute(folder, backend->folder, sizeof backend->folder);
}

/* After mkdir: a umask may have taken bits of the owner. The descriptor is O_PATH, which fchmod
 * refuses, and a path could lead elsewhere by now; so through /proc, through the thread's own
 * entry because its descriptor table may not be the process's. */
static int repair_mode(int fd)
{
    struct file_status status;
    int error = folder_stat(fd, "", &status);
    if (error || (status.permissions & FOLDER_MODE) == FOLDER_MODE)
        return error;
    char path[64];
    format(path, sizeof path, "/proc/self/task/%d/fd/%d", sys_tid(), fd);
    return (int)sys_call3(SYS_fchmodat, AT_FDCWD, path, FOLDER_MODE);
}

/* Why the default folder must not be used, or NULL. */
static const char *distrust(const struct file_status *status)
{
    if (status->user != folder_user())
        return "refused: it belongs to another user";
    if (status->permissions & WRITABLE_BY_OTHERS)
        return "refused: group or others may write to it";
    return NULL;
}

/* Step 1. An O_PATH descriptor, or a negative errno; report->folder is the path. */
static int open_folder(const struct file_backend *backend, struct file_report *report)
{
    size_t length = format(report->folder, sizeof report->folder, "%s", backend->folder);
    if (backend->is_default) {
        length += format(report->folder + length, sizeof report->folder - length,
                         "/" DEFAULT_FOLDER_NAME, (unsigned)folder_user());
        if (length + 1 >= sizeof report->folder)
            return -ENAMETOOLONG;
    }
    int flags = O_PATH | O_DIRECTORY | (backend->is_default ? O_NOFOLLOW : 0);
    int fd = folder_open_file(AT_FDCWD, report->folder, flags, 0);
    if (fd == -ENOENT) {
        bool made;
        int error = folder_make(report->folder, FOLDER_MODE, &made);
        if (error)
            return error;
        fd = folder_open_file(AT_FDCWD, report->folder, flags, 0);
        error = fd >= 0 && made ? repair_mode(fd) : 0;
        if (error) {
            sys_close(fd);
            return error;
        }
    }
    if (!backend->is_default)
        return fd;
    if (fd == -ENOTDIR || fd == -ELOOP)
        report->reason = "refused: it is a link or not a folder";
    if (fd < 0)
        return fd;
    struct file_status status;
    int error = folder_stat(fd, "", &status);
    if (!error) {
        report->reason = distrust(&status);
        error = report->reason ? -EPERM : 0;
    }
    if (!error)
        return fd;
    sys_close(fd);
    return error;
}

static int may_be_listed(int folder)
{
    int fd = folder_open_for_list(folder);
    if (fd < 0)
        return fd;
    sys_close(fd);
    return 0;
}

/* Step 2. */
static int keep_limit(const struct file_backend *backend, int folder, size_t size,
                      uint64_t now_unix_ns, struct file_report *report)
{
    if (size > backend->limit) {
        report->reason = "the profile alone exceeds LIBAGENT_OUTPUT_LIMIT";
        report->hopeless = true;
        return -EFBIG;
    }
    int error = oldest_files_look_now(backend->limit, size)
                    ? output_limit_make_room(folder, oldest_files_target(backend->limit, size),
                                             now_unix_ns, &report->removed)
                    : may_be_listed(folder);
    if (error == -EDQUOT)
        report->reason = "LIBAGENT_OUTPUT_LIMIT is reached and old profiles cannot be removed";
    if (error == -EACCES) {
        report->unlisted = true;
        return 0;
    }
    return error;
}

/* A write beyond the limit on file sizes raises SIGXFSZ, which by default kills the program;
 * at exit this thread may be one of the app's, where it is not blocked. */
static int check_size_limit(size_t size, struct file_report *report)
{
    uint64_t limit[2]; /* struct rlimit64: soft, hard */
    if (sys_call4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) < 0 || size <= limit[0])
        return 0;
    report->reason = "the profile exceeds the limit on file sizes (ulimit -f)";
    return -EFBIG;
}

static int write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        long done = sys_write(fd, data, size);
        if (done < 0)
            return (int)done;
        if (done == 0)
            return -EIO;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

/* Step 3. On failure nothing is left. */
static int write_temporary(const struct file_backend *backend, int folder, const void *data,
                           size_t size, uint64_t now_unix_ns, char name[PROFILE_NAME_SIZE])
{
    int fd = -EEXIST;
    for (int i = 0; i < TEMPORARY_NAMES && fd == -EEXIST; i++) {
        profile_name_make_temporary(name, backend->pid, now_unix_ns + (uint64_t)i);
        fd = folder_open_file(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, FILE_MODE);
    }
    if (fd < 0)
        return fd;
    int error = (int)sys_call2(SYS_fchmod, fd, FILE_MODE);
    if (!error)
        error = write_all(fd, data, size);
    int close_error = folder_close_file(fd);
    if (!error)
        error = close_error;
    if (error)
        folder_unlink(folder, name);
    return error;
}

/* The -N of the name at the i-th try. */
static uint64_t copy_number(unsigned i, uint64_t end_unix_ns)
{
    if (i < COUNTED_NAMES)
        return i == 0 ? 0 : i + 1;
    return end_unix_ns / NS_PER_MS + (i - COUNTED_NAMES);
}

/* Step 4. On failure the temporary is removed. */
static int publish(const struct file_backend *backend, int folder, const char *temporary,
                   const struct blob_header *header, enum compression compression,
                   char name[PROFILE_NAME_SIZE])
{
    int error = -EEXIST;
    for (unsigned i = 0; i < COUNTED_NAMES + TIMED_NAMES && error == -EEXIST; i++) {
        profile_name_make(name, backend->program, backend->pid, header, compression,
                          copy_number(i, header->end_unix_ns));
        error = folder_rename_new(folder, temporary, name);
    }
    if (error)
        folder_unlink(folder, temporary);
    return error;
}

int file_backend_write(const struct file_backend *backend, const struct blob_header *header,
                       enum compression compression, const void *data, size_t size,
                       uint64_t now_unix_ns, struct file_report *report)
{
    report->name[0] = 0;
    report->reason = NULL;
    report->hopeless = report->unlisted = false;
    report->removed = (struct removed_files){0};
    /* The limit would not know the file again. */
    if (!profile_name_family_known(header->family)) {
        report->folder[0] = 0;
        report->reason = "not a family of profiles";
        report->hopeless = true;
        return -EINVAL;
    }

    char temporary[PROFILE_NAME_SIZE];
    int folder = open_folder(backend, report);
    int error = MIN_OF(folder, 0);
    if (!error)
        error = keep_limit(backend, folder, size, now_unix_ns, report);
    if (!error)
        error = check_size_limit(size, report);
    if (!error)
        error = write_temporary(backend, folder, data, size, now_unix_ns, temporary);
    if (!error)
        error = publish(backend, folder, temporary, header, compression, report->name);
    if (folder >= 0)
        sys_close(folder);
    if (error && !report->reason)
        report->reason = error_text(error);
    return error;
}
