/* gathered.h: what a file is made of, whatever its format: rows, locations, and their names.
 *
 * The formats of files show the same, so that what was gathered for one serves the others of the
 * same family: names are looked up once, and all have the same sums.
 *
 * Owns: nothing; it is its user's, one thread at a time. Context: INIT, TICK, under LOCK_FLUSH.
 * Locks: LOCK_MODULES, short. Memory: buffers of its own. */
#ifndef LIBAGENT_GATHERED_H
#define LIBAGENT_GATHERED_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/export.h"
#include "agent/export/rows.h"
#include "agent/export/string_table.h"

/* All zero is an empty one. */
struct gathered {
    struct export_request request;
    uint32_t families; /* 1 << family of each that is in the file */
    struct row_table rows;
    struct string_table strings; /* names; a writer may add its own texts */
    bool is_there;
    bool has_values; /* some row has one that is not 0; else nothing has a name */
};

/* Writes a file, of which there is something to show, to the end of `out`. 0, -ENOMEM, or -E2BIG:
 * it is more than request->byte_limit. */
typedef int (*gathered_writer)(struct gathered *gathered, const struct export_request *request,
                               struct buffer *out);

/* Gathers, unless it was done for a format before, and writes. `out` stays empty where the family
 * has no value. 0 or a negative errno (out is then freed); after -E2BIG what was gathered stays. */
int gathered_write(const struct window *window, const struct export_request *request,
                   gathered_writer writer, struct buffer *out) MUST_USE;
void gathered_free(struct gathered *gathered);

#endif
