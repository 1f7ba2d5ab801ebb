/* dwarf_builder.h: ELF files with debugging information made by hand, and what is found in them.
 *
 * The function `f` begins at line 10 of /src/a.c, at DWARF_CODE; at DWARF_CALL it has the function
 * `g` inlined, called at line 12, which begins at line 3; what is from there on is at line 4.
 *
 * Owns: the files and texts that it gives, until its next call. */
#ifndef LIBAGENT_TEST_DWARF_BUILDER_H
#define LIBAGENT_TEST_DWARF_BUILDER_H

#include <stddef.h>
#include <stdint.h>

#include "agent/export/lines.h"

enum {
    DWARF_PART_MAX = 64 << 10,
    DWARF_CODE = 0x1000,
    DWARF_CODE_SIZE = 0x40,
    DWARF_CALL = DWARF_CODE + 0x10,
    DWARF_ROOM = 1 << 20,
};
#define DWARF_IN_CALL "g /src/a.c:4+3, f /src/a.c:12+10"

/* Sections of the file. Empty are: .debug_str, .gnu_debugaltlink, notes. */
enum dwarf_part { INFO = 1, ABBREV, LINE, NAMES, TEXTS, LINK, NOTE, DWARF_PARTS };

struct bytes {
    uint8_t data[DWARF_PART_MAX];
    size_t size;
};

struct made {
    struct bytes sections[DWARF_PARTS];
    uint64_t flags[DWARF_PARTS];
    uint32_t names[DWARF_PARTS]; /* in .shstrtab */
    size_t folder;               /* in .debug_info: of the unit, "/src" and a 0 */
    size_t inlined_name;         /* of the function that was inlined: "g" */
    size_t origin;               /* which function was inlined (4 bytes) */
    size_t inlined_entry;        /* the entry that says so */
    size_t low;                  /* the address of the function */
    size_t sequence;             /* in .debug_line: the address of the sequence */
};

void put(struct bytes *to, uint64_t value, size_t size);
void put_text(struct bytes *to, const char *text);
void put_bytes(struct bytes *to, const uint8_t *from, size_t size);
/* Puts other bytes in the place of `size` bytes. */
void replace(struct bytes *in, size_t at, size_t size, const void *with, size_t with_size);
/* Of what begins with its length in 4 bytes. */
void set_length(struct bytes *to);
/* DWARF 4, in one unit. */
void dwarf_make(struct made *made);
/* Gives the section another name. */
void dwarf_rename(struct made *made, enum dwarf_part part, const char *name);
/* In .debug_abbrev the forms of the unit's folder, and of the call's reference to g. */
enum { DWARF_FOLDER_FORM = 6, DWARF_ORIGIN_FORM = 32 };

/* The file of these sections, in the folder of temporary files, and the object of it. */
struct object dwarf_write(const struct made *made);
/* The same at any path. */
void dwarf_write_at(const struct made *made, const char *path);
/* What is found of one address, as "name /path:line+start" of each frame, "later" where that was
 * put off. */
const char *dwarf_found(const struct object *object, uint64_t address, struct line_budget *budget,
                        int *error);
/* The same of these sections, with all that a budget may have. */
const char *dwarf_found_in(const struct made *made, uint64_t address);

#endif
