#include "test/preload/page_reader.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"

static const char data_begins[] = "<script id=\"data\" type=\"application/json\">";

/* ---- Data of a page -------------------------------------------------------------------------- */

static json_t *member(const struct picture *picture, const char *name)
{
    json_t *value = json_object_get(picture->data, name);
    ck_assert_msg(value != NULL, "no member %s", name);
    return value;
}

static json_t *list(const struct picture *picture, const char *name)
{
    json_t *value = member(picture, name);
    ck_assert_msg(json_is_array(value), "%s is no list", name);
    return value;
}

static int64_t number_of(const json_t *value)
{
    ck_assert(json_is_integer(value));
    return json_integer_value(value);
}

/* An element that is an index, from `least` on, of a list of `count`. */
static int64_t index_at(const json_t *array, size_t at, int64_t least, size_t count)
{
    int64_t index = number_of(json_array_get(array, at));
    ck_assert_msg(index >= least && index < (int64_t)count, "index %lld of %zu", (long long)index,
                  count);
    return index;
}

static void check_numbers(const struct picture *picture)
{
    static const char *const numbers[] = {"pid", "start_ms", "duration_ms"};
    static const char *const texts[] = {"program", "family", "service"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ck_assert_int_ge(number_of(member(picture, numbers[i])), 0);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert(json_is_string(member(picture, texts[i])));
    ck_assert_int_eq(number_of(member(picture, "version")), 1);
    int64_t shown = number_of(member(picture, "default"));
    ck_assert(shown >= 0 && shown < (int64_t)json_array_size(list(picture, "types")));
}

static void check_types(struct picture *picture)
{
    size_t i;
    json_t *type;
    picture->type_count = json_array_size(list(picture, "types"));
    ck_assert(picture->type_count >= 1 && picture->type_count <= PICTURE_TYPES_MAX);
    json_array_foreach(list(picture, "types"), i, type)
    {
        ck_assert(json_is_string(json_object_get(type, "type")));
        ck_assert(json_is_string(json_object_get(type, "unit")));
    }
}

static void check_texts(const struct picture *picture, const char *name)
{
    size_t i;
    json_t *text;
    json_array_foreach(list(picture, name), i, text) ck_assert(json_is_string(text));
}

static void check_frames(const struct picture *picture)
{
    size_t i;
    json_t *frame;
    json_array_foreach(list(picture, "frames"), i, frame)
    {
        size_t parts = json_array_size(frame);
        ck_assert(parts == 2 || parts == 5);
        ck_assert(json_is_string(json_array_get(frame, 0)));
        index_at(frame, 1, 0, json_array_size(list(picture, "modules")));
        if (parts == 2)
            continue;
        index_at(frame, 2, -1, json_array_size(list(picture, "files")));
        ck_assert_int_ge(number_of(json_array_get(frame, 3)), 0);
        index_at(frame, 4, 0, 2);
    }
}

/* What JSON.parse makes a double of without loss. */
static bool is_exact(int64_t number)
{
    return number >= -(1ll << 53) && number <= 1ll << 53;
}

static void check_labels(const struct picture *picture)
{
    size_t i, k;
    json_t *thread, *set, *label;
    json_array_foreach(list(picture, "threads"), i, thread)
    {
        ck_assert_uint_eq(json_array_size(thread), 2);
        ck_assert(json_is_string(json_array_get(thread, 0)));
        ck_assert_int_ge(number_of(json_array_get(thread, 1)), 0);
    }
    json_array_foreach(list(picture, "labels"), i, set) json_array_foreach(set, k, label)
    {
        const json_t *value = json_array_get(label, 1);
        ck_assert_uint_eq(json_array_size(label), 2);
        ck_assert(json_is_string(json_array_get(label, 0)));
        ck_assert(json_is_string(value) ||
                  (json_is_integer(value) && is_exact(json_integer_value(value))));
    }
}

/* Equal ones would be one. */
static void check_unequal(const struct picture *picture, const char *name)
{
    size_t count = json_array_size(list(picture, name));
    for (size_t i = 0; i < count && count < 3000; i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(!json_equal(json_array_get(list(picture, name), i),
                                      json_array_get(list(picture, name), k)),
                          "%s: %zu and %zu are the same", name, k, i);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void add_name(struct picture *picture, const char *name)
{
    if ((picture->name_count & (picture->name_count - 1)) == 0) {
        size_t room = picture->name_count ? 2 * picture->name_count : 1;
        picture->names = realloc(picture->names, room * sizeof(picture->names[0]));
        ck_assert_ptr_nonnull(picture->names);
    }
    picture->names[picture->name_count++] = name;
}

static struct picture_row *add_row(struct picture *picture)
{
    if ((picture->row_count & (picture->row_count - 1)) == 0) {
        size_t room = picture->row_count ? 2 * picture->row_count : 1;
        picture->rows = realloc(picture->rows, room * sizeof(picture->rows[0]));
        ck_assert_ptr_nonnull(picture->rows);
    }
    struct picture_row *row = &picture->rows[picture->row_count++];
    *row = (struct picture_row){.first = (uint32_t)picture->name_count, .thread = -1, .labels = -1};
    return row;
}

static void put_in_order(struct picture *picture, struct picture_row *row)
{
    row->depth = (uint32_t)picture->name_count - row->first;
    for (uint32_t i = 0; i < row->depth / 2; i++) {
        const char **a = &picture->names[row->first + i];
        const char **b = &picture->names[row->first + row->depth - 1 - i];
        const char *name = *a;
        *a = *b;
        *b = name;
    }
}

static void read_rows(struct picture *picture)
{
    const json_t *nodes = list(picture, "nodes"), *rows = list(picture, "rows");
    const json_t *frames = list(picture, "frames");
    size_t stride = 3 + picture->type_count, count = json_array_size(nodes) / 2;
    ck_assert_uint_eq(json_array_size(nodes) % 2, 0);
    ck_assert_uint_eq(json_array_size(rows) % stride, 0);
    for (size_t i = 0; i < count; i++) {
        index_at(nodes, 2 * i, -1, i); /* a parent comes first */
        index_at(nodes, 2 * i + 1, 0, json_array_size(frames));
    }
    for (size_t i = 0; i < json_array_size(rows); i += stride) {
        struct picture_row *row = add_row(picture);
        row->thread = index_at(rows, i + 1, -1, json_array_size(list(picture, "threads")));
        row->labels = index_at(rows, i + 2, 0, json_array_size(list(picture, "labels")));
        for (size_t k = 0; k < picture->type_count; k++)
            row->values[k] = number_of(json_array_get(rows, i + 3 + k));
        for (int64_t node = index_at(rows, i, 0, count); node >= 0;
             node = json_integer_value(json_array_get(nodes, 2 * (size_t)node))) {
            size_t frame = (size_t)json_integer_value(json_array_get(nodes, 2 * (size_t)node + 1));
            add_name(picture, json_string_value(json_array_get(json_array_get(frames, frame), 0)));
        }
        put_in_order(picture, row);
    }
}

void page_parse(struct picture *picture, const char *page, size_t size, const char *head,
                size_t head_size, const char *tail, size_t tail_size)
{
    json_error_t error;
    const char *begin = memmem(page, size, data_begins, sizeof(data_begins) - 1);
    ck_assert_ptr_nonnull(begin);
    const char *data = begin + sizeof(data_begins) - 1, *end = page + size;
    const char *close = memmem(data, (size_t)(end - data), "</script>\n", 10);
    ck_assert_ptr_nonnull(close);
    ck_assert_ptr_null(memmem(data, (size_t)(close - data), "<", 1));
    if (head) {
        ck_assert_uint_eq((size_t)(begin - page), head_size);
        ck_assert_mem_eq(page, head, head_size);
        ck_assert_uint_eq((size_t)(end - close), tail_size + 10);
        ck_assert_mem_eq(close + 10, tail, tail_size);
    }
    *picture =
        (struct picture){.data = json_loadb(data, (size_t)(close - data),
                                            JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error)};
    ck_assert_msg(picture->data != NULL, "%s at %d", error.text, error.position);
    check_types(picture);
    check_numbers(picture);
    check_texts(picture, "comments");
    check_texts(picture, "modules");
    check_texts(picture, "files");
    check_frames(picture);
    check_labels(picture);
    check_unequal(picture, "frames");
    check_unequal(picture, "threads");
    check_unequal(picture, "labels");
    read_rows(picture);
}

/* ---- Collapsed stacks ------------------------------------------------------------------------ */

void collapsed_parse(struct picture *picture, const char *text, size_t size)
{
    *picture = (struct picture){.type_count = 1, .text = malloc(size + 1)};
    ck_assert_ptr_nonnull(picture->text);
    memcpy(picture->text, text, size);
    picture->text[size] = 0;
    ck_assert_uint_eq(strlen(picture->text), size);
    for (char *line = picture->text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        *end = 0;
        char *blank = strrchr(line, ' '), *after;
        ck_assert_msg(blank != NULL && blank > line, "%s", line);
        *blank = 0;
        struct picture_row *row = add_row(picture);
        row->values[0] = strtoll(blank + 1, &after, 10);
        ck_assert_msg(after == end && row->values[0] > 0, "%s %s", line, blank + 1);
        for (char *name = line; name;) {
            char *semicolon = strchr(name, ';');
            if (semicolon)
                *semicolon = 0;
            ck_assert_msg(*name, "an empty name in a line");
            add_name(picture, name);
            name = semicolon ? semicolon + 1 : NULL;
        }
        row->depth = (uint32_t)picture->name_count - row->first;
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

char *picture_file(const char *folder, const char *suffix, size_t *size)
{
    char path[4096] = "";
    DIR *stream = opendir(folder);
    ck_assert_msg(stream != NULL, "%s", folder);
    for (struct dirent *entry; (entry = readdir(stream));) {
        size_t length = strlen(entry->d_name), end = strlen(suffix);
        if (length < end || strcmp(entry->d_name + length - end, suffix) != 0)
            continue;
        ck_assert_msg(!path[0], "more than one file of %s", suffix);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    }
    closedir(stream);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "no file of %s", suffix);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(*size + 1);
    ck_assert_ptr_nonnull(content);
    ck_assert_uint_eq(fread(content, 1, *size, file), *size);
    fclose(file);
    return content;
}

void page_load(struct picture *picture, const char *folder, const char *suffix)
{
    size_t size;
    char *page = picture_file(folder, suffix, &size);
    page_parse(picture, page, size, NULL, 0, NULL, 0);
    free(page);
}

void collapsed_load(struct picture *picture, const char *folder, const char *suffix)
{
    size_t size;
    char *text = picture_file(folder, suffix, &size);
    collapsed_parse(picture, text, size);
    free(text);
}

void picture_free(struct picture *picture)
{
    json_decref(picture->data);
    free(picture->rows);
    free((void *)picture->names);
    free(picture->text);
    *picture = (struct picture){.data = NULL};
}

/* ---- Sums ------------------------------------------------------------------------------------ */

int64_t picture_total(const struct picture *picture, int type)
{
    int64_t sum = 0;
    for (size_t i = 0; i < picture->row_count; i++)
        sum += picture->rows[i].values[type];
    return sum;
}

int64_t picture_self(const struct picture *picture, int type, const char *function)
{
    int64_t sum = 0;
    for (size_t i = 0; i < picture->row_count; i++) {
        const struct picture_row *row = &picture->rows[i];
        if (strcmp(picture->names[row->first + row->depth - 1], function) == 0)
            sum += row->values[type];
    }
    return sum;
}

int64_t picture_under(const struct picture *picture, int type, const char *function)
{
    int64_t sum = 0;
    for (size_t i = 0; i < picture->row_count; i++) {
        const struct picture_row *row = &picture->rows[i];
        uint32_t at = 0;
        while (at < row->depth && strcmp(picture->names[row->first + at], function) != 0)
            at++;
        sum += at < row->depth ? row->values[type] : 0;
    }
    return sum;
}

int64_t picture_of_thread(const struct picture *picture, int type, const char *name, int64_t tid)
{
    int64_t sum = 0;
    for (size_t i = 0; i < picture->row_count; i++) {
        const struct picture_row *row = &picture->rows[i];
        if (row->thread < 0)
            continue;
        const json_t *thread = json_array_get(list(picture, "threads"), (size_t)row->thread);
        if (strcmp(json_string_value(json_array_get(thread, 0)), name) == 0 &&
            number_of(json_array_get(thread, 1)) == tid)
            sum += row->values[type];
    }
    return sum;
}

/* One that a double does not hold is text. */
static bool is_number(const json_t *value, int64_t number)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%lld", (long long)number);
    return is_exact(number)
               ? json_is_integer(value) && json_integer_value(value) == number
               : json_is_string(value) && strcmp(json_string_value(value), digits) == 0;
}

static bool has_label(const json_t *set, const char *key, const char *text, int64_t number)
{
    size_t i;
    json_t *label;
    json_array_foreach(set, i, label)
    {
        const json_t *value = json_array_get(label, 1);
        if (strcmp(json_string_value(json_array_get(label, 0)), key) != 0)
            continue;
        if (text ? json_is_string(value) && strcmp(json_string_value(value), text) == 0
                 : is_number(value, number))
            return true;
    }
    return false;
}

int64_t picture_of_label(const struct picture *picture, int type, const char *key, const char *text,
                         int64_t number)
{
    int64_t sum = 0;
    for (size_t i = 0; i < picture->row_count; i++) {
        const struct picture_row *row = &picture->rows[i];
        if (has_label(json_array_get(list(picture, "labels"), (size_t)row->labels), key, text,
                      number))
            sum += row->values[type];
    }
    return sum;
}

int page_type(const struct picture *picture, const char *type)
{
    size_t i;
    json_t *each;
    json_array_foreach(list(picture, "types"), i,
                       each) if (strcmp(json_string_value(json_object_get(each, "type")), type) ==
                                 0) return (int)i;
    return -1;
}
