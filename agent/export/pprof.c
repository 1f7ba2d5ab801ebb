#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/protobuf.h"
#include "agent/export/locations.h"
#include "agent/export/pprof_fields.h"
#include "agent/export/string_table.h"
#include "agent/export/syscall_names.h"
#include "agent/record/heap_snapshot.h"

struct value_type {
    const char *type, *unit;
};

/* The values of a row, each a sum in fixed point: of the window, and of what is live. */
enum { WINDOW_COUNT, WINDOW_AMOUNT, LIVE_COUNT, LIVE_AMOUNT, VALUES };

/* What a family's file says of its values: a count and then its amount. What readers show unless
 * asked is the last one. */
struct family_format {
    const char *name;
    struct value_type values[VALUES], period;
    unsigned amount_bits; /* fraction bits of a recorded amount */
};

static const struct family_format family_formats[RECORD_FAMILIES] = {
    [RECORD_CPU] = {.name = "cpu",
                    .values = {{"samples", "count"}, {"cpu", "nanoseconds"}},
                    .period = {"cpu", "nanoseconds"}},
    [RECORD_ALLOC] = {.name = "heap",
                      .values = {{"alloc_objects", "count"},
                                 {"alloc_space", "bytes"},
                                 {"inuse_objects", "count"},
                                 {"inuse_space", "bytes"}},
                      .period = {"space", "bytes"},
                      .amount_bits = RECORD_AMOUNT_BITS_ALLOC},
    [RECORD_WALL] = {.name = "wall",
                     .values = {{"samples", "count"}, {"wall", "nanoseconds"}},
                     .period = {"wall", "nanoseconds"}},
};

/* A sample of the file. */
struct row {
    const uint64_t *pcs;
    uint32_t generation, count;
    const struct thread_label *thread; /* NULL: none */
    uint32_t state;                    /* a wall sample's label */
    uint64_t age_s, bytes;             /* labels of what is live; 0 where they are not asked for */
    uint64_t values[VALUES];
};

struct encoder {
    const struct export_request *request;
    const struct family_format *format;
    struct string_table strings;
    struct location_table locations;
    struct buffer rows;      /* struct row; equal looking ones added up */
    struct pair_map by_look; /* (hash of locations, hash of labels) to row + 1 */
    struct buffer ids;       /* uint64_t: the locations of the sample that is written */
    uint32_t thread_name, thread_id, thread_id_unit; /* strings */
    uint32_t age, age_unit, bytes, bytes_unit;
    uint64_t samples; /* written */
    struct buffer *out;
};

const char *export_family_name(enum record_family family)
{
    return family_formats[family].name;
}

/* ---- Rows ---------------------------------------------------------------------------------- */

/* A label's words; all 0 where labels are switched off. */
static const struct thread_label *label_of(const struct encoder *encoder, const struct row *row)
{
    static const struct thread_label none;
    return encoder->request->thread_labels && row->thread ? row->thread : &none;
}

static uint64_t hash_labels(const struct encoder *encoder, const struct row *row)
{
    uint64_t words[sizeof(struct thread_label) / sizeof(uint64_t)];
    memcpy(words, label_of(encoder, row), sizeof(words));
    uint64_t hash = hash_mix(hash_mix(row->state, row->age_s), row->bytes);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        hash = hash_mix(hash, words[i]);
    return hash;
}

static bool look_equal(struct encoder *encoder, const struct row *a, const struct row *b)
{
    if (a->count != b->count || a->state != b->state || a->age_s != b->age_s ||
        a->bytes != b->bytes ||
        memcmp(label_of(encoder, a), label_of(encoder, b), sizeof(*a->thread)) != 0)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (location_of(&encoder->locations, a->generation, a->pcs[i]) !=
            location_of(&encoder->locations, b->generation, b->pcs[i]))
            return false;
    return true;
}

/* Adds a row, to an earlier one where the file would show the same stack and labels twice (what a
 * window and the live heap have of them, two generations of the module list, or labels switched
 * off). */
static int add_row(struct encoder *encoder, const struct row *row)
{
    uint64_t hash = row->count;
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t location = location_of(&encoder->locations, row->generation, row->pcs[i]);
        if (!location)
            return -ENOMEM;
        hash = hash_mix(hash, location);
    }
    uint64_t labels = hash_labels(encoder, row);
    struct row *rows = (struct row *)(void *)encoder->rows.data;
    /* Another look under the same hash: the next hash is tried. */
    for (uint32_t found; (found = pair_map_get(&encoder->by_look, hash, labels)); hash++) {
        struct row *earlier = &rows[found - 1];
        if (look_equal(encoder, earlier, row)) {
            for (int i = 0; i < VALUES; i++)
                earlier->values[i] += row->values[i];
            return 0;
        }
    }
    buffer_append(&encoder->rows, row, sizeof(*row));
    if (encoder->rows.error)
        return encoder->rows.error;
    return pair_map_add(&encoder->by_look, hash, labels,
                        (uint32_t)(encoder->rows.size / sizeof(*row)));
}

