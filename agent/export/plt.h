/* plt.h: procedure linkage tables: code that the linker made, without symbols, which jumps where a
 * word of the global offset table leads. Each entry is read, its word looked up among the
 * relocations, and the entry named after what the relocation is for: `malloc@plt`. A word for a
 * function of the object's own that is chosen at the start (IFUNC) has the address of its
 * resolver instead.
 *
 * Read are the forms that ld, gold, lld and mold write: on x86-64 entries of 16 or 8 bytes that
 * jump through the word themselves, or push the number of the relocation; on aarch64 those of 16
 * bytes. What else stands there (the head that calls the loader) has no name.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: its caller's buffer. */
#ifndef LIBAGENT_PLT_H
#define LIBAGENT_PLT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"
#include "agent/export/symbol_table.h"

enum { PLT_ENTRIES_MAX = 1024 }; /* of one window and object; more have no names */

struct plt_entry {
    uint64_t low, high; /* its code */
    uint64_t word;      /* of the global offset table; 0: none */
    uint64_t number;    /* of the relocation in .rela.plt; UINT64_MAX: not known */
    uint32_t symbol;    /* of .dynsym; 0: none */
    uint64_t resolver;  /* 0: none */
};

/* Appends a plt_entry to `entries` for each of them that holds an address without a name, by
 * address. 0, -ENOMEM, or what reading gave. */
int plt_find(const struct elf_file *file, const uint64_t *addresses,
             const struct symbol_name *names, size_t count, struct buffer *entries) MUST_USE;

#endif
