/* object_registry.h: every object that was ever loaded, once.
 *
 * An object is found again by path, program headers and build id (without build id: by its
 * unwind tables); it is never freed, so readers may keep pointers to it. Bounded: when the
 * memory for objects is used up, further ones stay unknown.
 * Owns: objects. Context: INIT, THR, TICK. Locks: the caller holds LOCK_MODULES. */
#ifndef LIBAGENT_OBJECT_REGISTRY_H
#define LIBAGENT_OBJECT_REGISTRY_H

#include "agent/unwind/elf_object.h"

enum object_role { OBJECT_PLAIN, OBJECT_MAIN, OBJECT_VDSO };

/* 0 or -ENOMEM. */
int registry_start(void) MUST_USE;
/* `pinned`: dlclose cannot unload it, so its tables are read in place. NULL: no memory. */
struct object *registry_object(const struct elf_image *image, const char *path,
                               enum object_role role, bool pinned) MUST_USE;
#ifdef LIBAGENT_TEST
uint32_t registry_count(void);
void registry_forget(void);
#endif

#endif
