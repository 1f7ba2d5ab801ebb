/* dwarf_file.h: the debugging information (DWARF 2 to 5) of one ELF file: its sections, its units,
 * and where texts are.
 *
 * Read by elf_file.h's reader, not by libdw: that takes its memory from the app's malloc (where the
 * app would find it in its heap), and the loader's lock to be opened.
 *
 * All that is read costs steps, of which the user gives some; where none is left, cursors fail. So
 * no file, whatever is in it, takes longer.
 *
 * What dwz moved to a file that several have in common (debug_file.h) is read from there, once
 * something refers to it. What lies in files of single units (.dwo) is not read: of such a unit
 * there are the lines alone.
 *
 * Owns: nothing; one thread uses a file at a time. Context: INIT, TICK. Locks: none. Memory: one
 * mapping of 0.1 MiB, tables of abbreviations (under 0.2 MiB; 6 MiB of a file made to hurt), the
 * same once more for a common file, and what sections take that are packed, at most `room`. */
#ifndef LIBAGENT_DWARF_FILE_H
#define LIBAGENT_DWARF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/debug_section.h"

enum dwarf_section {
    DWARF_INFO,
    DWARF_ABBREV,
    DWARF_LINE,
    DWARF_STR,
    DWARF_LINE_STR,
    DWARF_RANGES,
    DWARF_RNGLISTS,
    DWARF_ADDR,
    DWARF_STR_OFFSETS,
    DWARF_SECTIONS
};

enum dwarf_value_kind {
    VALUE_NONE,
    VALUE_NUMBER, /* or an offset in a section */
    VALUE_ADDRESS,
    VALUE_ADDRESS_INDEX,
    VALUE_LIST_INDEX,
    VALUE_REFERENCE, /* offset in .debug_info */
    VALUE_TEXT,      /* `number` is an offset in `section` */
    VALUE_TEXT_INDEX,
    VALUE_COMMON_REFERENCE, /* the same two in the common file */
    VALUE_COMMON_TEXT,
    VALUE_OTHER, /* is skipped, or is in a file that is not read */
};

struct dwarf_value {
    uint8_t kind;    /* enum dwarf_value_kind */
    uint8_t section; /* enum dwarf_section */
    uint64_t number;
};

/* Where the code of a unit, a function or an inlined call is. */
struct dwarf_scope {
    struct dwarf_value low, high, ranges;
};

struct dwarf_unit {
    uint64_t offset, end; /* in .debug_info */
    uint64_t first;       /* its first entry */
    uint64_t abbrev_offset;
    uint16_t version;
    uint8_t offset_size; /* 4 or 8 */
    bool has_code;       /* not one of types */
    /* Of its first entry, once it was read (dwarf_entry.h): */
    struct dwarf_scope scope;
    struct dwarf_value line, folder;
    uint64_t low; /* what ranges are relative to */
    uint64_t addresses_base, texts_base, lists_base;
};

struct abbreviation_table {
    uint64_t offset;
    uint16_t version;
    uint8_t offset_size; /* 0: the table is free */
    struct buffer entries, attributes;
};

enum { DWARF_TABLES = 3, DWARF_UNITS_MAX = 1 << 18 };

struct dwarf_file {
    const struct elf_file *file;
    struct debug_section sections[DWARF_SECTIONS];
    int states[DWARF_SECTIONS]; /* 0: it is open */
    uint64_t unpacked;          /* bytes */
    size_t room;                /* that is left */
    uint64_t *steps;            /* that are left */
    struct buffer units;        /* uint64_t: offsets, ascending */
    struct abbreviation_table tables[DWARF_TABLES];
    struct abbreviation_table first_table; /* of a unit's first entry alone */
    unsigned next_table;
    struct dwarf_file *common; /* once it is asked for, and there */
    struct elf_file common_file;
    bool is_common, was_common_looked_for;
    /* Windows: of what is walked through, and of what is looked up here and there. */
    uint8_t walk_window[32 << 10], line_window[32 << 10];
    uint8_t info_window[4096], abbrev_window[4096], ranges_window[4096], small_window[512];
};

/* 0; -ENOENT when the file has none, -E2BIG when it does not fit into `room`, -ENOMEM, or why it
 * cannot be read. The ELF file and the steps stay the caller's. */
int dwarf_open(struct dwarf_file **dwarf, const struct elf_file *file, size_t room,
               uint64_t *steps) MUST_USE;
void dwarf_close(struct dwarf_file *dwarf);
/* Puts a cursor on the section. 0 or why not. */
int dwarf_cursor(struct dwarf_file *dwarf, enum dwarf_section section, void *window,
                 size_t window_size, uint64_t offset, struct cursor *cursor) MUST_USE;
/* Takes steps; false when they are used up. */
static inline bool dwarf_take_steps(struct dwarf_file *dwarf, uint64_t steps)
{
    bool is_taken = *dwarf->steps >= steps;
    *dwarf->steps -= is_taken ? steps : *dwarf->steps;
    return is_taken;
}
/* Reads the header of the unit there. 0, -ENOENT behind the last one, or -ENOEXEC. */
int dwarf_read_unit(struct dwarf_file *dwarf, uint64_t offset, struct dwarf_unit *unit) MUST_USE;
/* The header of the unit that holds the offset; units must have been gathered. */
int dwarf_unit_of(struct dwarf_file *dwarf, uint64_t offset, struct dwarf_unit *unit) MUST_USE;
/* The file that this one has something in common with, its units gathered; NULL where there is none
 * that can be read within steps and room. */
struct dwarf_file *dwarf_common(struct dwarf_file *dwarf);
/* The value as a text in `text` of `size` bytes; its length, 0 where there is none. */
size_t dwarf_text(struct dwarf_file *dwarf, const struct dwarf_unit *unit, struct dwarf_value value,
                  char *text, size_t size);
/* The value as an address. */
bool dwarf_address(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                   struct dwarf_value value, uint64_t *address);
/* Calls `each` for all ranges of the scope until it gives false. */
void dwarf_ranges(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                  const struct dwarf_scope *scope,
                  bool (*each)(uint64_t low, uint64_t high, void *data), void *data);

#endif
