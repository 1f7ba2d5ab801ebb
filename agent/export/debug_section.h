/* debug_section.h: a section of debugging information, and a cursor that reads numbers out of it
 * with every byte checked. What is not packed is read from the file through a small window; what
 * is packed (SHF_COMPRESSED by zlib or zstd, or .zdebug_*) is unpacked whole, as far as there is
 * room.
 *
 * A cursor that was led outside has failed, stays failed, and gives 0 for whatever is asked: loops
 * look at `failed`. What it reads and searches costs steps of its user's; where they are used up it
 * fails as well, so that no text or number, however long, takes time that nobody counts.
 *
 * Owns: nothing; one thread uses a section and its cursors at a time. Context: INIT, TICK.
 * Locks: none. Memory: one mapping a section that was packed; the windows are the user's. */
#ifndef LIBAGENT_DEBUG_SECTION_H
#define LIBAGENT_DEBUG_SECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

struct debug_section {
    const struct elf_file *file;
    uint64_t offset;       /* in the file */
    uint64_t size;         /* unpacked */
    const uint8_t *memory; /* NULL: it is read from the file */
    size_t mapped;         /* bytes of `memory` that are ours */
};

/* Bytes of memory that opening it takes; 0 where it is not packed, or not there. */
uint64_t debug_section_need(const struct elf_file *file, const char *name);
/* Opens the section of that name. `room` is what unpacking may take, and is lessened by that.
 * 0, -ENOENT, -ENOEXEC, -E2BIG where there is no room, -ENOMEM, or what reading gave. */
int debug_section_open(struct debug_section *section, const struct elf_file *file, const char *name,
                       size_t *room) MUST_USE;
void debug_section_close(struct debug_section *section);

struct cursor {
    const struct debug_section *section;
    const uint8_t *at, *end; /* what is in memory from here on */
    uint64_t end_offset;     /* of `end` in the section */
    uint8_t *window;         /* of window_size bytes, at least CURSOR_WINDOW_MIN */
    size_t window_size;
    uint64_t *steps; /* that are left */
    bool failed;
};

/* Numbers have up to 8 bytes; a window of less than that would give none. */
enum { CURSOR_WINDOW_MIN = 64 };

void cursor_begin(struct cursor *cursor, const struct debug_section *section, void *window,
                  size_t window_size, uint64_t *steps);
void cursor_seek(struct cursor *cursor, uint64_t offset);
static inline uint64_t cursor_offset(const struct cursor *cursor)
{
    return cursor->end_offset - (uint64_t)(cursor->end - cursor->at);
}
void cursor_skip(struct cursor *cursor, uint64_t size);
uint8_t cursor_u8(struct cursor *cursor);
uint16_t cursor_u16(struct cursor *cursor);
uint32_t cursor_u32(struct cursor *cursor);
uint64_t cursor_u64(struct cursor *cursor);
/* Of 1 to 8 bytes. */
uint64_t cursor_number(struct cursor *cursor, unsigned size);
/* Of CURSOR_LEB_MAX bytes at most: 10 hold 64 bits, and some assemblers fill up with zeros. */
enum { CURSOR_LEB_MAX = 20 };
uint64_t cursor_uleb(struct cursor *cursor);
int64_t cursor_sleb(struct cursor *cursor);
void cursor_skip_text(struct cursor *cursor);
/* The text up to its 0, as far as it fits (with a 0 behind it); returns the length. */
size_t cursor_text(struct cursor *cursor, char *text, size_t size);

#endif
