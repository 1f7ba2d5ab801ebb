/* next_lookup.h: fills the table of next definitions (agent/base/next.h).
 *
 * Method: the loader's own list of objects (r_debug, found through the program's DT_DEBUG), in
 * its order, behind this object; each object's dynamic symbols by their hash table. That is what
 * dlsym(RTLD_NEXT) does, but it works in a hook before any constructor ran, allocates nothing (so
 * no bootstrap memory is needed) and needs no libdl. Of a name with several versions the default
 * one is taken. The first call comes from the first hook or the constructor, when nobody unloads an
 * object: there is one thread. Later ones hold the loader's lock, as a callback of dl_iterate_phdr
 * does.
 *
 * Owns: next_own_free; writes `next`. Context: any. Locks: the loader's, but for the first call. */
#ifndef LIBAGENT_NEXT_LOOKUP_H
#define LIBAGENT_NEXT_LOOKUP_H

#include "agent/base/compiler.h"
#include "agent/base/next.h"

/* Looks up every member that is still NULL. */
COLD void next_lookup(void);

/* free as the program calls it, but behind our hook: another one than `next.free` where an
 * allocator stands before us that lacks free's other names. NULL before the first lookup. */
extern HIDDEN void (*next_own_free)(void *pointer);

/* The next definition of `name`, looked up on first use; NULL where there is none. */
#define NEXT(name)                                                                                 \
    (__extension__({                                                                               \
        if (unlikely(!next.name))                                                                  \
            next_lookup();                                                                         \
        next.name;                                                                                 \
    }))

#endif
