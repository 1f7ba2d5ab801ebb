#include "uploader/output_limit.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "uploader/folder_file.h"
#include "uploader/oldest_files.h"
#include "uploader/profile_name.h"

#define STALE_NS (3600 * NS_PER_SEC)

static void add_file(struct oldest_files *list, int folder, const char *name, uint32_t user,
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
    oldest_files_add(list, name, status.mtime_ns, status.size);
}

struct list_context {
    struct oldest_files *list;
    int folder;
    uint32_t user;
    uint64_t now_unix_ns;
};

static void add_name(const char *name, void *data)
{
    const struct list_context *context = data;
    add_file(context->list, context->folder, name, context->user, context->now_unix_ns);
}

static void count_removed(const char *name, uint64_t size, void *data)
{
    struct removed_files *removed = data;
    (void)name;
    removed->count++;
    removed->bytes += size;
}

int output_limit_make_room(int folder, uint64_t target, uint64_t now_unix_ns,
                           struct removed_files *removed)
{
    *removed = (struct removed_files){0};
    struct oldest_files list = {0};
    struct list_context context = {&list, folder, folder_user(), now_unix_ns};
    int error = folder_each_name(folder, add_name, &context);
    if (!error)
        error = oldest_files_remove(&list, folder, target, count_removed, removed);
    oldest_files_free(&list);
    stats_add(STAT_FILES_REMOVED, removed->count);
    return error;
}
