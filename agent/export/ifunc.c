#include "agent/export/ifunc.h"

#include <string.h>

#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"

#if defined(__x86_64__)
enum { IRELATIVE = R_X86_64_IRELATIVE };
#elif defined(__aarch64__)
enum { IRELATIVE = R_AARCH64_IRELATIVE };
#endif

enum {
    CHUNK_RELOCATIONS = 64,
    RELOCATIONS_MAX = 1 << 20, /* of an object; libc has 1,300 */
};

struct search {
    const struct elf_file *file;
    const struct object *object;
    uintptr_t bias;
    const uint64_t *addresses;
    const struct symbol_name *names;
    size_t count;
    struct buffer *found;
    uint32_t seen;
    uint64_t budget; /* of relocations */
    int error;
};

static bool is_code(const struct object *object, uint64_t address)
{
    for (uint32_t i = 0; i < object->segment_count; i++)
        if (address - object->segments[i].vaddr < object->segments[i].size)
            return true;
    return false;
}

static bool has_unnamed(const struct search *search, uint64_t low, uint64_t high)
{
    for (size_t i = 0; i < search->count && search->addresses[i] < high; i++)
        if (search->addresses[i] >= low && search->names[i].length == 0)
            return true;
    return false;
}

static void take(struct search *search, const Elf64_Rela *relocation)
{
    uintptr_t word = search->bias + relocation->r_offset, target;
    if (word % sizeof(word) || !sys_readable(word))
        return;
    memcpy(&target, (const void *)word, sizeof(target));
    uint64_t low = target - search->bias;
    struct cfi_row row;
    if (!is_code(search->object, low) || cfi_row_at(search->object, low, &row) ||
        row.start != low || row.size > UINT64_MAX - low ||
        !has_unnamed(search, low, low + row.size))
        return;
    struct ifunc ifunc = {
        .low = low, .high = low + row.size, .resolver = (uint64_t)relocation->r_addend};
    buffer_append(search->found, &ifunc, sizeof(ifunc));
    search->error = search->found->error;
}

static void read_relocations(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct search *search = data;
    if (section->sh_type != SHT_RELA || section->sh_entsize != sizeof(Elf64_Rela) ||
        !(section->sh_flags & SHF_ALLOC))
        return;
    struct elf_extent extent = {.offset = section->sh_offset, .size = section->sh_size};
    Elf64_Rela chunk[CHUNK_RELOCATIONS];
    for (uint64_t at = 0; search->budget > 0 && !search->error; at += sizeof(chunk)) {
        long got = elf_read_some(search->file, extent, at, chunk, sizeof(chunk));
        if (got < 0)
            search->error = (int)got;
        if (got <= 0)
            return;
        size_t count = MIN_OF((size_t)got / sizeof(chunk[0]), (size_t)search->budget);
        search->budget -= count;
        for (size_t i = 0; i < count && search->seen < IFUNCS_MAX && !search->error; i++) {
            if (ELF64_R_TYPE(chunk[i].r_info) != IRELATIVE)
                continue;
            search->seen++;
            take(search, &chunk[i]);
        }
    }
}

int ifunc_find(const struct elf_file *file, const struct object *object, uintptr_t bias,
               const uint64_t *addresses, const struct symbol_name *names, size_t count,
               struct buffer *found)
{
    struct search search = {
        .file = file,
        .object = object,
        .bias = bias,
        .addresses = addresses,
        .names = names,
        .count = count,
        .found = found,
        .budget = RELOCATIONS_MAX,
    };
    int error = elf_each_section(file, read_relocations, &search);
    return error ? error : search.error;
}
