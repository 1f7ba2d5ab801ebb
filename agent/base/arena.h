/* arena.h: memory for tables, from mmap, under the budget LIBAGENT_MEMORY; never malloc.
 *
 * Two users of memory: `arena_reserve` gives address space for tables that live long (counted
 * against the budget as reserved); `struct buffer` (buffer.h) is for bytes that grow.
 *
 * A `struct arena` is a bump allocator over one region: arena_take is one atomic add, so handler
 * and hook may call it; nothing is given back until arena_clear, which its owner calls when no
 * other thread can hold a pointer into it.
 *
 * Owns: the budget. Context: arena_take SIG, HOOK and all others; the rest INIT, TICK, UP.
 * Locks: none. */
#ifndef LIBAGENT_ARENA_H
#define LIBAGENT_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

struct arena {
    uint8_t *base;
    size_t size;
    size_t used; /* may run past size: takers that lost */
};

/* There is no limit until it is set; what is reserved already counts. */
void arena_set_budget(size_t bytes);
size_t arena_budget(void);
/* Zeroed, page aligned memory of `size` bytes, or NULL when the budget or the kernel refuses. */
void *arena_reserve(size_t size) MUST_USE;
void arena_release(void *data, size_t size);
#ifdef LIBAGENT_TEST
/* Bytes that count against the budget. */
size_t arena_reserved(void);
#endif

/* 0, or -ENOMEM. */
int arena_create(struct arena *arena, size_t size) MUST_USE;
void arena_destroy(struct arena *arena);
/* `size` bytes aligned to 8, zeroed, or NULL when full. */
void *arena_take(struct arena *arena, size_t size) MUST_USE;
/* Gives the pages back to the kernel and starts again from an empty arena. */
void arena_clear(struct arena *arena);

#endif
