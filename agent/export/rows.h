/* rows.h: what one exported file is made of: the stacks of a quiescent window and of the live
 * heap's open snapshot and kept ones, those that look alike added up.
 *
 * heap-growth is the open snapshot less what is kept of the mark: of what shrank its sums are
 * negative, in two's complement.
 *
 * Two rows look alike when every location, the labels and the family are the same; so what a window
 * and the live heap have of a stack, and what two generations of the module list have of it, is one
 * row. Where a file may have `row_limit` rows at most, the smallest are added up in one of
 * libagent truncated, with what the window had no room for.
 *
 * A capture's file has the rows of its slice, a copy: the window's has them, too.
 *
 * Order of calls: gather, then whatever writes a file of the rows (their locations have numbers by
 * then, no names), free.
 *
 * Owns: nothing; the table is its user's, one thread at a time. Context: INIT, TICK, under
 * LOCK_FLUSH. Locks: LOCK_MODULES, short. Memory: buffers of its own. */
#ifndef LIBAGENT_ROWS_H
#define LIBAGENT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/base/pair_map.h"
#include "agent/export/export.h"
#include "agent/export/locations.h"
#include "agent/record/time_recorder.h"

/* The values of a row, each a sum in fixed point: of the window, and of what is live. */
enum { WINDOW_COUNT, WINDOW_AMOUNT, LIVE_COUNT, LIVE_AMOUNT, VALUES };

struct row {
    enum record_family family;
    const uint64_t *pcs;
    uint32_t generation, count;
    const struct thread_label *thread;                 /* NULL: none */
    const struct intern_entry *labels[ROW_LABEL_SETS]; /* the program's; NULL: none */
    uint32_t state;                                    /* a wall sample's label */
    uint64_t age_s, bytes; /* labels of what is live; 0 where they are not asked for */
    uint64_t values[VALUES];
};

/* All zero is an empty table. */
struct row_table {
    const struct export_request *request;
    uint32_t families;               /* 1 << family of each that is in the file */
    struct location_table locations; /* of all rows, and of nothing else */
    struct buffer rows;              /* struct row */
    struct pair_map by_look;         /* (hash of locations, hash of labels) to row + 1 */
};

/* Fills an empty table. 0 or a negative errno; the table is then to be freed, as it is after use.
 */
int rows_gather(struct row_table *table, const struct window *window,
                const struct export_request *request, uint32_t families) MUST_USE;
const struct row *rows_of(const struct row_table *table, size_t *count);
/* The program's labels of a row and its captures, one after the other: begin with *position 0.
 * False at the end. */
bool row_next_label(const struct row *row, uint32_t *position, struct user_label *label);
void rows_free(struct row_table *table);
/* Is a value of the row one of heap-growth's that shrank? */
static inline bool row_is_negative(const struct row *row, uint64_t value)
{
    return row->family == FILE_HEAP_GROWTH && value >> 63;
}
/* The value without its sign. */
static inline uint64_t row_size(const struct row *row, uint64_t value)
{
    return row_is_negative(row, value) ? -value : value;
}

#endif