static int add_window_row(const struct window_row *row, void *data)
{
    struct encoder *encoder = data;
    if (row->family != encoder->request->family)
        return 0;
    const struct row added = {
        .pcs = row->pcs,
        .generation = row->generation,
        .count = row->count,
        .thread = row->thread,
        .state = row->state,
        .values = {[WINDOW_COUNT] = row->values.count, [WINDOW_AMOUNT] = row->values.amount},
    };
    return add_row(encoder, &added);
}

static int add_live_row(const struct heap_row *row, void *data)
{
    const struct row added = {
        .pcs = row->pcs,
        .generation = row->generation,
        .count = row->count,
        .thread = row->thread,
        .age_s = row->age_s,
        .bytes = row->bytes,
        .values = {[LIVE_COUNT] = row->values.count, [LIVE_AMOUNT] = row->values.amount},
    };
    return add_row(data, &added);
}

static int add_rows(struct encoder *encoder, const struct window *window)
{
    const struct export_request *request = encoder->request;
    int error = request->has_window ? window_each(window, add_window_row, encoder) : 0;
    return error || !request->has_live ? error : heap_snapshot_each(add_live_row, encoder);
}

/* ---- Samples ------------------------------------------------------------------------------- */

/* Is it one of the file's sample types? */
static bool is_written(const struct encoder *encoder, int value)
{
    return value >= LIVE_COUNT ? encoder->request->has_live : encoder->request->has_window;
}

static uint64_t round_fixed(uint64_t value, unsigned bits)
{
    uint64_t half = bits ? value >> (bits - 1) & 1 : 0;
    return MIN_OF((value >> bits) + half, (uint64_t)INT64_MAX);
}

static uint32_t add_string(struct encoder *encoder, const char *text)
{
    return string_table_add(&encoder->strings, text, strlen(text));
}

static void encode_text_label(struct encoder *encoder, const char *key, const char *text)
{
    size_t mark = pb_begin(encoder->out, SAMPLE_LABEL);
    pb_uint(encoder->out, LABEL_KEY, add_string(encoder, key));
    pb_uint(encoder->out, LABEL_STR, add_string(encoder, text));
    pb_end(encoder->out, mark);
}

/* What the thread of a wall sample did. */
static void encode_state(struct encoder *encoder, uint32_t state)
{
    char number[SYSCALL_NUMBER_SIZE];
    uint32_t kind = state & ~RECORD_APPROXIMATE;
    const char *name = "running";
    if (kind == RECORD_BLOCKED)
        name = "blocked";
    else if (kind >= RECORD_SYSTEM_CALL)
        name = syscall_name(kind - RECORD_SYSTEM_CALL, number);
    encode_text_label(encoder, "state", name);
    if (state & RECORD_APPROXIMATE)
        encode_text_label(encoder, "approximate", "true");
}

static void encode_number(struct encoder *encoder, uint32_t key, uint64_t number, uint32_t unit)
{
    size_t mark = pb_begin(encoder->out, SAMPLE_LABEL);
    pb_uint(encoder->out, LABEL_KEY, key);
    pb_uint(encoder->out, LABEL_NUM, number);
    pb_uint(encoder->out, LABEL_NUM_UNIT, unit);
    pb_end(encoder->out, mark);
}

static void encode_thread(struct encoder *encoder, const struct thread_label *label)
{
    struct buffer *out = encoder->out;
    const char *end = memchr(label->name, 0, sizeof(label->name));
    size_t length = end ? (size_t)(end - label->name) : sizeof(label->name);
    if (length) {
        size_t mark = pb_begin(out, SAMPLE_LABEL);
        pb_uint(out, LABEL_KEY, encoder->thread_name);
        pb_uint(out, LABEL_STR, string_table_add(&encoder->strings, label->name, length));
        pb_end(out, mark);
    }
    if (label->tid)
        encode_number(encoder, encoder->thread_id, label->tid, encoder->thread_id_unit);
}

/* Age and size class are those of what is live; what the window allocated has none. */
static void encode_live_labels(struct encoder *encoder, const struct row *row)
{
    if (row->values[LIVE_COUNT] == 0)
        return;
    if (encoder->request->age_label)
        encode_number(encoder, encoder->age, row->age_s, encoder->age_unit);
    if (encoder->request->bytes_label)
        encode_number(encoder, encoder->bytes, row->bytes, encoder->bytes_unit);
}

/* Those of the file's sample types. Returns how many; 0 if all are 0. */
static size_t values_of(const struct encoder *encoder, const struct row *row, uint64_t *values)
{
    size_t count = 0;
    uint64_t any = 0;
    for (int i = 0; i < VALUES; i++) {
        if (!is_written(encoder, i))
            continue;
        bool is_count = i == WINDOW_COUNT || i == LIVE_COUNT;
        values[count] = round_fixed(row->values[i],
                                    is_count ? RECORD_FRACTION_BITS : encoder->format->amount_bits);
        any |= values[count++];
    }
    return any ? count : 0;
}

