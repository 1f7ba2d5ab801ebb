#include "uploader/oldest_files.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "agent/base/rng.h"
#include "uploader/folder_file.h"

enum { LOOKS = 256, MARGIN = 32 };

struct file {
    int64_t time;
    uint64_t size;
    size_t name; /* offset in names */
};

bool oldest_files_look_now(uint64_t limit, uint64_t size)
{
    struct rng rng;
    rng_split(&rng);
    return rng_unit(&rng) * (double)limit <= (double)size * LOOKS;
}

uint64_t oldest_files_target(uint64_t limit, uint64_t size)
{
    return limit - size - (size < limit / LOOKS ? limit / MARGIN : 0);
}

void oldest_files_add(struct oldest_files *list, const char *name, int64_t time, uint64_t size)
{
    struct file file = {time, size, list->names.size};
    buffer_append(&list->names, name, strlen(name) + 1);
    buffer_append(&list->files, &file, sizeof(file));
    list->total += size;
}

static const char *name_of(const struct oldest_files *list, const struct file *file)
{
    return (const char *)list->names.data + file->name;
}

static bool is_older(const struct oldest_files *list, const struct file *a, const struct file *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    return strcmp(name_of(list, a), name_of(list, b)) < 0;
}

/* Restores the order of a heap (the oldest at 0) whose element `at` may be too young. */
static void sift_down(const struct oldest_files *list, struct file *files, size_t count, size_t at)
{
    for (;;) {
        size_t oldest = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (is_older(list, &files[child], &files[oldest]))
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
int oldest_files_remove(struct oldest_files *list, int folder, uint64_t target,
                        void (*removed)(const char *name, uint64_t size, void *data), void *data)
{
    if (list->files.error || list->names.error)
        return -ENOMEM;
    if (list->total <= target)
        return 0;
    struct file *files = (struct file *)(void *)list->files.data;
    size_t count = list->files.size / sizeof(*files);
    for (size_t i = count / 2; i-- > 0;)
        sift_down(list, files, count, i);
    while (list->total > target && count > 0) {
        struct file file = files[0];
        files[0] = files[--count];
        sift_down(list, files, count, 0);
        int error = folder_unlink(folder, name_of(list, &file));
        if (error == 0)
            removed(name_of(list, &file), file.size, data);
        if (error == 0 || error == -ENOENT)
            list->total -= file.size;
    }
    return list->total > target ? -EDQUOT : 0;
}

void oldest_files_free(struct oldest_files *list)
{
    buffer_free(&list->files);
    buffer_free(&list->names);
}
