/* last_files.h: how many files were written, and which was the last one of each family and format.
 *
 * Owns: nothing; the table is its user's. Context: any. Locks: its user's (LOCK_UPLOADER). */
#ifndef LIBAGENT_LAST_FILES_H
#define LIBAGENT_LAST_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "uploader/blob.h"
#include "uploader/file_backend.h"

struct last_file {
    char family[sizeof(((struct blob_header *)0)->family)];
    char dialect[sizeof(((struct blob_header *)0)->dialect)];
    char path[FILE_PATH_SIZE + PROFILE_NAME_SIZE];
};

/* Zeroes are an empty one; what is behind `count` is never touched, which takes no memory. */
struct last_files {
    uint32_t written;
    unsigned count;
    struct last_file list[PROFILE_FAMILIES * PROFILE_FORMATS];
};

/* Those of captures count, and are not among the last. */
void last_files_add(struct last_files *files, const struct blob_header *header,
                    const struct file_report *report);
/* The paths, joined by spaces; whole ones, as many as there is room for. */
void last_files_text(const struct last_files *files, char *out, size_t size);
void last_files_forget(struct last_files *files);

#endif
