#include "agent/export/families.h"

#include "agent/base/compiler.h"

/* Files of the live heap alone: its words, so that all readers know them. */
#define LIVE_VALUES                                                                                \
    .values =                                                                                      \
        {[LIVE_COUNT] = {"inuse_objects", "count"}, [LIVE_AMOUNT] = {"inuse_space", "bytes"}},     \
    .period = {"space", "bytes"}, .amount_bits = RECORD_AMOUNT_BITS_ALLOC

static const struct family_format family_formats[FILE_FAMILIES] = {
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
    [FILE_HEAP_GROWTH] = {.name = "heap-growth", LIVE_VALUES},
    [FILE_HEAP_PEAK] = {.name = "heap-peak", LIVE_VALUES},
};

/* Datadog's names for the same. */
static const struct family_format datadog_formats[FILE_FAMILIES] = {
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

const char *export_family_name(enum record_family family)
{
    return family_formats[family].name;
}

const struct family_format *family_formats_of(enum export_dialect dialect)
{
    return dialect == DIALECT_DATADOG ? datadog_formats : family_formats;
}

bool family_has_value(const struct export_request *request, enum record_family family, int value)
{
    if (family >= RECORD_FAMILIES)
        return value >= LIVE_COUNT;
    if (value >= LIVE_COUNT)
        return family == RECORD_ALLOC && request->has_live;
    return family != RECORD_ALLOC || request->has_window;
}

int family_default_value(const struct export_request *request, enum record_family family)
{
    return family_has_value(request, family, LIVE_AMOUNT) ? LIVE_AMOUNT : WINDOW_AMOUNT;
}

static uint64_t round_fixed(uint64_t value, unsigned bits)
{
    uint64_t half = bits ? value >> (bits - 1) & 1 : 0;
    return MIN_OF((value >> bits) + half, (uint64_t)INT64_MAX);
}

uint64_t family_value_of(const struct row *row, int value)
{
    bool is_count = value == WINDOW_COUNT || value == LIVE_COUNT;
    unsigned bits = is_count ? RECORD_FRACTION_BITS : family_formats[row->family].amount_bits;
    uint64_t rounded = round_fixed(row_size(row, row->values[value]), bits);
    return row_is_negative(row, row->values[value]) ? -rounded : rounded;
}

bool family_row_is_shown(const struct export_request *request, const struct row *row)
{
    for (int i = 0; i < VALUES; i++)
        if (family_has_value(request, row->family, i) && family_value_of(row, i))
            return true;
    return false;
}
