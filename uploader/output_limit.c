#include "uploader/output_limit.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent/base/buffer.h"
#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "uploader/folder_file.h"
#include "uploader/profile_name.h"

#define STALE_NS (3600 * NS_PER_SEC)

struct file {
    int64_t mtime_ns;
    uint64_t size;
    size_t name; /* offset in names */
};

/* The files of ours in the folder. */
struct listing {
    struct buffer files; /* struct file */
    struct buffer names; /* 0-terminated */
    uint64_t total;      /* bytes */
};

static void add_file(struct listing *listing, int folder, const char *name, uint32_t user,
                     uint64_t now_unix_ns)
{
    bool temporary = profile_name_matches_temporary(name);
    if (!temporary && !profile_name_matches(name))
        return;
    struct file_status status;
    if (folder_stat(folder, name, &status) < 0 || !status.is_regular || status.user != user)
        return;
    if (temporary && status.mtime_ns + (int64_t)STALE_NS >= (int64_t)now_unix_ns)
        return;
    struct file file = {status.mtime_ns, status.size, listing->names.size};
    buffer_append(&listing->names, name, strlen(name) + 1);
    buffer_append(&listing->files, &file, sizeof file);
    listing->total += file.size;
}

struct list_context {
    struct listing *listing;
    int folder;
    uint32_t user;
    uint64_t now_unix_ns;
};

static void add_name(const char *name, void *data)
{
    const struct list_context *context = data;
    add_file(context->listing, context->folder, name, context->user, context->now_unix_ns);
}

static int list_files(struct listing *listing, int folder, uint64_t now_unix_ns)
{
    struct list_context context = {listing, folder, folder_user(), now_unix_ns};
    int error = folder_each_name(folder, add_name, &context);
    if (error)
        return error;
    return listing->files.error ? listing->files.error : listing->names.error;
}

static bool is_older(const struct listing *listing, const struct file *a, const struct file *b)
{
    if (a->mtime_ns != b->mtime_ns)
        return a->mtime_ns < b->mtime_ns;
    const char *names = (const char *)listing->names.data;
    return strcmp(names + a->name, names + b->name) < 0;
}

/* Restores the order of a heap (the oldest at 0) whose element `at` may be too young. */
static void sift_down(const struct listing *listing, struct file *files, size_t count, size_t at)
{
    for (;;) {
        size_t oldest = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (is_older(listing, &files[child], &files[oldest]))
                oldest = child;
        }
        if (oldest == at)
            return;
        struct file moved = files[at];
        files[at] = files[oldest];
        files[oldest] = moved;
        at = oldest;
    }
}

/* A heap rather than a sort: mostly one file goes of thousands, and qsort would malloc. */
static int remove_oldest(struct listing *listing, int folder, uint64_t target,
                         struct removed_files *removed)
{
    struct file *files = (struct file *)(void *)listing->files.data;
    size_t count = listing->files.size / sizeof *files;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(listing, files, count, i);
    while (listing->total > target && count > 0) {
        struct file file = files[0];
        files[0] = files[--count];
        sift_down(listing, files, count, 0);
        int error = folder_unlink(folder, (const char *)listing->names.data + file.name);
        if (error == 0) {
            removed->count++;
            removed->bytes += file.size;
        }
        if (error == 0 || error == -ENOENT)
            listing->total -= file.size;
    }
    return listing->total > target ? -EDQUOT : 0;
}

int output_limit_make_room(int folder, uint64_t limit, uint64_t size, uint64_t now_unix_ns,
                           struct removed_files *removed)
{
    *removed = (struct removed_files){0};
    struct listing listing = {0};
    int error = list_files(&listing, folder, now_unix_ns);
    if (!error && listing.total > limit - size)
        error = remove_oldest(&listing, folder, limit - size, removed);
    buffer_free(&listing.files);
    buffer_free(&listing.names);
    stats_add(STAT_FILES_REMOVED, removed->count);
    return error;
}
