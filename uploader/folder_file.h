/* folder_file.h: the system calls on files of a folder, by the folder's descriptor.
 *
 * Raw calls under names: what libc has of these is bound to newer versions of glibc than the
 * product may ask for (fstat: 2.33), and sets errno. All return 0 or a descriptor, or a
 * negative errno.
 *
 * Owns: nothing. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_FOLDER_FILE_H
#define LIBAGENT_FOLDER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

struct file_status {
    bool is_regular;
    uint32_t permissions; /* 07777 */
    uint32_t user;
    uint64_t size;
    int64_t mtime_ns; /* since 1970 */
};

/* From now on nothing is made here, and nothing gets its name: -ECANCELED; nor do threads of ours
 * write into the log's file. For a thread that was away too long, and the program's user is another
 * by now. What was so before. Any context. */
bool folder_bar(bool barred);
bool folder_is_barred(void);

/* Opens close-on-exec, and never as descriptor 0, 1 or 2: where the app has closed one of these
 * and shares its table with this thread, its next print would land in the file. */
int folder_open_file(int folder, const char *name, int flags, unsigned mode) MUST_USE;
/* 0, too, where it is there. `made`: it was not; NULL: not asked. */
int folder_make(const char *path, unsigned mode, bool *made) MUST_USE;
/* The folder itself, for getdents64, which an O_PATH descriptor does not serve. */
int folder_open_for_list(int folder) MUST_USE;
/* Calls `each` for each name in the folder. 0 or a negative errno. */
int folder_each_name(int folder, void (*each)(const char *name, void *data), void *data) MUST_USE;
/* Closes and tells what the file system has put off until then (NFS: no space). */
int folder_close_file(int fd) MUST_USE;
/* Of the file itself, never of what a link points to; of `folder` itself when `name` is "". */
int folder_stat(int folder, const char *name, struct file_status *status) MUST_USE;
int folder_unlink(int folder, const char *name);
/* Gives `from` the name `to`, unless that exists: -EEXIST. */
int folder_rename_new(int folder, const char *from, const char *to) MUST_USE;
/* The same, whatever has that name. -ENOENT: another was faster. */
int folder_rename(int folder, const char *from, const char *to) MUST_USE;
/* Its mtime becomes now; never that of what a link points to. */
int folder_touch(int folder, const char *name);
uint32_t folder_user(void); /* the effective one */

#endif
