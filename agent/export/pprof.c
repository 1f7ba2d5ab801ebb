#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/protobuf.h"
#include "agent/export/locations.h"
#include "agent/export/pprof_fields.h"
#include "agent/export/string_table.h"
#include "agent/export/syscall_names.h"

struct value_type {
    const char *type, *unit;
};

/* What a family's file says of its values: the count first, then the amount, which is what
 * readers show unless asked. */
struct family_format {
    const char *name;
    struct value_type count, amount, period;
    unsigned amount_bits; /* fraction bits of a recorded amount */
};

static const struct family_format family_formats[RECORD_FAMILIES] = {
    [RECORD_CPU] = {.name = "cpu",
                    .count = {"samples", "count"},
                    .amount = {"cpu", "nanoseconds"},
                    .period = {"cpu", "nanoseconds"}},
    [RECORD_ALLOC] = {.name = "heap",
                      .count = {"alloc_objects", "count"},
                      .amount = {"alloc_space", "bytes"},
                      .period = {"space", "bytes"},
                      .amount_bits = RECORD_AMOUNT_BITS_ALLOC},
    [RECORD_WALL] = {.name = "wall",
                     .count = {"samples", "count"},
                     .amount = {"wall", "nanoseconds"},
                     .period = {"wall", "nanoseconds"}},
};

struct encoder {
    const struct export_request *request;
    const struct family_format *format;
    struct string_table strings;
    struct location_table locations;
    struct buffer rows;      /* struct window_row; equal looking ones added up */
    struct pair_map by_look; /* (hash of locations, hash of labels) to row + 1 */
    struct buffer ids;       /* uint64_t: the locations of the sample that is written */
    uint32_t thread_name, thread_id, thread_id_unit; /* strings */
    uint64_t samples;                                /* written */
    struct buffer *out;
};

const char *export_family_name(enum record_family family)
{
    return family_formats[family].name;
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static uint64_t hash_labels(const struct encoder *encoder, const struct window_row *row)
{
    uint64_t hash = row->state;
    if (!encoder->request->thread_labels)
        return hash;
    uint64_t words[sizeof(*row->thread) / sizeof(uint64_t)];
    memcpy(words, row->thread, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        hash = hash_mix(hash, words[i]);
    return hash;
}

static bool look_equal(struct encoder *encoder, const struct window_row *a,
                       const struct window_row *b)
{
    if (a->count != b->count || a->state != b->state ||
        (encoder->request->thread_labels && memcmp(a->thread, b->thread, sizeof(*a->thread)) != 0))
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (location_of(&encoder->locations, a->generation, a->pcs[i]) !=
            location_of(&encoder->locations, b->generation, b->pcs[i]))
            return false;
    return true;
}

/* Adds a row, to an earlier one where the file would show the same stack and labels twice (two
 * generations of the module list, or labels switched off). */
static int add_row(const struct window_row *row, void *data)
{
    struct encoder *encoder = data;
    if (row->family != encoder->request->family)
        return 0;
    uint64_t hash = row->count;
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t location = location_of(&encoder->locations, row->generation, row->pcs[i]);
        if (!location)
            return -ENOMEM;
        hash = hash_mix(hash, location);
    }
    uint64_t label = hash_labels(encoder, row);
    struct window_row *rows = (struct window_row *)(void *)encoder->rows.data;
    /* Another look under the same hash: the next hash is tried. */
    for (uint32_t found; (found = pair_map_get(&encoder->by_look, hash, label)); hash++) {
        struct window_row *earlier = &rows[found - 1];
        if (look_equal(encoder, earlier, row)) {
            earlier->values.count += row->values.count;
            earlier->values.amount += row->values.amount;
            return 0;
        }
    }
    buffer_append(&encoder->rows, row, sizeof(*row));
    if (encoder->rows.error)
        return encoder->rows.error;
    return pair_map_add(&encoder->by_look, hash, label,
                        (uint32_t)(encoder->rows.size / sizeof(*row)));
}

/* ---- Samples ------------------------------------------------------------------------------- */

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
    if (label->tid) {
        size_t mark = pb_begin(out, SAMPLE_LABEL);
        pb_uint(out, LABEL_KEY, encoder->thread_id);
        pb_uint(out, LABEL_NUM, label->tid);
        pb_uint(out, LABEL_NUM_UNIT, encoder->thread_id_unit);
        pb_end(out, mark);
    }
}

static int encode_sample(struct encoder *encoder, const struct window_row *row)
{
    uint64_t values[] = {round_fixed(row->values.count, RECORD_FRACTION_BITS),
                         round_fixed(row->values.amount, encoder->format->amount_bits)};
    if (values[0] == 0 && values[1] == 0)
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
    pb_packed(out, SAMPLE_VALUE, values, ARRAY_SIZE(values));
    if (row->thread && encoder->request->thread_labels)
        encode_thread(encoder, row->thread);
    if (row->thread && row->family == RECORD_WALL)
        encode_state(encoder, row->state);
    pb_end(out, mark);
    encoder->samples++;
    return out->error;
}

static int encode_samples(struct encoder *encoder, const struct window *window)
{
    const struct window_row *rows = (const void *)encoder->rows.data;
    for (size_t i = 0; i < encoder->rows.size / sizeof(rows[0]); i++) {
        int error = encode_sample(encoder, &rows[i]);
        if (error)
            return error;
    }
    const uint64_t truncated_pc = PSEUDO_TRUNCATED;
    const struct window_row truncated = {
        .pcs = &truncated_pc,
        .count = 1,
        .values = window->truncated[encoder->request->family],
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
    pb_uint(out, PROFILE_DEFAULT_SAMPLE_TYPE, add_string(encoder, encoder->format->amount.type));
}

static int encode(struct encoder *encoder, const struct window *window)
{
    int error = locations_begin(&encoder->locations);
    if (!error)
        error = window_each(window, add_row, encoder);
    if (error)
        return error;
    encode_value_type(encoder, PROFILE_SAMPLE_TYPE, encoder->format->count);
    encode_value_type(encoder, PROFILE_SAMPLE_TYPE, encoder->format->amount);
    if (encoder->request->thread_labels) {
        encoder->thread_name = add_string(encoder, "thread name");
        encoder->thread_id = add_string(encoder, "thread id");
        encoder->thread_id_unit = add_string(encoder, "id");
    }
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
