/* object_registry.h: every object that was ever loaded, once.
 *
 * An object is found again by path, program headers and build id (without build id: by its
 * unwind tables); it is never freed, so readers may keep pointers to it. Bounded: when the memory
 * for objects is used up, further ones stay unknown.
 *
 * Tables of objects that can be closed are copies, up to a share of LIBAGENT_MEMORY in sum. Those
 * of closed objects stay, as they tell which addresses are of one function, until others need the
 * room: then who has been closed for longest gives his up. What has no room all the same is mapped
 * from its file, and unmapped as soon as it is closed, or the file system could not be. Owns:
 * objects. Context: INIT, THR, TICK. Locks: the caller holds LOCK_MODULES. */
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
/* Walkers may have the lists from publication `oldest` to the `current` one, and read no tables of
 * objects that are in none of these. Gives up those that are mapped; true: some must wait. */
bool registry_note_oldest(uint32_t oldest, uint32_t current);
#ifdef LIBAGENT_TEST
uint32_t registry_count(void);
void registry_forget(void);
#endif

#endif
