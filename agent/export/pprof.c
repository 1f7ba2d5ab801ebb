#include "agent/export/export.h"

#include <errno.h>
#include <string.h>

#include "agent/base/protobuf.h"
#include "agent/export/families.h"
#include "agent/export/gathered.h"
#include "agent/export/label_list.h"
#include "agent/export/pprof_fields.h"
#include "agent/export/string_table.h"

enum { VALUES_MAX = VALUES * FILE_FAMILIES };

struct encoder {
    const struct export_request *request;
    const struct family_format *formats;
    uint32_t families; /* 1 << family of each in the file */
    size_t value_count;
    uint8_t place[FILE_FAMILIES][VALUES]; /* among the file's values */
    struct string_table *strings;
    struct row_table *rows;
    struct buffer ids; /* uint64_t: the locations of the sample that is written */
    uint32_t own_keys[ROW_LABEL_KEYS], own_units[ROW_LABEL_KEYS]; /* strings; 0: not added yet */
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
    return string_table_add(encoder->strings, text, strlen(text));
}

/* Once for all labels, where they are the agent's own words. */
static uint32_t own_string(struct encoder *encoder, uint32_t *numbers, enum row_label_key which,
                           const char *text)
{
    if (!numbers[which])
        numbers[which] = add_string(encoder, text);
    return numbers[which];
}

static void encode_label(struct encoder *encoder, const struct row_label *label)
{
    struct buffer *out = encoder->out;
    bool is_own = label->which != ROW_USER;
    uint32_t key = is_own ? own_string(encoder, encoder->own_keys, label->which, label->key)
                          : string_table_add(encoder->strings, label->key, label->key_size);
    size_t mark = pb_begin(out, SAMPLE_LABEL);
    pb_uint(out, LABEL_KEY, key);
    if (label->text) {
        pb_uint(out, LABEL_STR, string_table_add(encoder->strings, label->text, label->text_size));
    } else {
        pb_uint(out, LABEL_NUM, (uint64_t)label->number);
        /* Receivers want a unit; what pprof takes for one where there is none is the key. */
        pb_uint(out, LABEL_NUM_UNIT,
                is_own ? own_string(encoder, encoder->own_units, label->which, label->unit) : key);
    }
    pb_end(out, mark);
}

static void encode_labels(struct encoder *encoder, const struct row *row)
{
    struct label_list labels;
    label_list_of(&labels, encoder->request, row);
    for (uint32_t i = 0; i < labels.count; i++)
        encode_label(encoder, &labels.list[i]);
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
        if (!(ids[i] = location_of(&encoder->rows->locations, row->generation, row->pcs[i])))
            return -ENOMEM;
    struct buffer *out = encoder->out;
    size_t mark = pb_begin(out, PROFILE_SAMPLE);
    pb_packed(out, SAMPLE_LOCATION_ID, ids, row->count);
    pb_packed(out, SAMPLE_VALUE, values, encoder->value_count);
    encode_labels(encoder, row);
    pb_end(out, mark);
    return out->error;
}

static int encode_samples(struct encoder *encoder)
{
    size_t count;
    const struct row *rows = rows_of(encoder->rows, &count);
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

static int pprof_write(struct gathered *gathered, const struct export_request *request,
                       struct buffer *out)
{
    struct encoder encoder = {.request = request,
                              .formats = family_formats_of(request->dialect),
                              .families = gathered->families,
                              .rows = &gathered->rows,
                              .strings = &gathered->strings,
                              .out = out};
    for (int family = 0; family < FILE_FAMILIES; family++)
        for (int i = 0; i < VALUES; i++)
            if (is_written(&encoder, (enum record_family)family, i)) {
                encoder.place[family][i] = (uint8_t)encoder.value_count++;
                encode_value_type(&encoder, PROFILE_SAMPLE_TYPE, encoder.formats[family].values[i]);
            }
    int error = encode_samples(&encoder);
    buffer_free(&encoder.ids);
    if (error)
        return error;
    locations_encode(&gathered->rows.locations, &gathered->strings, out);
    encode_header(&encoder);
    buffer_append(out, gathered->strings.encoded.data, gathered->strings.encoded.size);
    return gathered->strings.error ? gathered->strings.error : out->error;
}

int export_pprof(const struct window *window, const struct export_request *request,
                 struct buffer *out)
{
    return gathered_write(window, request, pprof_write, out);
}
