#include "uploader/folder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "agent/base/buffer.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/sys.h"

enum {
    FIRST_FREE_DESCRIPTOR = 3,
    LIST_BYTES = 32 << 10, /* as much as libc's readdir asks for at once */
};

struct kernel_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static uint32_t is_barred;

bool folder_bar(bool barred)
{
    log_bar_file(barred);
    return exchange_acq_rel(&is_barred, barred) != 0;
}

bool folder_is_barred(void)
{
    return load_acquire(&is_barred) != 0;
}

int folder_open_file(int folder, const char *name, int flags, unsigned mode)
{
    long fd;
    if ((flags & O_CREAT) && folder_is_barred())
        return -ECANCELED;
    do {
        fd = sys_call4(SYS_openat, folder, name, flags | O_CLOEXEC, mode);
    } while (fd == -EINTR);
    if (fd < 0 || fd >= FIRST_FREE_DESCRIPTOR)
        return (int)fd;
    long moved = sys_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR);
    sys_close((int)fd);
    return (int)moved;
}

int folder_make(const char *path, unsigned mode, bool *made)
{
    if (folder_is_barred())
        return -ECANCELED;
    long error = sys_call3(SYS_mkdirat, AT_FDCWD, path, mode);
    if (made)
        *made = error == 0;
    return error == -EEXIST ? 0 : (int)error;
}

int folder_open_for_list(int folder)
{
    return folder_open_file(folder, ".", O_RDONLY | O_DIRECTORY, 0);
}

int folder_each_name(int folder, void (*each)(const char *name, void *data), void *data)
{
    int fd = folder_open_for_list(folder);
    if (fd < 0)
        return fd;
    struct buffer batch = {0};
    uint8_t *entries = buffer_room(&batch, LIST_BYTES);
    long got = entries ? 0 : -ENOMEM;
    /* cppcheck-suppress redundantInitialization; without entries it is the result */
    while (entries && (got = sys_call3(SYS_getdents64, fd, entries, LIST_BYTES)) > 0) {
        for (long at = 0; at < got;) {
            const struct kernel_dirent *entry = (const void *)(entries + at);
            each(entry->name, data);
            at += entry->length;
        }
    }
    buffer_free(&batch);
    sys_close(fd);
    return (int)got;
}

int folder_close_file(int fd)
{
    long error = sys_call1(SYS_close, fd);
    /* Linux has closed the descriptor by then; a second close could hit another's. */
    return error == -EINTR ? 0 : (int)error;
}

int folder_stat(int folder, const char *name, struct file_status *status)
{
    struct stat raw;
    long error = sys_call4(SYS_newfstatat, folder, name, &raw,
                           AT_SYMLINK_NOFOLLOW | (name[0] ? 0 : AT_EMPTY_PATH));
    if (error)
        return (int)error;
    *status = (struct file_status){
        .is_regular = S_ISREG(raw.st_mode),
        .permissions = raw.st_mode & 07777,
        .user = raw.st_uid,
        .size = (uint64_t)raw.st_size,
        .mtime_ns = raw.st_mtim.tv_sec * (int64_t)NS_PER_SEC + raw.st_mtim.tv_nsec,
    };
    return 0;
}

int folder_unlink(int folder, const char *name)
{
    return (int)sys_call3(SYS_unlinkat, folder, name, 0);
}

int folder_rename_new(int folder, const char *from, const char *to)
{
    if (folder_is_barred())
        return -ECANCELED;
    long error = sys_call5(SYS_renameat2, folder, from, folder, to, RENAME_NOREPLACE);
    if (error == 0 || error == -EEXIST)
        return (int)error;
    /* Kernels before 3.15 lack the call, some file systems the flag, some seccomp filters refuse
     * it with an errno of their own choice: so whatever it was, a hard link is tried. It too
     * never replaces. */
    error = sys_call5(SYS_linkat, folder, from, folder, to, 0);
    if (error == 0)
        folder_unlink(folder, from);
    return (int)error;
}

uint32_t folder_user(void)
{
    return (uint32_t)sys_call0(SYS_geteuid);
}

int folder_rename(int folder, const char *from, const char *to)
{
    return (int)sys_call4(SYS_renameat, folder, from, folder, to);
}

int folder_touch(int folder, const char *name)
{
    return (int)sys_call4(SYS_utimensat, folder, name, NULL, AT_SYMLINK_NOFOLLOW);
}
