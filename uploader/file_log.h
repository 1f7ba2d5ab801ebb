/* file_log.h: what the log says of files that were written, or were not.
 *
 * A row of failures is told by one line at its begin and one at its end. Where a disk is full small
 * files are written all the same, between large ones that are not: so the row ends with a file that
 * is as large as the largest of it, or with many, one after the other.
 *
 * Owns: that row, and what is said once. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_FILE_LOG_H
#define LIBAGENT_FILE_LOG_H

#include <stdbool.h>

#include "uploader/blob_queue.h"
#include "uploader/file_backend.h"

/* Nothing has been said yet. */
void file_log_start(void);
/* After file_backend_write of the blob; `last_try`: it is lost now. */
void file_log_written(const struct file_report *report, const struct blob *blob);
void file_log_failed(const struct file_report *report, const struct blob *blob, int error,
                     bool last_try);

#endif
