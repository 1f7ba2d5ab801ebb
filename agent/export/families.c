#include "agent/export/families.h"

#include "agent/base/compiler.h"

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
    return round_fixed(row->values[value],
                       is_count ? RECORD_FRACTION_BITS : family_formats[row->family].amount_bits);
}
