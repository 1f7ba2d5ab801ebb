/* elf_object.h: what a loaded ELF image tells of itself: segments, build id, unwind tables.
 *
 * Reads the image in memory, so the caller holds the loader's list (the callback of
 * dl_iterate_phdr does) or knows that the image stays.
 * Owns: nothing. Context: INIT, THR, TICK. Locks: none. */
#ifndef LIBAGENT_ELF_OBJECT_H
#define LIBAGENT_ELF_OBJECT_H

#include <elf.h>
#include <link.h>

#include "agent/unwind/modules.h"

struct elf_image {
    uintptr_t bias;
    const ElfW(Phdr) * headers;
    uint32_t header_count;
    uint64_t identity; /* hash of the program headers */
    const uint8_t *build_id;
    size_t build_id_size;      /* at most BUILD_ID_MAX; 0: none */
    const ElfW(Dyn) * dynamic; /* NULL: none */
    size_t dynamic_count;
};

void elf_read_image(const struct dl_phdr_info *info, struct elf_image *image);
/* Segments, build id. */
void elf_describe(const struct elf_image *image, struct object *object);
bool elf_has_code(const struct elf_image *image);
/* Calls `each` with the name of every DT_NEEDED. */
void elf_each_needed(const struct elf_image *image, void (*each)(const char *name, void *data),
                     void *data);

/* The readable PT_LOAD with all of [vaddr, vaddr + size) in its part that comes from the file. */
const ElfW(Phdr) * elf_find_load(const struct elf_image *image, uint64_t vaddr, uint64_t size);
static inline const uint8_t *elf_in_memory(const struct elf_image *image, uint64_t vaddr)
{
    return (const uint8_t *)(image->bias + vaddr);
}
/* A hash of the begin of its code; 0 where that cannot be read. */
uint64_t elf_code_hash(const struct elf_image *image);
/* Opens the file that `path` leads to, where it is certainly the one that was loaded: same build
 * id, or, without one, the same program headers and code. A descriptor or a negative errno. */
struct stat;
int elf_open_loaded(const struct elf_image *image, const char *path, struct stat *status) MUST_USE;
/* Sets device and inode, where there is no build id and the file is certainly the loaded one. */
void elf_note_file(const struct elf_image *image, const char *path, struct object *object);
/* The path that the program was executed by, made absolute, where that leads to the image: all that
 * tells where there is no /proc. 0 or a negative errno. */
int elf_executed_path(const struct elf_image *image, char *path, size_t size) MUST_USE;

/* The unwind tables, .eh_frame_hdr and .eh_frame, where they are. An object whose .eh_frame_hdr
 * has no table of ours to search keeps them empty (see elf_frames.h). */
void elf_tables_in_place(const struct elf_image *image, struct object *object);
/* The same as a copy in memory of ours. 0 or a negative errno. */
int elf_tables_copied(const struct elf_image *image, struct object *object) MUST_USE;
/* The bytes of such a copy. */
size_t elf_tables_size(const struct elf_image *image);
/* The same from the file `path`, mapped by us, where it is certainly the loaded one. 0 or a
 * negative errno. */
int elf_tables_mapped(const struct elf_image *image, const char *path,
                      struct object *object) MUST_USE;
/* Gives up what was copied or mapped. Nobody may read it any more. */
void elf_tables_give_up(struct object *object);
/* True when the tables of `object`, wherever they are or were, are those of the image. */
bool elf_tables_equal(const struct elf_image *image, const struct object *object);
/* What .eh_frame_hdr tells even without such a table: where it is itself, and .eh_frame from its
 * begin to the end of its segment. */
bool elf_eh_frame_by_hdr(const struct elf_image *image, uint64_t *hdr_vaddr,
                         struct object_table *frame);

#endif
