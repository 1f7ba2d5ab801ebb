#include "uploader/last_files.h"

#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"

void last_files_add(struct last_files *files, const struct blob_header *header,
                    const struct file_report *report)
{
    unsigned i = 0;
    while (i < files->count && (strcmp(files->list[i].family, header->family) != 0 ||
                                strcmp(files->list[i].dialect, header->dialect) != 0))
        i++;
    files->written++;
    if (header->capture[0] || i == ARRAY_SIZE(files->list))
        return;
    struct last_file *last = &files->list[i];
    memcpy(last->family, header->family, sizeof last->family);
    memcpy(last->dialect, header->dialect, sizeof last->dialect);
    format(last->path, sizeof last->path, "%s/%s", report->folder, report->name);
    files->count = MAX_OF(files->count, i + 1);
}

void last_files_text(const struct last_files *files, char *out, size_t size)
{
    size_t length = 0;
    if (size > 0)
        out[0] = 0;
    for (unsigned i = 0; i < files->count; i++) {
        const char *path = files->list[i].path;
        /* Half a path would be a lie. */
        if (length + strlen(path) + 2 <= size)
            length += format(out + length, size - length, "%s%s", length ? " " : "", path);
    }
}

void last_files_forget(struct last_files *files)
{
    files->written = 0;
    files->count = 0;
}
