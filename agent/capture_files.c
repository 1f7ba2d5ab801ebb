#include "agent/capture_files.h"

#include <string.h>

#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/label_words.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/thread/captures.h"
#include "agent/unwind/unwinder.h"
#include "uploader/uploader.h"

enum { COMMENT_SIZE = 160, COMMENTS = 3 };

/* The captures that have rows in a window. */
struct found {
    uint32_t count;
    struct {
        const struct intern_entry *entry;
        uint32_t families; /* 1 << family of each that it has rows of */
    } captures[CAPTURES_MAX];
};

static void find(struct found *found, const struct intern_entry *entry, enum record_family family)
{
    uint32_t i = 0;
    while (i < found->count && found->captures[i].entry != entry)
        i++;
    if (i == CAPTURES_MAX) /* one that began in the place of another, when the windows turned */
        return;
    found->captures[i].entry = entry;
    found->captures[i].families |= 1u << family;
    found->count = MAX_OF(found->count, i + 1);
}

static int look(const struct window_row *row, void *found)
{
    if (row->labels[ROW_CAPTURE])
        find(found, row->labels[ROW_CAPTURE], row->family);
    if (row->labels[ROW_PROCESS_CAPTURE])
        find(found, row->labels[ROW_PROCESS_CAPTURE], row->family);
    return 0;
}

/* A capture's words: its name, its number. */
struct title {
    struct user_label name, number;
};

static bool read_title(const struct intern_entry *entry, struct title *title)
{
    const uint64_t *at = entry->data, *end = entry->data + entry->words;
    return label_next(&at, end, &title->name) && label_next(&at, end, &title->number);
}

/* The slice's part in the window: as the request has it, all of the window, where its capture is
 * known no more. */
static const char *set_times(struct export_request *request, const struct window *window,
                             const struct capture *capture, uint64_t told_ns)
{
    static const char *const parts[2][2] = {{"a part", "the last part"},
                                            {"the first part", "whole"}};
    uint64_t begin = window->start_monotonic_ns, end = begin + request->duration_ns;
    if (!capture)
        return parts[0][0];
    uint64_t until = load_relaxed(&capture->until_ns), since = load_relaxed(&capture->begin_ns);
    bool begins = since >= begin;
    bool ends = load_acquire(&capture->state) == CAPTURE_ENDED && until <= told_ns;
    begin = MIN_OF(MAX_OF(begin, since), end);
    end = MAX_OF(MIN_OF(end, until), begin);
    request->start_unix_ns += begin - window->start_monotonic_ns;
    request->duration_ns = MAX_OF(end - begin, (uint64_t)1);
    return parts[begins][ends];
}

static int submit_one(const struct window *window, const struct export_request *whole,
                      uint64_t told_ns, const struct intern_entry *entry, uint32_t families,
                      int (*submit)(const struct window *, const struct export_request *))
{
    char name[sizeof(((struct blob_header *)0)->capture)], texts[COMMENTS][COMMENT_SIZE];
    const char *comments[COMMENTS + 1] = {texts[0], texts[1], texts[2], NULL};
    struct export_request request = *whole;
    struct title title;
    if (!read_title(entry, &title))
        return 0;
    const char *part =
        set_times(&request, window, capture_of_number((uint32_t)title.number.number), told_ns);
    format(name, sizeof(name), "%.*s.%u", (int)title.name.text_size, title.name.text,
           (unsigned)title.number.number);
    format(texts[0], COMMENT_SIZE, "libagent: capture: %s, %s", name, part);
    format(texts[1], COMMENT_SIZE, "libagent: service: %s", options.service ? options.service : "");
    format(texts[2], COMMENT_SIZE, "libagent: unwinder: %s", unwinder->name);
    request.comments = comments;
    request.capture = entry;
    request.capture_name = name;
    int result = 0, blobs = 0;
    for (int family = 0; family < RECORD_FAMILIES; family++) {
        if (!(families & request.families & 1u << family))
            continue;
        request.family = (enum record_family)family;
        request.period =
            family == RECORD_ALLOC ? options.alloc_interval : NS_PER_SEC / options.frequency;
        int submitted = submit(window, &request);
        if (submitted < 0) {
            log_error("a file of the capture %s is lost: %s (errno %d)", name,
                      error_text(submitted), -submitted);
            stats_add(STAT_CAPTURES_DROPPED, 1);
            result = submitted;
        }
        blobs += MAX_OF(submitted, 0);
    }
    return result ? result : blobs;
}

int capture_files_submit(const struct window *window, const struct export_request *request,
                         uint64_t told_ns,
                         int (*submit)(const struct window *, const struct export_request *))
{
    struct found found = {0};
    int result = 0, blobs = 0;
    (void)window_each(window, look, &found);
    for (uint32_t i = 0; i < found.count; i++) {
        int submitted = submit_one(window, request, told_ns, found.captures[i].entry,
                                   found.captures[i].families, submit);
        if (submitted < 0)
            result = submitted;
        blobs += MAX_OF(submitted, 0);
    }
    return result ? result : blobs;
}
