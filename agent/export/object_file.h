/* object_file.h: the file that an object was loaded from, checked to be that.
 * Owns: nothing. Context: INIT, TICK. Locks: none. */
#ifndef LIBAGENT_OBJECT_FILE_H
#define LIBAGENT_OBJECT_FILE_H

#include "agent/base/compiler.h"
#include "agent/export/elf_file.h"

/* Opens it; the vdso in memory. 0; -ESTALE when it is not the object's any more, -ENOENT,
 * -ENOEXEC, ... */
int object_file_open(struct elf_file *file, const struct object *object) MUST_USE;

#endif
