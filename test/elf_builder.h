/* elf_builder.h: small ELF files with any symbols, and objects that match them.
 *
 * One executable segment from ELF_CODE on; sections: 0 none, ELF_TEXT (executable), ELF_DATA, the
 * symbols, their strings. */
#ifndef LIBAGENT_TEST_ELF_BUILDER_H
#define LIBAGENT_TEST_ELF_BUILDER_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/unwind/modules.h"

enum { ELF_CODE = 0x1000, ELF_CODE_SIZE = 0x100000 };
enum elf_sections { ELF_TEXT = 1, ELF_DATA, ELF_SYMBOLS, ELF_STRINGS, ELF_SECTIONS };

struct elf_symbol {
    const char *name;
    uint64_t value, size;
    unsigned char type, binding;
    uint16_t section; /* 0 stands for ELF_TEXT */
};

/* The parts of the file, in its memory. */
struct elf_parts {
    uint8_t *data;
    size_t size;
    Elf64_Ehdr *header;
    Elf64_Phdr *programs; /* 0: code, 1: notes */
    uint8_t *note;
    Elf64_Shdr *sections;
    Elf64_Sym *symbols; /* [0] is the empty one */
    char *strings;
};

/* A file whose table of symbols has the type SHT_SYMTAB or SHT_DYNSYM. To be freed with
 * free(parts.data). */
struct elf_parts elf_build(const struct elf_symbol *symbols, size_t count, uint32_t table_type);
/* The object that was loaded from such a file. */
struct object elf_built_object(const char *path);

#endif
