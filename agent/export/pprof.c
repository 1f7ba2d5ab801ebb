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

/* Datadog's names for the same. */
static const struct family_format datadog_formats[RECORD_FAMILIES] = {
    [RECORD_CPU] = {.name = "all",
                    .values = {{"cpu-samples", "count"}, {"cpu-time", "nanoseconds"}},
                    .period = {"cpu-time", "nanoseconds"}},
    [RECORD_ALLOC] = {.name = "all",
                      .values = {{"alloc-samples", "count"},
                                 {"alloc-space", "bytes"},
                                 {"inuse-objects", "count"},
                                 {"inuse-space", "bytes"}},
                      .period = {"alloc-space", "bytes"},
                      .amount_bits = RECORD_AMOUNT_BITS_ALLOC},
    [RECORD_WALL] = {.name = "all",
                     .values = {{"wall-samples", "count"}, {"wall-time", "nanoseconds"}},
                     .period = {"wall-time", "nanoseconds"}},
};

enum { VALUES_MAX = VALUES * RECORD_FAMILIES };

/* A sample of the file. */
struct row {
    enum record_family family;
    const uint64_t *pcs;
    uint32_t generation, count;
    const struct thread_label *thread; /* NULL: none */
    uint32_t state;                    /* a wall sample's label */
    uint64_t age_s, bytes;             /* labels of what is live; 0 where they are not asked for */
    uint64_t values[VALUES];
};

