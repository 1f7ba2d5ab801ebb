/* string_table.h: the string table of one pprof file: each text once, valid UTF-8, number 0 is
 * the empty one. The entries are kept as they will stand in the file.
 * Owns: nothing; the table is its user's, one thread at a time. Context: INIT, TICK. Locks: none.
 * Memory: buffers of its own. */
#ifndef LIBAGENT_STRING_TABLE_H
#define LIBAGENT_STRING_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/base/pair_map.h"

/* Longer texts are cut there, in bytes of valid UTF-8. */
enum { STRING_MAX = 4096 };

struct string_table {
    unsigned field;        /* of the file, for strings */
    int error;             /* 0 or -ENOMEM: remembered, as a buffer's is */
    struct buffer encoded; /* field after field */
    struct buffer valid;   /* room for the text that is added, made valid */
    struct buffer places;  /* struct string_place, by number */
    struct pair_map index; /* (hash, length) to number + 1 */
};

void string_table_begin(struct string_table *table, unsigned field);
/* The number of a text, added when it is new. 0 also when there is no memory: see `error`. */
uint32_t string_table_add(struct string_table *table, const char *text, size_t length);
/* A text, until the next one is added; no 0 at its end. */
const char *string_table_text(const struct string_table *table, uint32_t number, size_t *length);
void string_table_free(struct string_table *table);

#endif
