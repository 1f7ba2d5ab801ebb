/* tracee_modules.h: the objects of a traced process, from its maps and the files that these name.
 *
 * Each file is mapped here as a loader would (but never relocated or written), and described by
 * the agent's own elf_object: the objects that the walk gets are made by the code that ships. */
#ifndef LIBAGENT_TEST_TRACEE_MODULES_H
#define LIBAGENT_TEST_TRACEE_MODULES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "agent/unwind/modules.h"

/* Reads the maps; where they have changed publishes a new modules_list. True when they had. */
bool tracee_modules_read(pid_t pid);

/* Bytes of a read-only part of a file at that run-time address: at most `size`. NULL: none. */
const uint8_t *tracee_file_bytes(uintptr_t address, size_t *size);

/* Where `pc` lies: the object's base name ("?" where unknown) and the function, of which
 * `name` may be empty: then only its start is known, 0 where not even that. */
struct place {
    const char *object;
    const char *name;
    uint64_t vaddr, start;
    bool has_rule; /* an FDE covers it */
};
/* Whether an FDE covers it. */
bool tracee_has_rule(uintptr_t pc);
struct place tracee_place(uintptr_t pc);
/* "libc.so.6+0x12345 read+0x12" */
void tracee_print_place(FILE *out, uintptr_t pc);

#endif
