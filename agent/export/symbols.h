/* symbols.h: the names of addresses of one object, from the symbol table of its file.
 *
 * One pass over .symtab, or .dynsym where that is missing, in chunks. A symbol names an address
 * only inside its size: what lies in a gap has no name here, never its neighbour's. Names are
 * those of functions: STT_FUNC and STT_GNU_IFUNC, and STT_NOTYPE (assembly) with a size, in an
 * executable section.
 *
 * Where several symbols hold an address, the best is, in this order:
 *  1. the one that starts last: the innermost;
 *  2. a function rather than one without type;
 *  3. a global or weak one rather than a local one;
 *  4. the one with fewer leading underscores (write, not __write, though glibc has the first
 *     weak and the second global);
 *  5. a global one rather than a weak one;
 *  6. the shorter name, then the first in byte order: so the answer depends on no table's order.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: one mapping and buffers, freed before
 * it returns. Time: bounded by SYMBOLS_MAX and a budget of steps, whatever the file says. */
#ifndef LIBAGENT_SYMBOLS_H
#define LIBAGENT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/unwind/modules.h"

enum {
    SYMBOL_NAME_MAX = 4096, /* longer names are cut there */
    SYMBOLS_MAX = 4 << 20,  /* of a table: 96 MiB to read; Chromium has a million */
};

/* Where a name stands in the buffer of texts, with a 0 behind it. */
struct symbol_name {
    uint32_t offset;
    uint32_t length; /* 0: no name */
};

/* Names `count` addresses (ELF virtual addresses, ascending), appending the texts, each once, to
 * `texts`, as they are in the file but for a version (`@VERSION`). 0; or a negative errno, with
 * no name for any address: -ESTALE when the file is not the object's any more, -ENOENT when there
 * is none or it has no table, -ENOEXEC when it is not understood, -ENOMEM. */
int symbols_find(const struct object *object, const uint64_t *addresses, size_t count,
                 struct symbol_name *names, struct buffer *texts) MUST_USE;

#endif
