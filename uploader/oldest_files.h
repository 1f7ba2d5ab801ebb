/* oldest_files.h: files of a folder of which the oldest are to go, until the rest is within a
 * limit.
 *
 * A look at a folder is a system call for each file in it, too much for each one that is written
 * where they are small. Drawn at random there is one for each 256th of the limit that is written,
 * by whichever process; it makes room for eight times as much, so that the limit is passed once in
 * 3,000 looks.
 *
 * Owns: nothing; a list is its user's. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_OLDEST_FILES_H
#define LIBAGENT_OLDEST_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"

/* Whether the folder is looked at before a file of `size` bytes is written. */
bool oldest_files_look_now(uint64_t limit, uint64_t size);
/* What a look then leaves, `size` <= `limit`. */
uint64_t oldest_files_target(uint64_t limit, uint64_t size);

/* All 0 at first. */
struct oldest_files {
    struct buffer files;
    struct buffer names; /* 0-terminated */
    uint64_t total;      /* bytes of those in it, and what the user adds */
};

/* The older go first, of those of one time by name. */
void oldest_files_add(struct oldest_files *list, const char *name, int64_t time, uint64_t size);
/* Until the total is `target` at most. `removed`: of each, but of one that has gone meanwhile. 0;
 * -EDQUOT: what is in the way cannot be removed; -ENOMEM. */
int oldest_files_remove(struct oldest_files *list, int folder, uint64_t target,
                        void (*removed)(const char *name, uint64_t size, void *data),
                        void *data) MUST_USE;
void oldest_files_free(struct oldest_files *list);

#endif
