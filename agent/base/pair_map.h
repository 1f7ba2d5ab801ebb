/* pair_map.h: a hash table from a pair of 64-bit numbers to a number, for the tables of one
 * export. Open addressing, linear probes, never more than half full.
 * Owns: nothing; the map is its user's, one thread at a time. Context: INIT, TICK. Locks: none.
 * Memory: one mapping of its own. */
#ifndef LIBAGENT_PAIR_MAP_H
#define LIBAGENT_PAIR_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

struct pair_slot {
    uint64_t first, second;
    uint32_t value; /* 0: the slot is free */
};

/* All zero is an empty map. */
struct pair_map {
    struct pair_slot *slots;
    size_t size; /* a power of two, or 0 */
    size_t used;
};

/* The value of the pair; 0 when it is not there. */
uint32_t pair_map_get(const struct pair_map *map, uint64_t first, uint64_t second);
/* Adds a pair that is not there, with a value that is not 0. 0 or -ENOMEM. */
int pair_map_add(struct pair_map *map, uint64_t first, uint64_t second, uint32_t value) MUST_USE;
void pair_map_free(struct pair_map *map);

/* Mixes a word into a hash (the multiplicative hash of Firefox and rustc). */
static inline uint64_t hash_mix(uint64_t hash, uint64_t word)
{
    return (((hash << 5) | (hash >> 59)) ^ word) * 0x9e3779b97f4a7c15ull;
}

#endif
