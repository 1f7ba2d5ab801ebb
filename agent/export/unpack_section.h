/* unpack_section.h: what is packed in a section (ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD), by zlib and
 * zstd, which are linked in and given memory of ours.
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: while it unpacks, 0.2 MiB and for zstd
 * the section as it is packed besides. */
#ifndef LIBAGENT_UNPACK_SECTION_H
#define LIBAGENT_UNPACK_SECTION_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

/* Fills `out` with exactly `size` bytes. 0; -ENOEXEC where that is not what is there, or the kind
 * is none of these; -ENOMEM, or what reading gave. */
int unpack_section(const struct elf_file *file, struct elf_extent packed, uint32_t kind,
                   uint8_t *out, size_t size) MUST_USE;

#endif
