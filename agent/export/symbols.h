/* symbols.h: the names of addresses of one object, from the tables of symbols that its file and
 * what belongs to it have. The rules by which a symbol is chosen: symbol_table.h.
 *
 * Which tables: the file's .symtab; where it was stripped, that of its separate debug file
 * (debug_file.h); without one, its .dynsym and the table in its .gnu_debugdata together
 * (mini_debug.h). The vdso is read from memory. Where the file was replaced since it was loaded,
 * its debug file still answers: it is found by the object's build id.
 *
 * Entries of procedure linkage tables are named after what they jump to (plt.h), and what was
 * chosen among several at the start after what it was chosen for (ifunc.h).
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: mappings and buffers, freed before it
 * returns. Time: bounded by SYMBOLS_MAX and a budget of steps, whatever the files say. */
#ifndef LIBAGENT_SYMBOLS_H
#define LIBAGENT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/symbol_table.h"
#include "agent/unwind/modules.h"

/* A bias that says: not loaded, or it may be unloaded at any time. */
#define SYMBOLS_NOT_LOADED UINTPTR_MAX

/* Names `count` addresses (ELF virtual addresses, ascending), appending the texts, each once, to
 * `texts`, as they are in the file but for a version (`@VERSION`). 0; or a negative errno, with
 * no name for any address: -ESTALE when the file is not the object's any more, -ENOENT when there
 * is none or it has no table, -ENOEXEC when it is not understood, -ENOMEM. */
int symbols_find(const struct object *object, uintptr_t bias, const uint64_t *addresses,
                 size_t count, struct symbol_name *names, struct buffer *texts) MUST_USE;

#endif
