/* file_backend.h: a profile into a file of its own, in the folder LIBAGENT_OUTPUT.
 *
 * Flow of one write:
 *
 *   1. The folder is opened by its path, anew each time: it may have been removed or mounted
 *      over meanwhile, and between writes nothing stays open (where this thread shares the
 *      app's descriptor table, the numbers are the app's). All that follows is relative to that
 *      descriptor, so nobody can exchange the folder under it.
 *      - The default folder, ${TMPDIR:-/tmp}/libagent-UID, lies where anyone may write. It is
 *        made 0700, and refused when it is a link, not a folder, another user's, or writable by
 *        group or others. UID is the effective one at the time of the write: daemons give up
 *        root after they have started.
 *      - A given folder need only be writable; links are followed. A missing one is made 0700,
 *        one level.
 *   2. Room is made below the limit (output_limit.h).
 *   3. The bytes go to a temporary name (O_EXCL, O_NOFOLLOW), mode 0600 whatever the umask.
 *   4. The file gets its name in a way that never replaces: renameat2(RENAME_NOREPLACE), or a
 *      hard link where that is lacking. Where the name is taken, SEQ becomes SEQ-2 to SEQ-9,
 *      then SEQ-T, T the end of the window in milliseconds since 1970, or one of the few after.
 *
 * No fsync: it would make a busy disk slower for the app, to save one window when the machine
 * loses power; a file torn by that is told by its checksum. After a failure the temporary is
 * gone, and the same write can be tried again.
 *
 * Owns: nothing. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_FILE_BACKEND_H
#define LIBAGENT_FILE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/options.h"
#include "uploader/blob.h"
#include "uploader/output_limit.h"
#include "uploader/profile_name.h"

enum { FILE_PATH_SIZE = 4096 }; /* PATH_MAX */

struct file_backend {
    bool is_default;
    int pid;
    uint64_t limit; /* bytes of all profiles in the folder */
    char program[PROFILE_PROGRAM_SIZE];
    char folder[FILE_PATH_SIZE]; /* absolute; of the default folder, the one that it lies in. Last,
                                  * so that a start touches one page */
};

/* What became of a write, for the log. */
struct file_report {
    char folder[FILE_PATH_SIZE];
    char name[PROFILE_NAME_SIZE]; /* of the file, after success */
    const char *reason;           /* after failure, in words; static */
    bool hopeless;                /* after failure: another try is useless */
    bool unlisted;                /* the folder may not be read, so the limit was not kept */
    struct removed_files removed;
};

/* 0 and the texts are copied, or -ENAMETOOLONG, or the errno of getcwd for a relative folder.
 * `folder` NULL or empty: the default one, in `tmpdir`; that NULL or empty: in /tmp. */
int file_backend_init(struct file_backend *backend, const char *folder, const char *tmpdir,
                      uint64_t limit, const char *program, int pid) MUST_USE;
/* Writes `size` bytes, already compressed as `compression` says. 0, or a negative errno. */
int file_backend_write(const struct file_backend *backend, const struct blob_header *header,
                       enum compression compression, const void *data, size_t size,
                       uint64_t now_unix_ns, struct file_report *report) MUST_USE;

#endif
