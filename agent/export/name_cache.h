/* name_cache.h: the names that were found, kept for later windows: a program's windows are much
 * alike, so that most addresses are in functions which were named before, and no file is read for
 * them. Objects are never freed (modules.h), so that their address is the key.
 *
 * An answer is kept for the addresses that it holds for (symbols.h), demangled. That there is no
 * name is kept for the one address, and forgotten after NAME_CACHE_RETRY profiles: a debug file may
 * have been installed meanwhile. Where it has grown beyond its bounds, all is forgotten at the
 * beginning of the next profile.
 *
 * Owns: the cache, one for the process. Context: INIT, TICK, under LOCK_FLUSH. Locks: none.
 * Memory: half of LIBAGENT_SYMBOL_LIMIT, at most NAME_CACHE_MAX, and what one profile adds. */
#ifndef LIBAGENT_NAME_CACHE_H
#define LIBAGENT_NAME_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/demangle.h"
#include "agent/export/symbol_table.h"
#include "agent/unwind/modules.h"

enum {
    NAME_CACHE_MAX = 8 << 20, /* bytes; 40,000 functions with names of 170 bytes, both together */
    NAME_CACHE_RETRY = 32,    /* profiles; with the defaults a quarter of an hour */
};

/* Texts end with 0; they stay until the next name_cache_begin. */
struct known_name {
    const char *system, *readable; /* NULL: there is no name; `readable` NULL: as `system` */
    uint32_t system_length, readable_length;
};

/* Before the names of a profile; `most`: bytes that it may have grown to. */
void name_cache_begin(size_t most);
/* Whether it is known what the address is called. */
bool name_cache_get(const struct object *object, uint64_t address, struct known_name *name);
/* Keeps what symbols_find gave for addresses of the object. 0 or -ENOMEM. */
int name_cache_add(const struct object *object, const struct symbol_name *names, size_t count,
                   const struct buffer *texts, const struct demangler *demangler) MUST_USE;
void name_cache_clear(void);
/* In a fork child of a parent that was at it: it may be half written, and is left where it is. */
void name_cache_abandon(void);
/* Bytes in use. */
size_t name_cache_size(void);

#endif
