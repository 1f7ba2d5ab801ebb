/* heap_slots.h: from an address to its record: an open-addressed table that grows and is never
 * rebuilt.
 *
 * Protocol:
 *  1. A slot is a 64-bit word: a tag of the address above, its record's reference below; 0: empty.
 *     Slots stand in buckets of a line of the cache; an address may be in one of two buckets of
 *     each level. Levels grow by four; a new one is opened when an address finds its buckets in all
 *     open ones full. So a search is bounded (2 x 8 words a level, 12 levels), and nothing ever
 *     moves: what is in a slot stays there until it is taken out.
 *  2. An insert puts its word into an empty slot by compare-and-swap. A slot is taken out by
 *     compare-and-swap to empty; no mark is left, since a search looks at whole buckets.
 *  3. For one address the program itself orders what happens: it cannot free a block before the
 *     allocation gave it, nor can the allocator give the address again before the free. So a
 *     search for an address that the caller is about to free finds its slot, whatever others do to
 *     other addresses at the same time: the word was there before and nobody else takes it out.
 *     Two that take the same address out (a program that frees twice) do so by the
 *     compare-and-swap: one wins.
 *  4. A held slot (realloc) keeps its place with tag 0, under which no search finds it; to put it
 *     back is one store and cannot fail.
 *
 * Owns: nothing; the table is its user's. Context: HOOK and all others; create, destroy INIT.
 * Locks: none. */
#ifndef LIBAGENT_HEAP_SLOTS_H
#define LIBAGENT_HEAP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/record/heap_pool.h"

enum { HEAP_BUCKET = 8, HEAP_LEVELS_MAX = 12, HEAP_FIRST_BUCKETS = 512, HEAP_LEVEL_GROWTH = 4 };

struct heap_slots {
    uint64_t *memory;
    uint32_t levels, open;             /* that there is room for, and that are in use */
    uint32_t first[HEAP_LEVELS_MAX];   /* bucket */
    uint32_t buckets[HEAP_LEVELS_MAX]; /* powers of two */
    uint32_t count;                    /* of slots, all levels */
};

/* The most slots whose memory is no more than `bytes`. 0 or -ENOMEM. */
int heap_slots_create(struct heap_slots *slots, size_t bytes) MUST_USE;
void heap_slots_destroy(struct heap_slots *slots);

/* NULL: it is not there. *word: what the slot holds. */
uint64_t *heap_slots_find(struct heap_slots *slots, const struct heap_pool *pool, uintptr_t address,
                          uint64_t *word);
/* False: its buckets are full. */
bool heap_slots_insert(struct heap_slots *slots, uintptr_t address, uint32_t ref) MUST_USE;
/* True: it was the caller who took it out, or holds it. */
bool heap_slot_take(uint64_t *slot, uint64_t word) MUST_USE;
bool heap_slot_hold(uint64_t *slot, uint64_t word) MUST_USE;
/* What the caller holds goes back, or is taken out. */
void heap_slot_put_back(uint64_t *slot, uint64_t word);
void heap_slot_drop(uint64_t *slot);
static inline uint32_t heap_slot_ref(uint64_t word)
{
    return (uint32_t)word;
}
/* Not empty, and nobody holds it. */
static inline bool heap_slot_is_found(uint64_t word)
{
    return word >> 32 != 0;
}

#endif
