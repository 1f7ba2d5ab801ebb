/* object_registry.h: every object that was ever loaded, once.
 *
 * An object is found again by path, program headers and build id (without build id: by its
 * unwind tables); it is never freed, so readers may keep pointers to it. Tables that are mapped
 * from a file answer only while the path leads to that file: once another one is there, the first
 * may have been cut short or written over, which hurts nobody who has closed the object. What is
 * loaded from the other file gets a copy, which serves for all that follow. Bounded: when the
 * memory for objects is used up, further ones stay unknown.
 * Owns: objects. Context: INIT, THR, TICK. Locks: the caller holds LOCK_MODULES. */
#ifndef LIBAGENT_OBJECT_REGISTRY_H
#define LIBAGENT_OBJECT_REGISTRY_H

#include "agent/unwind/elf_object.h"

enum object_role { OBJECT_PLAIN, OBJECT_MAIN, OBJECT_VDSO };

/* 0 or -ENOMEM. */
int registry_start(void) MUST_USE;
/* `given`: the path that the loader has; one that is relative is completed by the working folder.
 * `pinned`: dlclose cannot unload it, so its tables are read in place. `listed`: what was at the
 * image's address at the last scan, or NULL. NULL: no memory. */
struct object *registry_object(const struct elf_image *image, const char *given,
                               enum object_role role, bool pinned,
                               const struct object *listed) MUST_USE;
#ifdef LIBAGENT_TEST
uint32_t registry_count(void);
void registry_forget(void);
#endif

#endif
