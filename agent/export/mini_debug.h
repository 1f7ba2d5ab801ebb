/* mini_debug.h: .gnu_debugdata, an ELF file packed by xz inside of another (Fedora and its kin have
 * it in all stripped files): a .symtab of the functions that .dynsym lacks.
 *
 * liblzma's decoder of LZMA2 is linked in, and given memory of ours; the container around it (xz's
 * header, blocks, index, checks) is read here, as liblzma's own reader brings a constructor along.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: MINI_DEBUG_MAX for the file; while it is
 * unpacked as much again, and half of that. */
#ifndef LIBAGENT_MINI_DEBUG_H
#define LIBAGENT_MINI_DEBUG_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

/* Unpacked: 90,000 functions with names of 45 bytes. */
enum { MINI_DEBUG_MAX = 6 << 20 };

struct mini_debug {
    struct elf_file file; /* in memory */
    uint8_t *data;
    size_t size;
};

/* Unpacks that of `file`. 0; -ENOENT when it has none, -ENOEXEC when it is damaged or of a kind
 * that is not read here, -E2BIG, -ENOMEM, or what reading gave. */
int mini_debug_open(struct mini_debug *mini, const struct elf_file *file) MUST_USE;
void mini_debug_close(struct mini_debug *mini);

/* The xz file `in` into new memory (given back by sys_unmap). Errors as above. */
int xz_unpack(const uint8_t *in, size_t in_size, uint8_t **out, size_t *out_size) MUST_USE;

#endif