struct encoder {
    const struct export_request *request;
    const struct family_format *formats;
    size_t value_count;
    bool holds[RECORD_FAMILIES];
    uint8_t place[RECORD_FAMILIES][VALUES]; /* among the file's values */
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
    if (a->family != b->family || a->count != b->count || a->state != b->state ||
        a->age_s != b->age_s || a->bytes != b->bytes ||
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
    if (!encoder->holds[row->family])
        return 0;
    uint64_t hash = row->count + ((uint64_t)row->family << 32);
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
    if (row->family == RECORD_ALLOC && !encoder->request->has_window)
        return 0;
    const struct row added = {
        .family = row->family,
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
        .family = RECORD_ALLOC,
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
    int error = window_each(window, add_window_row, encoder);
    bool with_live = request->has_live && encoder->holds[RECORD_ALLOC];
    return error || !with_live ? error : heap_snapshot_each(add_live_row, encoder);
}

/* ---- Samples ------------------------------------------------------------------------------- */

/* Is it one of the file's sample types? */
static bool is_written(const struct encoder *encoder, enum record_family family, int value)
{
    if (!encoder->holds[family])
        return false;
    if (value >= LIVE_COUNT)
        return family == RECORD_ALLOC && encoder->request->has_live;
    return family != RECORD_ALLOC || encoder->request->has_window;
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

/* The file's values of a row; false if all are 0. */
static bool values_of(const struct encoder *encoder, const struct row *row, uint64_t *values)
{
    unsigned amount_bits = encoder->formats[row->family].amount_bits;
    uint64_t any = 0;
    memset(values, 0, VALUES_MAX * sizeof(values[0]));
    for (int i = 0; i < VALUES; i++) {
        if (!is_written(encoder, row->family, i))
            continue;
        bool is_count = i == WINDOW_COUNT || i == LIVE_COUNT;
        uint64_t value = round_fixed(row->values[i], is_count ? RECORD_FRACTION_BITS : amount_bits);
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
        if (!(ids[i] = location_of(&encoder->locations, row->generation, row->pcs[i])))
            return -ENOMEM;
    struct buffer *out = encoder->out;
    size_t mark = pb_begin(out, PROFILE_SAMPLE);
    pb_packed(out, SAMPLE_LOCATION_ID, ids, row->count);
    pb_packed(out, SAMPLE_VALUE, values, encoder->value_count);
    if (row->thread && encoder->request->thread_labels)
        encode_thread(encoder, row->thread);
    if (row->thread && row->family == RECORD_WALL)
        encode_state(encoder, row->state);
    encode_live_labels(encoder, row);
    pb_end(out, mark);
    encoder->samples++;
    return out->error;
}

/* Which rows stay where there is a limit: those of the largest amounts, by powers of two; of those
 * in between as many as there is room for. */
struct fold {
    uint64_t least;       /* such amounts stay */
    uint64_t least_spare; /* such ones while there is room */
    size_t spare;
};

/* Nearly always one of the two is 0. */
static uint64_t amount_of(const struct row *row)
{
    return row->values[WINDOW_AMOUNT] + row->values[LIVE_AMOUNT];
}

static struct fold fold_rows(const struct row *rows, size_t count, uint32_t limit)
{
    size_t of_length[65] = {0};
    if (!limit || count <= limit)
        return (struct fold){0};
    for (size_t i = 0; i < count; i++)
        of_length[amount_of(&rows[i]) ? 64 - __builtin_clzll(amount_of(&rows[i])) : 0]++;
    size_t kept = 0;
    int length = 64;
    while (length > 0 && kept + of_length[length] <= limit)
        kept += of_length[length--];
    return (struct fold){length < 64 ? 1ull << length : UINT64_MAX,
                         length > 0 ? 1ull << (length - 1) : 0, limit - kept};
}

static bool stays(struct fold *fold, uint64_t amount)
{
    if (amount >= fold->least)
        return true;
    if (amount < fold->least_spare || fold->spare == 0)
        return false;
    fold->spare--;
    return true;
}

static int encode_truncated(struct encoder *encoder, const struct window *window,
                            uint64_t folded[RECORD_FAMILIES][VALUES])
{
    const uint64_t truncated_pc = PSEUDO_TRUNCATED;
    int error = 0;
    for (int family = 0; family < RECORD_FAMILIES && !error; family++) {
        if (!encoder->holds[family])
            continue;
        struct row truncated = {
            .family = (enum record_family)family, .pcs = &truncated_pc, .count = 1};
        memcpy(truncated.values, folded[family], sizeof(truncated.values));
        truncated.values[WINDOW_COUNT] += window->truncated[family].count;
        truncated.values[WINDOW_AMOUNT] += window->truncated[family].amount;
        error = encode_sample(encoder, &truncated);
    }
    return error;
}

static int encode_samples(struct encoder *encoder, const struct window *window)
{
    const struct row *rows = (const void *)encoder->rows.data;
    size_t count = encoder->rows.size / sizeof(rows[0]);
    struct fold fold = fold_rows(rows, count, encoder->request->row_limit);
    uint64_t folded[RECORD_FAMILIES][VALUES] = {{0}};
    if (fold.least) {
        /* Without those of the rows that go. */
        locations_free(&encoder->locations);
        int error = locations_begin(&encoder->locations);
        if (error)
            return error;
    }
    for (size_t i = 0; i < count; i++) {
        if (!stays(&fold, amount_of(&rows[i]))) {
            for (int value = 0; value < VALUES; value++)
                folded[rows[i].family][value] += rows[i].values[value];
            continue;
        }
        int error = encode_sample(encoder, &rows[i]);
        if (error)
            return error;
    }
    return encode_truncated(encoder, window, folded);
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
    bool shows_live = is_written(encoder, request->family, LIVE_AMOUNT);
    pb_uint(out, PROFILE_DEFAULT_SAMPLE_TYPE,
            add_string(encoder, format->values[shows_live ? LIVE_AMOUNT : WINDOW_AMOUNT].type));
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
    for (int family = 0; family < RECORD_FAMILIES; family++)
        for (int i = 0; i < VALUES; i++)
            if (is_written(encoder, (enum record_family)family, i))
                encode_value_type(encoder, PROFILE_SAMPLE_TYPE, encoder->formats[family].values[i]);
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
    bool is_datadog = request->dialect == DIALECT_DATADOG;
    struct encoder encoder = {
        .request = request, .formats = is_datadog ? datadog_formats : family_formats, .out = out};
    for (unsigned family = 0; family < RECORD_FAMILIES; family++) {
        encoder.holds[family] =
            is_datadog ? request->families >> family & 1 : family == request->family;
        for (int i = 0; i < VALUES; i++)
            if (is_written(&encoder, (enum record_family)family, i))
                encoder.place[family][i] = (uint8_t)encoder.value_count++;
    }
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
