/* debug_file.h: the separate file that holds what was stripped from an object, as distributions
 * give it (Debian's -dbgsym, -debuginfo of others).
 *
 * Looked for by build id, as DIRECTORY/.build-id/ab/cdef.debug; then by the name in the file's
 * .gnu_debuglink: beside the file, in .debug beside it, and in DIRECTORY/(folder of the file). The
 * directories are those of LIBAGENT_DEBUG_PATH. Taken is only one that has the object's build id;
 * where one of both has none, one whose CRC-32 is what .gnu_debuglink says.
 *
 * And the file to which dwz moved what the debugging information of several has in common, as
 * Debian's packages have it. The file's .gnu_debugaltlink has its path and build id, or, as DWARF 5
 * writes it, .debug_sup its path and an id that its own .debug_sup has, too; looked for by the id,
 * by the path, and where that leads through a folder .dwz, by what follows in DIRECTORY/.dwz.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: one mapping, freed before it returns. */
#ifndef LIBAGENT_DEBUG_FILE_H
#define LIBAGENT_DEBUG_FILE_H

#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

/* A check reads all of it: 0.15 s. */
enum { DEBUG_LINK_CHECKED_MAX = 64 << 20 };

/* Opens it. `own` is the object's file, open, or NULL where that is not to be had.
 * 0, -ENOENT, or -ENOMEM. */
int debug_file_open(struct elf_file *debug, const struct object *object,
                    const struct elf_file *own) MUST_USE;
/* Opens the one that `file`, which is open, has in common with others. The same. */
int debug_file_open_common(struct elf_file *common, const struct elf_file *file) MUST_USE;

#endif
