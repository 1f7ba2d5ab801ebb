/* elf_file.h: an ELF file on disk, read by pread with every number checked: the file may be cut,
 * replaced or damaged at any time, and must neither fault, nor hang, nor mislead. Or one in memory
 * (unpacked mini debug info, the vdso), read by the same functions.
 *
 * Taken: 64 bits, little endian, of the processor that we run on, section headers and tables not
 * compressed. Everything else is refused.
 *
 * Owns: nothing; one thread uses a file at a time. Context: INIT, TICK. Locks: none. */
#ifndef LIBAGENT_ELF_FILE_H
#define LIBAGENT_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/unwind/modules.h"

/* A part of the file, within its size. */
struct elf_extent {
    uint64_t offset, size;
};

struct elf_file {
    int fd;
    const uint8_t *memory; /* NULL: it is read from fd */
    uint64_t size;
    uint64_t device, inode;
    Elf64_Ehdr header;
    uint32_t section_count;
    struct elf_extent section_names; /* size 0: none */
};

/* 0, or a negative errno: -ENOEXEC for what is no ELF file that we take. */
int elf_open(struct elf_file *file, const char *path) MUST_USE;
/* The same of bytes in memory, which stay the caller's. */
int elf_open_memory(struct elf_file *file, const void *data, size_t size) MUST_USE;
void elf_close(struct elf_file *file);
/* Reads all of [offset, offset + size). 0, -EIO when the file ends before, or a negative errno. */
int elf_read(const struct elf_file *file, uint64_t offset, void *data, size_t size) MUST_USE;
/* Reads up to `size` bytes from inside the extent. Bytes read, or a negative errno. */
long elf_read_some(const struct elf_file *file, struct elf_extent extent, uint64_t offset,
                   void *data, size_t size) MUST_USE;
/* 0 when the file is what the object was loaded from: equal executable segments, and an equal
 * build id; without one, equal device and inode where they are known. Else -ESTALE. */
int elf_check_identity(const struct elf_file *file, const struct object *object) MUST_USE;
/* Whether the file has the object's build id (false where the object has none): of debug files,
 * whose segments are not those of the object. */
bool elf_has_build_id_of(const struct elf_file *file, const struct object *object);
/* Whether the file has a build id, of whatever. */
bool elf_has_build_id(const struct elf_file *file);
/* The first section of that name that has bytes in the file. 0, -ENOENT, or -ENOEXEC. */
int elf_find_section(const struct elf_file *file, const char *name, Elf64_Shdr *found) MUST_USE;
/* The first that has one of two names. */
int elf_find_section_of(const struct elf_file *file, const char *name, const char *other,
                        Elf64_Shdr *found) MUST_USE;
/* Whether the section's name begins with that text (at most 31 bytes). */
bool elf_section_begins(const struct elf_file *file, const Elf64_Shdr *section, const char *text);
/* Finds the table of type SHT_SYMTAB or SHT_DYNSYM and its strings. 0, -ENOENT when there is
 * none, or -ENOEXEC. */
int elf_find_symbols(const struct elf_file *file, uint32_t type, struct elf_extent *symbols,
                     struct elf_extent *strings) MUST_USE;
/* Calls `each` for every section with its index. 0 or the first error. */
int elf_each_section(const struct elf_file *file,
                     void (*each)(const Elf64_Shdr *section, uint32_t index, void *data),
                     void *data) MUST_USE;

#endif
