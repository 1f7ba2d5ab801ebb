/* needed_names.h: what the objects of the start need, by name: an object that the loader brought in
 * at start is the main program, is preloaded, or is needed by one that it listed before.
 *
 * Names are kept as hashes of their base name.
 * Owns: nothing. Context: INIT. Locks: none. */
#ifndef LIBAGENT_NEEDED_NAMES_H
#define LIBAGENT_NEEDED_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum { NEEDED_MAX = 512 /* a power of two; half of it is used */ };

struct needed_names {
    uint32_t hashes[NEEDED_MAX];
    uint32_t count;
};

/* Adds a name to `data`, a struct needed_names. What does not fit is treated as loaded by dlopen:
 * right too, only dearer. */
void needed_add(const char *name, void *data);
bool needed_has(const struct needed_names *needed, const char *name);

#endif
