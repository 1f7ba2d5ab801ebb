#include "uploader/file_log.h"

#include "agent/base/log.h"

/* More than a window has, of which each may have one that is too large: five families in three
 * formats. */
enum { WRITTEN_AFTER_FAILURE = 16 };

static unsigned row_left;  /* files until the row is over, 0: there is none */
static size_t row_largest; /* bytes */
static bool said_hopeless;
static bool said_unlisted;

void file_log_start(void)
{
    row_left = 0;
    said_hopeless = said_unlisted = false;
}

void file_log_written(const struct file_report *report, const struct blob *blob)
{
    if (row_left && (blob->body.size >= row_largest || --row_left == 0)) {
        row_left = 0;
        log_info("profiles can be written to %s again", report->folder);
    }
    if (report->removed.count > 0)
        log_info("old profiles removed from %s: %u (%llu bytes): LIBAGENT_OUTPUT_LIMIT",
                 report->folder, report->removed.count, (unsigned long long)report->removed.bytes);
    if (report->unlisted && !said_unlisted) {
        said_unlisted = true;
        log_warn("%s may not be read: LIBAGENT_OUTPUT_LIMIT is not kept there", report->folder);
    }
}

static void failed_hopelessly(const struct file_report *report, const struct blob *blob)
{
    if (!said_hopeless)
        log_error("a profile of family %s was dropped: %s", blob->header.family, report->reason);
    said_hopeless = true;
}

void file_log_failed(const struct file_report *report, const struct blob *blob, int error,
                     bool last_try)
{
    if (report->hopeless) {
        failed_hopelessly(report, blob);
        return;
    }
    if (!row_left) {
        row_largest = 0;
        log_error("cannot write profiles to %s: %s (errno %d)%s", report->folder, report->reason,
                  -error, last_try ? "" : "; the latest are kept and tried again");
    }
    row_left = WRITTEN_AFTER_FAILURE;
    /* One that could not be compressed has no size of a file. */
    row_largest = MAX_OF(row_largest, blob->compressed ? blob->body.size : 0);
}
