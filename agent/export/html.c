/* The page's data is one JSON object (its members: see write_data). Frames are numbered, a stack is
 * a path of nodes, and a row's stack the number of its last node: the numbers of a usual window are
 * a tenth of what its stacks' names would be. */
#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/export/families.h"
#include "agent/export/json.h"
#include "agent/export/label_list.h"
#include "agent/export/location_parts.h"
#include "agent/export/page_parts.h"
#include "agent/export/stack_tree.h"

/* All that a row's labels but its thread are made of: equal ones are written once. */
struct label_look {
    const struct intern_entry *labels[ROW_LABEL_SETS]; /* a window has the same ones once */
    uint64_t state, age_s, bytes;                      /* each + 1; 0: it has no such label */
};

struct page {
    struct gathered *gathered;
    const struct export_request *request;
    struct stack_tree tree;
    struct buffer files;           /* uint32_t: strings, by index */
    struct pair_map by_file;       /* string to index + 1 */
    struct buffer threads, labels; /* JSON, between brackets to come */
    uint32_t thread_count;
    struct pair_map by_thread; /* (string of the name, id) to index + 1 */
    struct buffer looks;       /* struct label_look, by index */
    struct pair_map by_look;   /* (hash, 0) to index + 1 */
    struct buffer *out;
};

/* ---- Texts ---------------------------------------------------------------------------------- */

static void put_string(const struct page *page, struct buffer *out, uint32_t number)
{
    size_t length;
    const char *text = string_table_text(&page->gathered->strings, number, &length);
    json_text(out, text, length);
}

/* Made valid UTF-8 first. */
static void put_text(const struct page *page, struct buffer *out, const char *text, size_t length)
{
    uint32_t number = string_table_add(&page->gathered->strings, text, length);
    if (page->gathered->strings.error)
        out->error = page->gathered->strings.error;
    else
        put_string(page, out, number);
}

static void put_words(const struct page *page, const char *text)
{
    put_text(page, page->out, text ? text : "", text ? strlen(text) : 0);
}

/* `,"name":` */
static void begin_member(const struct page *page, const char *name)
{
    json_raw(page->out, ",\"");
    json_raw(page->out, name);
    json_raw(page->out, "\":");
}

static void put_number_member(const struct page *page, const char *name, uint64_t number)
{
    begin_member(page, name);
    json_number(page->out, (int64_t)number);
}

static void put_text_member(const struct page *page, const char *name, const char *text)
{
    begin_member(page, name);
    put_words(page, text);
}

/* What stands before the element with that number. */
static const char *comma(size_t number)
{
    return number ? "," : "";
}

static bool is_too_large(const struct page *page)
{
    return page->request->byte_limit && page->out->size > page->request->byte_limit;
}

/* ---- What the file says of itself ------------------------------------------------------------ */

static void write_types(const struct page *page)
{
    const struct export_request *request = page->request;
    const struct value_type *types = family_formats_of(request->dialect)[request->family].values;
    int shown = family_default_value(request, request->family), index = 0, count = 0;
    begin_member(page, "types");
    for (int i = 0; i < VALUES; i++) {
        if (!family_has_value(request, request->family, i))
            continue;
        if (i == shown)
            index = count;
        json_raw(page->out, count++ ? ",{\"type\":" : "[{\"type\":");
        put_words(page, types[i].type);
        put_text_member(page, "unit", types[i].unit);
        json_raw(page->out, "}");
    }
    json_raw(page->out, "]");
    put_number_member(page, "default", (uint64_t)index);
}

static void write_about(const struct page *page)
{
    const struct export_request *request = page->request;
    json_raw(page->out, "{\"version\":1");
    put_text_member(page, "program", request->program);
    put_number_member(page, "pid", (uint64_t)request->pid);
    put_text_member(page, "family", export_family_name(request->family));
    put_text_member(page, "service", request->service);
    put_number_member(page, "start_ms", request->start_unix_ns / NS_PER_MS);
    put_number_member(page, "duration_ms", request->duration_ns / NS_PER_MS);
    write_types(page);
    begin_member(page, "comments");
    json_raw(page->out, "[");
    for (size_t i = 0; request->comments && request->comments[i]; i++) {
        json_raw(page->out, comma(i));
        put_words(page, request->comments[i]);
    }
    json_raw(page->out, "]");
}

/* ---- Frames and nodes ------------------------------------------------------------------------ */

static void write_modules(const struct page *page)
{
    const struct location_table *table = &page->gathered->rows.locations;
    begin_member(page, "modules");
    json_raw(page->out, "[");
    for (uint32_t i = 0; i < place_count(table); i++) {
        json_raw(page->out, comma(i));
        put_words(page, place_name(place_at(table, i)));
    }
    json_raw(page->out, "]");
}

