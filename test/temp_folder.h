/* temp_folder.h: a folder of a test's own, its files, and faults of system calls on them.
 *
 * Owns: the fault that is set (one at a time; sys_override). Used by suites that write files. */
#ifndef LIBAGENT_TEST_TEMP_FOLDER_H
#define LIBAGENT_TEST_TEMP_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/temp_path.h"

/* Makes an empty folder (mode 0700) in TMPDIR and returns its path, valid until the next call. */
const char *temp_folder_make(void);
void temp_folder_remove(const char *path);
/* "FOLDER/NAME"; good for the next 8 calls. */
const char *in_folder(const char *folder, const char *name);

void write_file(const char *path, const void *data, size_t size);
/* A file of `size` bytes, last changed at `mtime_ns`. */
void write_file_at(const char *path, size_t size, int64_t mtime_ns);
/* The whole file, to be freed; fails the test if it cannot be read. */
char *read_file(const char *path, size_t *size);
bool file_exists(const char *path); /* of the name itself, links not followed */
/* The names in a folder, sorted, joined by spaces; to be freed. */
char *list_folder(const char *path);
int count_files(const char *path);
/* Descriptors that the process has open. */
int count_descriptors(void);

/* The next call number `number`, after `skip` others of it, and the `count` - 1 calls of it after
 * that, give `result` (-errno) instead of being made. */
void fault_set(long number, int skip, int count, long result);
/* As fault_set, for openat calls with all bits of `flags` alone. */
void fault_set_open(int flags, int skip, int count, long result);
/* How many calls were answered by the fault. Ends it. */
int fault_clear(void);

#endif
