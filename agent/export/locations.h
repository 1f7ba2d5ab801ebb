/* locations.h: the program counters of one pprof file as its tables of mappings, locations and
 * functions, with dense numbers from 1 in table order.
 *
 * A location is an ELF virtual address of an object; equal ones of different generations are
 * one. Mappings: mapping 1 is the main program's (first) executable segment, each executable
 * segment of an object met has its own, with addresses as in the ELF file; "[libagent]" holds the
 * pseudo frames, numbered from address 1; "[anon]" holds code in no known object (JIT, or memory
 * that the program made executable), at run-time addresses. Every location has a function, so
 * has_functions is true throughout; but with LIBAGENT_SYMBOLS=off only pseudo frames have, and
 * readers find the others' by mapping and build id. Names: the symbol, readable in `name` and as it
 * is in the file in `system_name`; for code in no object what jit_names.h finds; else
 * `libx.so.1+0x1234` (ELF virtual address: where its function begins, as call frame information has
 * it, and without that its own), `[anon]+0x7f0012345678` (run-time address: nothing is there any
 * more).
 *
 * With LIBAGENT_SYMBOLS=lines a location in an object with debugging information has the functions
 * that were inlined there as well, each with file, line and first line (lines.h). A function of the
 * same name in two files is two. What the budget of one profile did not reach has its name alone,
 * and its mapping says that files and lines are not all there.
 *
 * Order of calls: begin, location_of for all, name, encode, free.
 *
 * Owns: nothing; the table is its user's, one thread at a time. Context: INIT, TICK, under
 * LOCK_FLUSH (demangling). Locks: LOCK_MODULES, short. Memory: buffers of its own. */
#ifndef LIBAGENT_LOCATIONS_H
#define LIBAGENT_LOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/base/pair_map.h"
#include "agent/export/string_table.h"

struct location_table {
    struct buffer locations;    /* struct location, by number - 1 */
    struct buffer places;       /* struct place: objects and what stands for one */
    struct buffer functions;    /* struct function, by number - 1 */
    struct buffer lines;        /* struct location_line */
    struct pair_map by_pc;      /* (pc, generation) to location */
    struct pair_map by_address; /* (place, address) to location */
    struct pair_map by_object;  /* (object, is pseudo) to place + 1 */
    struct pair_map by_name;    /* (name and system name, file and start line) to function */
};

/* One of the functions that an address is in, and the line there; 0: not known. */
struct location_line {
    uint32_t function, line;
};

/* 0 or -ENOMEM. */
int locations_begin(struct location_table *table) MUST_USE;
/* The number of the location of a recorded pc; 0 when there is no memory. */
uint32_t location_of(struct location_table *table, uint32_t generation, uint64_t pc);
/* Gives each location its function, or several (see above); without `reads_lines` lines are those
 * that were read for a profile before. 0 or -ENOMEM. */
int locations_name(struct location_table *table, struct string_table *strings,
                   bool reads_lines) MUST_USE;
/* The functions of a named location: the innermost first, the last one the code's own. */
const struct location_line *location_lines(const struct location_table *table, uint32_t number,
                                           uint32_t *count);
/* Writes mappings, locations and functions. */
void locations_encode(const struct location_table *table, struct string_table *strings,
                      struct buffer *out);
void locations_free(struct location_table *table);

#endif
