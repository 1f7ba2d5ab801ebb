#include "agent/export/debug_section.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "agent/export/unpack_section.h"

/* In steps (lines.h) of 25 ns: a read, what it brings, and what is searched for the end of a text.
 */
enum { STEPS_A_READ = 8, BYTES_A_STEP = 256, SEARCHED_AT_ONCE = 64 << 10 };

/* A section's bytes in the file; `kind` 0: they are not packed, else `size` is what they unpack to.
 */
struct packing {
    struct elf_extent bytes;
    uint32_t kind;
    uint64_t size;
};

static struct elf_extent behind(struct elf_extent extent, uint64_t head)
{
    return (struct elf_extent){.offset = extent.offset + head, .size = extent.size - head};
}

/* As binutils packed sections before ELF had a way: .debug_info is .zdebug_info, "ZLIB" and the
 * size, its highest byte first, and then a stream of zlib's. */
static int read_old_head(const struct elf_file *file, struct packing *found)
{
    struct {
        char magic[4];
        uint8_t size[8];
    } head;
    if (found->bytes.size < sizeof(head))
        return -ENOEXEC;
    int error = elf_read(file, found->bytes.offset, &head, sizeof(head));
    if (error || memcmp(head.magic, "ZLIB", sizeof(head.magic)) != 0)
        return error ? error : -ENOEXEC;
    found->bytes = behind(found->bytes, sizeof(head));
    found->kind = ELFCOMPRESS_ZLIB;
    for (size_t i = 0; i < sizeof(head.size); i++)
        found->size = found->size << 8 | head.size[i];
    return 0;
}

static int read_head(const struct elf_file *file, struct packing *found)
{
    Elf64_Chdr head;
    if (found->bytes.size < sizeof(head))
        return -ENOEXEC;
    int error = elf_read(file, found->bytes.offset, &head, sizeof(head));
    if (error || head.ch_type == 0)
        return error ? error : -ENOEXEC;
    found->bytes = behind(found->bytes, sizeof(head));
    found->kind = head.ch_type;
    found->size = head.ch_size;
    return 0;
}

static int find(const struct elf_file *file, const char *name, struct packing *found)
{
    Elf64_Shdr section;
    char old_name[32];
    format(old_name, sizeof(old_name), ".z%s", name + 1);
    int error = elf_find_section_of(file, name, old_name, &section);
    if (error)
        return error;
    *found = (struct packing){.bytes = {.offset = section.sh_offset, .size = section.sh_size}};
    if (section.sh_flags & SHF_COMPRESSED)
        return read_head(file, found);
    return elf_section_begins(file, &section, ".z") ? read_old_head(file, found) : 0;
}

/* The size that a packed section says is believed as far as there is room for it. */
static int unpack(struct debug_section *section, const struct packing *packed, size_t *room)
{
    if (packed->size == 0)
        return -ENOEXEC;
    if (packed->size > *room || packed->bytes.size > *room - packed->size)
        return -E2BIG;
    size_t size = (size_t)packed->size;
    uint8_t *memory = sys_map(size);
    if (!memory)
        return -ENOMEM;
    int error = unpack_section(section->file, packed->bytes, packed->kind, memory, size);
    if (error) {
        sys_unmap(memory, size);
        return error;
    }
    section->memory = memory;
    section->size = section->mapped = size;
    *room -= size;
    return 0;
}

uint64_t debug_section_need(const struct elf_file *file, const char *name)
{
    struct packing found;
    return find(file, name, &found) ? 0 : found.size;
}

int debug_section_open(struct debug_section *section, const struct elf_file *file, const char *name,
                       size_t *room)
{
    struct packing found;
    *section = (struct debug_section){.file = file};
    int error = find(file, name, &found);
    if (error)
        return error;
    if (found.kind)
        return unpack(section, &found, room);
    section->offset = found.bytes.offset;
    section->size = found.bytes.size;
    if (file->memory)
        section->memory = file->memory + found.bytes.offset;
    return 0;
}

void debug_section_close(struct debug_section *section)
{
    if (section->mapped)
        sys_unmap((void *)(uintptr_t)section->memory, section->mapped);
    *section = (struct debug_section){.file = NULL};
}

void cursor_begin(struct cursor *cursor, const struct debug_section *section, void *window,
                  size_t window_size, uint64_t *steps)
{
    *cursor = (struct cursor){
        .section = section, .window = window, .window_size = window_size, .steps = steps};
    cursor->at = cursor->end = cursor->window;
    cursor_seek(cursor, 0);
}

