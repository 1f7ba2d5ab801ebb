/* ifunc.h: functions that are chosen at the start among several (IFUNC): glibc's memcpy, strlen and
 * some fifty others. What was chosen (__memmove_avx_unaligned_erms) is a local function, so in a
 * stripped libc it has no name; but the word that calls of libc's own go through leads to it, and
 * its relocation tells the resolver, which has the name that programs know: memcpy.
 *
 * How far it reaches is what its call frame information covers: where that does not begin at
 * the address in the word, nothing is said.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: its caller's buffer. */
#ifndef LIBAGENT_IFUNC_H
#define LIBAGENT_IFUNC_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"
#include "agent/export/symbol_table.h"

enum { IFUNCS_MAX = 1024 }; /* of an object; glibc has 40 on x86-64, 2 on aarch64 */

struct ifunc {
    uint64_t low, high; /* the chosen function */
    uint64_t resolver;
};

/* Appends an ifunc to `found` for each one whose code holds an address without a name. The object
 * is loaded with that bias, and for good (in_place). 0, -ENOMEM, or what reading gave. */
int ifunc_find(const struct elf_file *file, const struct object *object, uintptr_t bias,
               const uint64_t *addresses, const struct symbol_name *names, size_t count,
               struct buffer *found) MUST_USE;

#endif
