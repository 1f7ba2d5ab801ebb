/* intern_table.h: a lock-free set of short keys, each with totals.
 *
 * Protocol:
 *  1. A key (words of 64 bits) is hashed and looked for in an index of 64-bit words: the high
 *     half is a tag from the hash, the low half the entry's reference; probes are linear and
 *     bounded (INTERN_PROBES).
 *  2. Not found: the entry is written to the arena (one atomic add takes the room), then
 *     published by a compare-and-swap of the empty index word (release). Who loses the race
 *     compares with the winner: the same key uses the winner's entry, its own room is lost until
 *     the table is cleared; another key goes on probing.
 *  3. Entries never move or go until intern_clear, which needs that nobody else is in the table.
 *
 * Owns: nothing; the table is its user's. Context: intern SIG, HOOK and all others (no lock, no
 * system call, bounded); the rest INIT, TICK. Locks: none. */
#ifndef LIBAGENT_INTERN_TABLE_H
#define LIBAGENT_INTERN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/arena.h"
#include "agent/base/compiler.h"

/* The index is walked by so many parts, those that hold nothing are left out: most tables are
 * nearly empty, and a look at their pages would make the kernel find memory for them. */
enum { INTERN_PROBES = 64, INTERN_PARTS = 512 };

struct intern_entry {
    uint32_t hash;
    uint16_t words;  /* of the key */
    uint16_t values; /* behind the key */
    uint64_t data[];
};

struct intern_table {
    struct arena arena;
    uint64_t *index;
    uint32_t index_mask;
    uint32_t entries;                   /* published */
    uint64_t filled[INTERN_PARTS / 64]; /* a bit a part */
};

/* How keys are hashed and compared, here and in the live heap's tables (counted_table.h): a stack
 * of a window and the same stack of a live record are alike to both. Any context. */
uint64_t intern_hash(const uint64_t *key, uint32_t words);
bool intern_equal(const uint64_t *a, uint32_t a_words, const uint64_t *b, uint32_t b_words);

/* `index_size` a power of two. 0 or -ENOMEM. */
int intern_create(struct intern_table *table, size_t arena_size, uint32_t index_size) MUST_USE;
void intern_destroy(struct intern_table *table);
/* Finds or adds the key. NULL when there is no room. New values are 0. */
struct intern_entry *intern(struct intern_table *table, const uint64_t *key, uint32_t words,
                            uint32_t values);
/* A small number for an entry, stable until intern_clear, never 0. */
uint32_t intern_ref(const struct intern_table *table, const struct intern_entry *entry);
const struct intern_entry *intern_at(const struct intern_table *table, uint32_t ref);
static inline uint64_t *intern_values(struct intern_entry *entry)
{
    return entry->data + entry->words;
}
/* Each entry once: begin with *position 0; NULL after the last one. Those that are added meanwhile
 * may be among them. */
const struct intern_entry *intern_next(const struct intern_table *table, uint32_t *position);
void intern_clear(struct intern_table *table);

#endif
