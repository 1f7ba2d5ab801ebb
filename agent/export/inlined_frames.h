/* inlined_frames.h: which function's source an address is from, and into which others that was
 * inlined, by the entries of a unit (subprograms, inlined subroutines).
 *
 * An address belongs to the entry that covers it and stands last in the file: the innermost, and of
 * two that lie over one another the later one. From there the entries around it lead outwards up to
 * the first subprogram: the code's own function.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: a buffer, given back by its user. */
#ifndef LIBAGENT_INLINED_FRAMES_H
#define LIBAGENT_INLINED_FRAMES_H

#include "agent/export/dwarf_file.h"
#include "agent/unwind/modules.h"

/* An entry that covers an address. */
struct inlined_frame {
    uint64_t entry; /* offset in .debug_info */
    uint32_t outer; /* the frame around it, its number + 1; 0: it is a subprogram */
    uint32_t line;  /* where it was called: a file of the unit, and a line */
    uint64_t file;
};

/* Appends struct inlined_frame to `frames`, and writes of each of `count` addresses (ascending) the
 * number + 1 of its innermost one, or 0. 0 or a negative errno, with what was found before. */
int inlined_frames_find(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                        const struct object *object, const uint64_t *addresses, size_t count,
                        uint32_t *innermost, struct buffer *frames) MUST_USE;

struct source_function {
    struct dwarf_file
        *dwarf; /* that its line and file stand in, and the offset of the unit there */
    uint64_t unit;
    struct dwarf_file *name_dwarf;
    struct dwarf_unit name_unit;
    struct dwarf_value name; /* as linkers have it where that is known */
    bool is_linkage;
    uint64_t file, line; /* where it is declared; line 0: not known */
};

/* What the entry says of its function, or those that it refers to. 0 or a negative errno. */
int source_function_read(struct dwarf_file *dwarf, uint64_t entry,
                         struct source_function *function) MUST_USE;

#endif