/* The index of a file; -1: it is not known. */
static int64_t file_index(struct page *page, uint32_t file)
{
    if (!file)
        return -1;
    uint32_t index = pair_map_get(&page->by_file, file, 0);
    if (index)
        return index - 1;
    buffer_append(&page->files, &file, sizeof(file));
    index = (uint32_t)(page->files.size / sizeof(file));
    if (page->files.error || pair_map_add(&page->by_file, file, 0, index))
        page->out->error = -ENOMEM;
    return index - 1;
}

static void write_frames(struct page *page)
{
    uint32_t count;
    const struct tree_frame *frames = tree_frames(&page->tree, &count);
    begin_member(page, "frames");
    json_raw(page->out, "[");
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_frame *frame = &frames[i];
        json_raw(page->out, comma(i));
        json_raw(page->out, "[");
        put_string(page, page->out, frame->name);
        json_raw(page->out, ",");
        json_number(page->out, frame->place);
        if (frame->file || frame->is_inlined) {
            json_raw(page->out, ",");
            json_number(page->out, file_index(page, frame->file));
            json_raw(page->out, ",");
            json_number(page->out, frame->line);
            json_raw(page->out, frame->is_inlined ? ",1" : ",0");
        }
        json_raw(page->out, "]");
    }
    json_raw(page->out, "]");
}

static void write_files(const struct page *page)
{
    const uint32_t *files = (const void *)page->files.data;
    begin_member(page, "files");
    json_raw(page->out, "[");
    for (size_t i = 0; i < page->files.size / sizeof(files[0]); i++) {
        json_raw(page->out, comma(i));
        put_string(page, page->out, files[i]);
    }
    json_raw(page->out, "]");
}

