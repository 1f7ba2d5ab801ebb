/* line_program.h: which line of which file an address is from, by a unit's program in .debug_line
 * (versions 2 to 5).
 *
 * A row of it says so for the addresses from its own up to the next row's. Of several rows at one
 * address the last counts, of several sequences over one address the first; a sequence that begins
 * outside of the object's code is of what the linker threw away.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: two buffers, given back by
 * line_files_free. */
#ifndef LIBAGENT_LINE_PROGRAM_H
#define LIBAGENT_LINE_PROGRAM_H

#include "agent/export/dwarf_file.h"
#include "agent/unwind/modules.h"

enum { LINE_PATH_MAX = 1024 }; /* longer ones are cut */

struct line_row {
    uint32_t file, line; /* file: a number in its unit; line 0: made by the compiler */
    bool is_known;
};

/* The names of files that the rows' numbers stand for; all zero is empty. */
struct line_files {
    struct buffer folders, files;
    uint16_t version;
};

/* Rows of `count` addresses, ascending, which all are the unit's. `rows` come as zeros. 0; -ENOENT
 * where the unit has no lines; -ENOEXEC, -ENOMEM, ... with what was found before. */
int line_program_run(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                     const struct object *object, const uint64_t *addresses, size_t count,
                     struct line_row *rows, struct line_files *files) MUST_USE;
/* Writes the path of that file, as far as it fits; its length, 0 where it is not known. */
size_t line_file_path(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                      const struct line_files *files, uint64_t number, char *path, size_t size);
void line_files_free(struct line_files *files);
/* Whether the address is in an executable segment of the object (one without any has it). */
bool object_has_code(const struct object *object, uint64_t address);

#endif