static int encode_sample(struct encoder *encoder, const struct row *row)
{
    uint64_t values[VALUES];
    size_t count = values_of(encoder, row, values);
    if (!count)
        return 0;
    encoder->ids.size = 0;
    uint64_t *ids = buffer_room(&encoder->ids, row->count * sizeof(ids[0]));
    if (!ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < row->count; i++)
        if (!(ids[i] = location_of(&encoder->locations, row->generation, row->pcs[i])))
            return -ENOMEM;
    struct buffer *out = encoder->out;
    size_t mark = pb_begin(out, PROFILE_SAMPLE);
    pb_packed(out, SAMPLE_LOCATION_ID, ids, row->count);
    pb_packed(out, SAMPLE_VALUE, values, count);
    if (row->thread && encoder->request->thread_labels)
        encode_thread(encoder, row->thread);
    if (row->thread && encoder->request->family == RECORD_WALL)
        encode_state(encoder, row->state);
    encode_live_labels(encoder, row);
    pb_end(out, mark);
    encoder->samples++;
    return out->error;
}

static int encode_samples(struct encoder *encoder, const struct window *window)
{
    const struct row *rows = (const void *)encoder->rows.data;
    for (size_t i = 0; i < encoder->rows.size / sizeof(rows[0]); i++) {
        int error = encode_sample(encoder, &rows[i]);
        if (error)
            return error;
    }
    const uint64_t truncated_pc = PSEUDO_TRUNCATED;
    const struct record_values sums = window->truncated[encoder->request->family];
    const struct row truncated = {
        .pcs = &truncated_pc,
        .count = 1,
        .values = {[WINDOW_COUNT] = sums.count, [WINDOW_AMOUNT] = sums.amount},
    };
    return encode_sample(encoder, &truncated);
}

/* ---- The file ------------------------------------------------------------------------------ */

static void encode_value_type(struct encoder *encoder, unsigned field, struct value_type type)
{
    size_t mark = pb_begin(encoder->out, field);
    pb_uint(encoder->out, VALUE_TYPE_TYPE, add_string(encoder, type.type));
    pb_uint(encoder->out, VALUE_TYPE_UNIT, add_string(encoder, type.unit));
    pb_end(encoder->out, mark);
}

static void encode_header(struct encoder *encoder)
{
    const struct export_request *request = encoder->request;
    struct buffer *out = encoder->out;
    pb_uint(out, PROFILE_TIME_NANOS, request->start_unix_ns);
    pb_uint(out, PROFILE_DURATION_NANOS, request->duration_ns);
    encode_value_type(encoder, PROFILE_PERIOD_TYPE, encoder->format->period);
    pb_uint(out, PROFILE_PERIOD, request->period);
    for (const char *const *comment = request->comments; comment && *comment; comment++)
        pb_uint(out, PROFILE_COMMENT, add_string(encoder, *comment));
    int shown = request->has_live ? LIVE_AMOUNT : WINDOW_AMOUNT;
    pb_uint(out, PROFILE_DEFAULT_SAMPLE_TYPE,
            add_string(encoder, encoder->format->values[shown].type));
}

static void add_label_strings(struct encoder *encoder)
{
    if (encoder->request->thread_labels) {
        encoder->thread_name = add_string(encoder, "thread name");
        encoder->thread_id = add_string(encoder, "thread id");
        encoder->thread_id_unit = add_string(encoder, "id");
    }
    if (encoder->request->age_label) {
        encoder->age = add_string(encoder, "age_seconds");
        encoder->age_unit = add_string(encoder, "seconds");
    }
    if (encoder->request->bytes_label)
        encoder->bytes = encoder->bytes_unit = add_string(encoder, "bytes");
}

static int encode(struct encoder *encoder, const struct window *window)
{
    int error = locations_begin(&encoder->locations);
    if (!error)
        error = add_rows(encoder, window);
    if (error)
        return error;
    for (int i = 0; i < VALUES; i++)
        if (is_written(encoder, i))
            encode_value_type(encoder, PROFILE_SAMPLE_TYPE, encoder->format->values[i]);
    add_label_strings(encoder);
    error = encode_samples(encoder, window);
    if (error || encoder->samples == 0)
        return error;
    error = locations_name(&encoder->locations, &encoder->strings);
    if (error)
        return error;
    locations_encode(&encoder->locations, &encoder->strings, encoder->out);
    encode_header(encoder);
    buffer_append(encoder->out, encoder->strings.encoded.data, encoder->strings.encoded.size);
    return encoder->strings.error ? encoder->strings.error : encoder->out->error;
}

int export_pprof(const struct window *window, const struct export_request *request,
                 struct buffer *out)
{
    struct encoder encoder = {
        .request = request, .format = &family_formats[request->family], .out = out};
    string_table_begin(&encoder.strings, PROFILE_STRING_TABLE);
    int error = encode(&encoder, window);
    if (error || encoder.samples == 0)
        buffer_free(out);
    string_table_free(&encoder.strings);
    locations_free(&encoder.locations);
    buffer_free(&encoder.rows);
    pair_map_free(&encoder.by_look);
    buffer_free(&encoder.ids);
    return error;
}
