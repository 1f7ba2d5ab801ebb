#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/protobuf.h"
#include "agent/export/families.h"
#include "agent/export/pprof_fields.h"
#include "agent/export/rows.h"
#include "agent/export/string_table.h"
#include "agent/export/syscall_names.h"

enum { VALUES_MAX = VALUES * FILE_FAMILIES };

struct encoder {
    const struct export_request *request;
    const struct family_format *formats;
    uint32_t families; /* 1 << family of each in the file */
    size_t value_count;
    uint8_t place[FILE_FAMILIES][VALUES]; /* among the file's values */
    struct string_table strings;
    struct row_table rows;
    struct buffer ids; /* uint64_t: the locations of the sample that is written */
    uint32_t thread_name, thread_id, thread_id_unit; /* strings */
    uint32_t age, age_unit, bytes, bytes_unit;
    uint64_t samples; /* written */
    struct buffer *out;
};

/* ---- Samples ------------------------------------------------------------------------------- */

/* Is it one of the file's sample types? */
static bool is_written(const struct encoder *encoder, enum record_family family, int value)
{
    return (encoder->families >> family & 1) && family_has_value(encoder->request, family, value);
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
    else if (kind == RECORD_UNTOLD)
        name = "unknown";
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

static void encode_user_labels(struct encoder *encoder, const struct row *row)
{
    struct user_label label;
    struct buffer *out = encoder->out;
    for (uint32_t position = 0; row_next_label(row, &position, &label);) {
        uint32_t key = string_table_add(&encoder->strings, label.key, label.key_size);
        if (label.is_number) {
            /* Receivers want a unit; what pprof takes for one where there is none is the key. */
            encode_number(encoder, key, (uint64_t)label.number, key);
            continue;
        }
        size_t mark = pb_begin(out, SAMPLE_LABEL);
        pb_uint(out, LABEL_KEY, key);
        pb_uint(out, LABEL_STR, string_table_add(&encoder->strings, label.text, label.text_size));
        pb_end(out, mark);
    }
}

/* Age and size class are those of what is live; what the window allocated has none. */
static void encode_live_labels(struct encoder *encoder, const struct row *row)
{
    if (row->values[LIVE_COUNT] == 0)
        return;
    if (encoder->request->age_label && row->family == RECORD_ALLOC)
        encode_number(encoder, encoder->age, row->age_s, encoder->age_unit);
    if (encoder->request->bytes_label)
        encode_number(encoder, encoder->bytes, row->bytes, encoder->bytes_unit);
}

/* The file's values of a row; false if all are 0. */
static bool values_of(const struct encoder *encoder, const struct row *row, uint64_t *values)
{
    uint64_t any = 0;
    memset(values, 0, VALUES_MAX * sizeof(values[0]));
    for (int i = 0; i < VALUES; i++) {
        if (!is_written(encoder, row->family, i))
            continue;
        uint64_t value = family_value_of(row, i);
        values[encoder->place[row->family][i]] = value;
        any |= value;
    }
    return any != 0;
}

static int encode_sample(struct encoder *encoder, const struct row *row)
{
    uint64_t values[VALUES_MAX];
    if (!values_of(encoder, row, values))
        return 0;
    encoder->ids.size = 0;
    uint64_t *ids = buffer_room(&encoder->ids, row->count * sizeof(ids[0]));
    if (!ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < row->count; i++)
        if (!(ids[i] = location_of(&encoder->rows.locations, row->generation, row->pcs[i])))
            return -ENOMEM;
    struct buffer *out = encoder->out;
    size_t mark = pb_begin(out, PROFILE_SAMPLE);
    pb_packed(out, SAMPLE_LOCATION_ID, ids, row->count);
    pb_packed(out, SAMPLE_VALUE, values, encoder->value_count);
    if (row->thread && encoder->request->thread_labels)
        encode_thread(encoder, row->thread);
    if (row->thread && row->family == RECORD_WALL && encoder->request->state_label)
        encode_state(encoder, row->state);
    encode_user_labels(encoder, row);
    encode_live_labels(encoder, row);
    pb_end(out, mark);
    encoder->samples++;
    return out->error;
}

static int encode_samples(struct encoder *encoder)
{
    size_t count;
    const struct row *rows = rows_of(&encoder->rows, &count);
    for (size_t i = 0; i < count; i++) {
        int error = encode_sample(encoder, &rows[i]);
        if (error)
            return error;
    }
    return 0;
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
    const struct family_format *format = &encoder->formats[request->family];
    encode_value_type(encoder, PROFILE_PERIOD_TYPE, format->period);
    pb_uint(out, PROFILE_PERIOD, request->period);
    for (const char *const *comment = request->comments; comment && *comment; comment++)
        pb_uint(out, PROFILE_COMMENT, add_string(encoder, *comment));
    int shown = family_default_value(request, request->family);
    pb_uint(out, PROFILE_DEFAULT_SAMPLE_TYPE, add_string(encoder, format->values[shown].type));
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
    int error = rows_gather(&encoder->rows, window, encoder->request, encoder->families);
    if (error)
        return error;
    for (int family = 0; family < FILE_FAMILIES; family++)
        for (int i = 0; i < VALUES; i++)
            if (is_written(encoder, (enum record_family)family, i))
                encode_value_type(encoder, PROFILE_SAMPLE_TYPE, encoder->formats[family].values[i]);
    add_label_strings(encoder);
    error = encode_samples(encoder);
    if (error || encoder->samples == 0)
        return error;
    error = locations_name(&encoder->rows.locations, &encoder->strings);
    if (error)
        return error;
    locations_encode(&encoder->rows.locations, &encoder->strings, encoder->out);
    encode_header(encoder);
    buffer_append(encoder->out, encoder->strings.encoded.data, encoder->strings.encoded.size);
    return encoder->strings.error ? encoder->strings.error : encoder->out->error;
}

int export_pprof(const struct window *window, const struct export_request *request,
                 struct buffer *out)
{
    bool is_datadog = request->dialect == DIALECT_DATADOG;
    struct encoder encoder = {.request = request,
                              .formats = family_formats_of(request->dialect),
                              .families = is_datadog ? request->families : 1u << request->family,
                              .out = out};
    for (int family = 0; family < FILE_FAMILIES; family++)
        for (int i = 0; i < VALUES; i++)
            if (is_written(&encoder, (enum record_family)family, i))
                encoder.place[family][i] = (uint8_t)encoder.value_count++;
    string_table_begin(&encoder.strings, PROFILE_STRING_TABLE);
    int error = encode(&encoder, window);
    if (error || encoder.samples == 0)
        buffer_free(out);
    string_table_free(&encoder.strings);
    rows_free(&encoder.rows);
    buffer_free(&encoder.ids);
    return error;
}
