/* elf_sections.h: where a file has the sections of call frame information, by its section headers.
 * Program headers, which the loader has in memory, do not tell.
 *
 * Read by system calls, never through a mapping: a file may be cut short at any time.
 * Owns: nothing. Context: INIT, THR, TICK. Locks: none. */
#ifndef LIBAGENT_ELF_SECTIONS_H
#define LIBAGENT_ELF_SECTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct elf_section {
    uint64_t vaddr, offset, size; /* size 0: there is none */
    bool is_compressed;
};

struct elf_sections {
    struct elf_section eh_frame, debug_frame;
};

/* Sections that lie in [0, file_size); of what is malformed, none. */
void elf_read_sections(int fd, uint64_t file_size, struct elf_sections *sections);

#endif
