/* dynamic_symbols.h: looks up what a loaded ELF object defines, by name.
 *
 * Reads the object in memory, by whichever hash table it has; calls nothing.
 * Owns: nothing. Context: any (async-signal-safe), while the object stays loaded. Locks: none. */
#ifndef LIBAGENT_DYNAMIC_SYMBOLS_H
#define LIBAGENT_DYNAMIC_SYMBOLS_H

#include <elf.h>
#include <link.h>
#include <stdint.h>

struct dynamic_symbols {
    uintptr_t bias;
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const uint16_t *versions;
};

/* `dynamic` is the object's dynamic section; NULL: it has no symbols. */
void dynamic_symbols_read(uintptr_t bias, const ElfW(Dyn) * dynamic,
                          struct dynamic_symbols *symbols);
/* The function `name`; of several versions the default one. NULL: not defined there. */
void *dynamic_symbols_find(const struct dynamic_symbols *symbols, const char *name);

#endif
