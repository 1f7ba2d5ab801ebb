/* output_limit.h: keeps the profiles in a folder below LIBAGENT_OUTPUT_LIMIT.
 *
 * What counts, and may be removed, are regular files of our effective user whose names are
 * profile names (of any program and process: the limit is the folder's), and temporaries of
 * ours older than an hour, left by processes that were killed while they wrote. The oldest
 * (mtime, then name) go first. Younger temporaries may be another process's work: untouched.
 *
 * Two processes that make room at the same time may remove a few files more than needed; a file
 * that has gone meanwhile is no error.
 *
 * Owns: nothing. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_OUTPUT_LIMIT_H
#define LIBAGENT_OUTPUT_LIMIT_H

#include <stdint.h>

#include "agent/base/compiler.h"

struct removed_files {
    uint32_t count;
    uint64_t bytes;
};

/* Removes files in the folder (a descriptor that may be O_PATH) until `target` bytes are left at
 * most. 0; -EDQUOT when what is in the way cannot be removed; another negative errno when the
 * folder cannot be listed. Adds to STAT_FILES_REMOVED. */
int output_limit_make_room(int folder, uint64_t target, uint64_t now_unix_ns,
                           struct removed_files *removed) MUST_USE;

#endif