static void fail(struct cursor *cursor)
{
    cursor->failed = true;
    cursor->at = cursor->end;
}

/* False, and it has failed, where there are no more steps. */
static bool pay(struct cursor *cursor, uint64_t steps)
{
    bool is_paid = *cursor->steps >= steps;
    *cursor->steps -= is_paid ? steps : *cursor->steps;
    if (!is_paid)
        fail(cursor);
    return is_paid;
}

void cursor_seek(struct cursor *cursor, uint64_t offset)
{
    const struct debug_section *section = cursor->section;
    if (cursor->failed)
        return;
    if (offset > section->size) {
        fail(cursor);
    } else if (section->memory) {
        cursor->at = section->memory + offset;
        cursor->end = section->memory + section->size;
        cursor->end_offset = section->size;
    } else if (offset <= cursor->end_offset &&
               cursor->end_offset - offset <= (uint64_t)(cursor->end - cursor->window)) {
        cursor->at = cursor->end - (cursor->end_offset - offset);
    } else {
        cursor->at = cursor->end = cursor->window; /* read when it is needed */
        cursor->end_offset = offset;
    }
}

/* Has `size` bytes in one piece, or fails. */
static COLD bool refill(struct cursor *cursor, size_t size)
{
    const struct debug_section *section = cursor->section;
    uint64_t offset = cursor_offset(cursor);
    size_t more = 0;
    if (!cursor->failed && !section->memory && offset < section->size)
        more = (size_t)MIN_OF(section->size - offset, (uint64_t)cursor->window_size);
    if (more < size || !pay(cursor, STEPS_A_READ + more / BYTES_A_STEP) ||
        elf_read(section->file, section->offset + offset, cursor->window, more)) {
        fail(cursor);
        return false;
    }
    cursor->at = cursor->window;
    cursor->end = cursor->window + more;
    cursor->end_offset = offset + more;
    return true;
}

static inline bool has(struct cursor *cursor, size_t size)
{
    return likely((size_t)(cursor->end - cursor->at) >= size) || refill(cursor, size);
}

void cursor_skip(struct cursor *cursor, uint64_t size)
{
    if (size <= (uint64_t)(cursor->end - cursor->at)) {
        cursor->at += size;
        return;
    }
    uint64_t offset = cursor_offset(cursor);
    if (size > UINT64_MAX - offset)
        fail(cursor);
    else
        cursor_seek(cursor, offset + size);
}

uint64_t cursor_number(struct cursor *cursor, unsigned size)
{
    uint64_t value = 0;
    if (!has(cursor, size))
        return 0;
    memcpy(&value, cursor->at, size); /* little endian, as elf_file.h takes nothing else */
    cursor->at += size;
    return value;
}

uint8_t cursor_u8(struct cursor *cursor)
{
    return has(cursor, 1) ? *cursor->at++ : 0;
}

uint16_t cursor_u16(struct cursor *cursor)
{
    return (uint16_t)cursor_number(cursor, 2);
}

uint32_t cursor_u32(struct cursor *cursor)
{
    return (uint32_t)cursor_number(cursor, 4);
}

uint64_t cursor_u64(struct cursor *cursor)
{
    return cursor_number(cursor, 8);
}

uint64_t cursor_uleb(struct cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * CURSOR_LEB_MAX; shift += 7) {
        uint8_t byte = cursor_u8(cursor);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    fail(cursor);
    return 0;
}

int64_t cursor_sleb(struct cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * CURSOR_LEB_MAX; shift += 7) {
        uint8_t byte = cursor_u8(cursor);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        if (byte & 0x40 && shift + 7 < 64)
            value |= UINT64_MAX << (shift + 7);
        return (int64_t)value;
    }
    fail(cursor);
    return 0;
}

void cursor_skip_text(struct cursor *cursor)
{
    for (;;) {
        if (!has(cursor, 1))
            return;
        size_t size = MIN_OF((size_t)(cursor->end - cursor->at), (size_t)SEARCHED_AT_ONCE);
        const uint8_t *end = memchr(cursor->at, 0, size);
        size = end ? (size_t)(end + 1 - cursor->at) : size;
        cursor->at += size;
        if (!pay(cursor, size / BYTES_A_STEP) || end)
            return;
    }
}

size_t cursor_text(struct cursor *cursor, char *text, size_t size)
{
    size_t length = 0;
    for (uint8_t byte; (byte = cursor_u8(cursor)) && length + 1 < size;)
        text[length++] = (char)byte;
    text[length] = 0;
    return length;
}
