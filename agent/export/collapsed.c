/* Collapsed stacks, as flamegraph.pl, speedscope and others read them: a line for each stack,
 * `outermost;...;innermost VALUE`, with the value that readers of the family's pprof file show
 * first. Equal stacks of several threads, states and labels are one line. What is not above 0 has
 * no line (of heap-growth: stacks that shrank), as those readers know no such numbers. */
#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/export/families.h"
#include "agent/export/json.h"
#include "agent/export/stack_tree.h"

struct lines {
    struct gathered *gathered;
    const struct export_request *request;
    struct stack_tree tree;
    struct buffer names; /* of the frames, as they stand in lines */
    struct buffer ends;  /* size_t: where each name ends in `names` */
    struct buffer sums;  /* uint64_t: by node */
    struct buffer path;  /* uint32_t: frames of the line in hand, the innermost first */
    struct buffer *out;
};

/* What would end a frame or a line reads a bit differently. */
static void add_name(struct lines *lines, uint32_t string)
{
    size_t length;
    const char *text = string_table_text(&lines->gathered->strings, string, &length);
    char *name = buffer_room(&lines->names, length + 1);
    if (!name)
        return;
    memcpy(name, text, length);
    length = make_printable(name, length);
    for (size_t i = 0; i < length; i++)
        if (name[i] == ';')
            name[i] = ':';
    if (length == 0)
        name[length++] = '?';
    lines->names.size += length;
    buffer_append(&lines->ends, &lines->names.size, sizeof(lines->names.size));
}

static int add_names(struct lines *lines)
{
    uint32_t count;
    const struct tree_frame *frames = tree_frames(&lines->tree, &count);
    for (uint32_t i = 0; i < count; i++)
        add_name(lines, frames[i].name);
    return lines->names.error ? lines->names.error : lines->ends.error;
}

static int add_sums(struct lines *lines)
{
    int value = family_default_value(lines->request, lines->request->family);
    size_t row_count, size;
    uint32_t node_count;
    const struct row *rows = rows_of(&lines->gathered->rows, &row_count);
    (void)tree_nodes(&lines->tree, &node_count);
    size = node_count * sizeof(uint64_t);
    uint64_t *sums = buffer_room(&lines->sums, size);
    if (!sums)
        return -ENOMEM;
    memset(sums, 0, size);
    for (size_t i = 0; i < row_count; i++)
        sums[tree_leaves(&lines->tree)[i]] += family_value_of(&rows[i], value);
    return 0;
}

static void write_line(struct lines *lines, uint32_t node, int64_t sum)
{
    const size_t *ends = (const void *)lines->ends.data;
    uint32_t count;
    const struct tree_node *nodes = tree_nodes(&lines->tree, &count);
    lines->path.size = 0;
    for (; node != TREE_NO_NODE; node = nodes[node].parent)
        buffer_append(&lines->path, &nodes[node].frame, sizeof(nodes[node].frame));
    if (lines->path.error)
        return;
    const uint32_t *path = (const void *)lines->path.data;
    for (size_t i = lines->path.size / sizeof(path[0]); i-- > 0;) {
        size_t start = path[i] ? ends[path[i] - 1] : 0;
        buffer_append(lines->out, lines->names.data + start, ends[path[i]] - start);
        json_raw(lines->out, i ? ";" : " ");
    }
    json_number(lines->out, sum);
    json_raw(lines->out, "\n");
}

static int write_lines(struct lines *lines)
{
    const uint64_t *sums = (const void *)lines->sums.data, limit = lines->request->byte_limit;
    uint32_t count;
    (void)tree_nodes(&lines->tree, &count);
    for (uint32_t i = 0; i < count; i++) {
        if ((int64_t)sums[i] > 0)
            write_line(lines, i, (int64_t)sums[i]);
        if (limit && lines->out->size > limit)
            return -E2BIG;
    }
    return lines->path.error ? lines->path.error : lines->out->error;
}

static int collapsed_write(struct gathered *gathered, const struct export_request *request,
                           struct buffer *out)
{
    struct lines lines = {.gathered = gathered, .request = request, .out = out};
    int error = stack_tree_make(&lines.tree, gathered, false, request->byte_limit);
    if (!error)
        error = add_names(&lines);
    if (!error)
        error = add_sums(&lines);
    if (!error)
        error = write_lines(&lines);
    stack_tree_free(&lines.tree);
    buffer_free(&lines.names);
    buffer_free(&lines.ends);
    buffer_free(&lines.sums);
    buffer_free(&lines.path);
    return error;
}

int export_collapsed(const struct window *window, const struct export_request *request,
                     struct buffer *out)
{
    return gathered_write(window, request, collapsed_write, out);
}
