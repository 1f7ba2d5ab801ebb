/* families.h: what the families' files say of their values, for every writer of rows: names, units,
 * and a row's values as they stand in a file.
 * Owns: constants. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_FAMILIES_H
#define LIBAGENT_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/export/export.h"
#include "agent/export/rows.h"

struct value_type {
    const char *type, *unit;
};

/* A count and then its amount, of the window, and of what is live. */
struct family_format {
    const char *name;
    struct value_type values[VALUES], period;
    unsigned amount_bits; /* fraction bits of a recorded amount */
};

/* By family, in the dialect's words. */
const struct family_format *family_formats_of(enum export_dialect dialect);
/* Is it one of the sample types of the family's file? `value`: WINDOW_COUNT, ... */
bool family_has_value(const struct export_request *request, enum record_family family, int value);
/* Has the row a value that stands in the file and is not 0? */
bool family_row_is_shown(const struct export_request *request, const struct row *row);
/* The value that readers show unless asked. */
int family_default_value(const struct export_request *request, enum record_family family);
/* A row's value, rounded to whole units; of what shrank negative, in two's complement. */
uint64_t family_value_of(const struct row *row, int value);

#endif