static void write_nodes(const struct page *page)
{
    uint32_t count;
    const struct tree_node *nodes = tree_nodes(&page->tree, &count);
    begin_member(page, "nodes");
    json_raw(page->out, "[");
    for (uint32_t i = 0; i < count && !is_too_large(page); i++) {
        json_raw(page->out, comma(i));
        json_number(page->out, nodes[i].parent == TREE_NO_NODE ? -1 : (int64_t)nodes[i].parent);
        json_raw(page->out, ",");
        json_number(page->out, nodes[i].frame);
    }
    json_raw(page->out, "]");
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* The index of the row's thread, -1: it has none. */
static int64_t thread_index(struct page *page, const struct label_list *labels)
{
    struct string_table *strings = &page->gathered->strings;
    bool has_thread = false;
    uint32_t name = 0;
    int64_t tid = 0;
    for (uint32_t i = 0; i < labels->count; i++) {
        const struct row_label *label = &labels->list[i];
        if (label->which == ROW_THREAD_NAME)
            name = string_table_add(strings, label->text, label->text_size);
        else if (label->which == ROW_THREAD_ID)
            tid = label->number;
        else
            continue;
        has_thread = true;
    }
    if (!has_thread || strings->error)
        return -1;
    uint32_t index = pair_map_get(&page->by_thread, name, (uint64_t)tid);
    if (index)
        return index - 1;
    if (pair_map_add(&page->by_thread, name, (uint64_t)tid, page->thread_count + 1))
        page->out->error = -ENOMEM;
    json_raw(&page->threads, page->thread_count ? ",[" : "[");
    put_string(page, &page->threads, name);
    json_raw(&page->threads, ",");
    json_number(&page->threads, tid);
    json_raw(&page->threads, "]");
    return page->thread_count++;
}

static void write_label_set(struct page *page, const struct label_list *labels)
{
    struct buffer *out = &page->labels;
    json_raw(out, out->size ? ",[" : "[");
    size_t written = 0;
    for (uint32_t i = 0; i < labels->count; i++) {
        const struct row_label *label = &labels->list[i];
        if (label->which == ROW_THREAD_NAME || label->which == ROW_THREAD_ID)
            continue;
        json_raw(out, comma(written++));
        json_raw(out, "[");
        put_text(page, out, label->key, label->key_size);
        json_raw(out, ",");
        if (label->text)
            put_text(page, out, label->text, label->text_size);
        else
            json_exact_number(out, label->number);
        json_raw(out, "]");
    }
    json_raw(out, "]");
}

static struct label_look look_of(const struct row *row, const struct label_list *labels)
{
    struct label_look look = {.state = 0};
    memcpy(look.labels, row->labels, sizeof(look.labels));
    for (uint32_t i = 0; i < labels->count; i++) {
        const struct row_label *label = &labels->list[i];
        if (label->which == ROW_STATE)
            look.state = row->state + 1ull;
        else if (label->which == ROW_AGE)
            look.age_s = (uint64_t)label->number + 1;
        else if (label->which == ROW_BYTES)
            look.bytes = (uint64_t)label->number + 1;
    }
    return look;
}

static bool same_look(const struct label_look *a, const struct label_look *b)
{
    return memcmp(a->labels, b->labels, sizeof(a->labels)) == 0 && a->state == b->state &&
           a->age_s == b->age_s && a->bytes == b->bytes;
}

/* The index of the row's set of labels, which is added when it is new. */
static int64_t labels_index(struct page *page, const struct row *row,
                            const struct label_list *labels)
{
    const struct label_look look = look_of(row, labels);
    uint64_t hash = hash_mix(hash_mix(hash_mix(0, look.state), look.age_s), look.bytes);
    for (int i = 0; i < ROW_LABEL_SETS; i++)
        hash = hash_mix(hash, (uintptr_t)look.labels[i]);
    /* Another look under the same hash: the next hash is tried. */
    for (uint32_t index; (index = pair_map_get(&page->by_look, hash, 0)); hash++)
        if (same_look((const struct label_look *)(const void *)page->looks.data + index - 1, &look))
            return index - 1;
    buffer_append(&page->looks, &look, sizeof(look));
    uint32_t index = (uint32_t)(page->looks.size / sizeof(look));
    if (page->looks.error || pair_map_add(&page->by_look, hash, 0, index))
        page->out->error = -ENOMEM;
    write_label_set(page, labels);
    return index - 1;
}

static void write_row(struct page *page, const struct row *row, uint32_t node, bool is_first)
{
    const struct export_request *request = page->request;
    struct label_list labels;
    label_list_of(&labels, request, row);
    int64_t thread = thread_index(page, &labels), set = labels_index(page, row, &labels);
    json_raw(page->out, comma(!is_first));
    json_number(page->out, node);
    json_raw(page->out, ",");
    json_number(page->out, thread);
    json_raw(page->out, ",");
    json_number(page->out, set);
    for (int i = 0; i < VALUES; i++) {
        if (!family_has_value(request, request->family, i))
            continue;
        json_raw(page->out, ",");
        json_number(page->out, (int64_t)family_value_of(row, i));
    }
}

static void write_rows(struct page *page)
{
    size_t count;
    const struct row *rows = rows_of(&page->gathered->rows, &count);
    bool is_first = true;
    begin_member(page, "rows");
    json_raw(page->out, "[");
    for (size_t i = 0; i < count && !is_too_large(page); i++) {
        if (!family_row_is_shown(page->request, &rows[i]))
            continue;
        write_row(page, &rows[i], tree_leaves(&page->tree)[i], is_first);
        is_first = false;
    }
    json_raw(page->out, "]");
}

static void write_collected(const struct page *page, const char *name, const struct buffer *json)
{
    begin_member(page, name);
    json_raw(page->out, "[");
    buffer_append(page->out, json->data, json->size);
    json_raw(page->out, "]");
    if (json->error)
        page->out->error = json->error;
}

/* ---- The page -------------------------------------------------------------------------------- */

/* version, program, pid, family, service, start_ms and duration_ms; types: of values, each with
 * type and unit, and default: the index of the one to show first; comments; modules: objects' base
 * names; frames: [name, module], or [name, module, file or -1, line or 0, 1 if it is inlined];
 * files; nodes: parent (-1: none) and frame of each, one
 * behind the other; rows: node, thread or -1, set of labels, and a value of each type, one behind
 * the other; threads: [name, id]; labels: sets of [key, text or number (a large one as text)]. */
static void write_data(struct page *page)
{
    write_about(page);
    write_modules(page);
    write_frames(page);
    write_files(page);
    write_nodes(page);
    write_rows(page);
    write_collected(page, "threads", &page->threads);
    write_collected(page, "labels", &page->labels);
    json_raw(page->out, "}");
}

static int html_write(struct gathered *gathered, const struct export_request *request,
                      struct buffer *out)
{
    struct page page = {.gathered = gathered, .request = request, .out = out};
    int error = stack_tree_make(&page.tree, gathered, true, request->byte_limit);
    if (!error) {
        buffer_append(out, page_head, page_head_size);
        json_raw(out, "<script id=\"data\" type=\"application/json\">");
        write_data(&page);
        json_raw(out, "</script>\n");
        buffer_append(out, page_tail, page_tail_size);
        error = gathered->strings.error ? gathered->strings.error : out->error;
        if (!error && is_too_large(&page))
            error = -E2BIG;
    }
    stack_tree_free(&page.tree);
    buffer_free(&page.files);
    buffer_free(&page.threads);
    buffer_free(&page.labels);
    buffer_free(&page.looks);
    pair_map_free(&page.by_file);
    pair_map_free(&page.by_thread);
    pair_map_free(&page.by_look);
    return error;
}

int export_html(const struct window *window, const struct export_request *request,
                struct buffer *out)
{
    return gathered_write(window, request, html_write, out);
}
