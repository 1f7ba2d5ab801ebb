/* symbol_table.h: which symbol names an address, from one or more tables of one object.
 *
 * Each table is read once, in chunks. Symbols that count are functions: STT_FUNC, STT_GNU_IFUNC,
 * and STT_NOTYPE (assembly) in an executable section. One with a size names an address only inside
 * of it. Where several hold an address, the best is, in this order:
 *  1. the one that starts last: the innermost;
 *  2. a function rather than one without type;
 *  3. a global or weak one rather than a local one;
 *  4. the one with fewer leading underscores (write, not __write, though glibc has the first
 *     weak and the second global);
 *  5. a global one rather than a weak one;
 *  6. the shorter name, then the first in byte order: so the answer depends on no table's order.
 *
 * One without a size (assembly that tells none, _init) names what no symbol with a size holds, from
 * where it starts to the next start or end of any other symbol, or the end of its section. At one
 * start, one with a size says where the function ends: those without do not count beside it. Those
 * whose name begins with '.' or '$' are no functions (labels, marks of tools and of data in code).
 * Of several at one start, rules 2 to 6 choose.
 *
 * What is left lies in a gap, and has no name here, never its neighbour's.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: mappings and buffers, given back by
 * symbol_pass_end. */
#ifndef LIBAGENT_SYMBOL_TABLE_H
#define LIBAGENT_SYMBOL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

enum {
    SYMBOL_NAME_MAX = 4096, /* longer names are cut there */
    SYMBOLS_MAX = 4 << 20,  /* of a table: 96 MiB to read; Chromium has a million */
    SYMBOL_SOURCES_MAX = 2, /* tables of one object */
};

/* Where a name stands in the buffer of texts, with a 0 behind it; and for which addresses the
 * answer holds, `low` <= address < `high`: that of the address asked for is between them. */
struct symbol_name {
    uint32_t offset;
    uint32_t length; /* 0: no name */
    uint64_t low, high;
};

/* A table, and where its names are. `file` stays the caller's, and open. */
struct symbol_source {
    const struct elf_file *file;
    struct elf_extent symbols, strings;
};

struct symbol_work;

struct symbol_pass {
    const uint64_t *addresses;
    size_t count;
    struct symbol_source sources[SYMBOL_SOURCES_MAX];
    uint32_t source_count;
    struct symbol_work *work;
    size_t work_size;
    struct buffer candidates;
    struct buffer sections; /* struct code_section, of the table that is read */
    uint64_t steps;
};

/* For `count` addresses, ascending. 0 or -ENOMEM. */
int symbol_pass_begin(struct symbol_pass *pass, const uint64_t *addresses, size_t count) MUST_USE;
/* Reads one more table. 0, -ENOMEM, or what reading gave. */
int symbol_pass_scan(struct symbol_pass *pass, struct symbol_source source) MUST_USE;
/* Writes the names of all addresses, and their texts, each once. 0 or -ENOMEM. */
int symbol_pass_write(struct symbol_pass *pass, struct symbol_name *names,
                      struct buffer *texts) MUST_USE;
void symbol_pass_end(struct symbol_pass *pass);

#endif
