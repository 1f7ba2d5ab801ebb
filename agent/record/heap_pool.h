/* heap_pool.h: the records of the live heap, and who may do what with one.
 *
 * A record's `state` is its number (how often it was used before, never the same twice) and one of
 * four conditions:
 *
 *     FREE ──heap_record_publish──► LIVE ──heap_record_end──► FREE, given back by who ended it
 *                                   │  ▲
 *                        record_pin │  │ record_unpin
 *                                   ▼  │
 *                                  PINNED ──heap_record_end──► GOING ──record_unpin──► FREE
 *
 *  1. FREE: in a list of free ones, or in the hands of one thread. Fields are written here only.
 *  2. LIVE, PINNED: one slot of the address table refers to it (heap_slots.h), and who takes the
 *     reference out of that slot, nobody else, ends it.
 *  3. PINNED: the snapshot (one thread at most) reads it: its fields and the stack it refers to
 *     stay. Who ends it meanwhile does not wait: it leaves it GOING, and the snapshot ends it.
 *
 * The records' memory never goes back while the agent is on, so a late look at one that was ended
 * reads another record or a free one, and `state` tells.
 *
 * Owns: nothing; the pool is its user's. Context: HOOK and all others; create, destroy INIT. Locks:
 * none. */
#ifndef LIBAGENT_HEAP_POOL_H
#define LIBAGENT_HEAP_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

enum heap_condition { HEAP_FREE, HEAP_LIVE, HEAP_PINNED, HEAP_GOING };
enum { HEAP_CONDITION_BITS = 2 };

struct heap_record {
    uint64_t address;
    uint64_t state;         /* number << HEAP_CONDITION_BITS | enum heap_condition */
    uint64_t size;          /* as the program asked for it */
    uint64_t weight;        /* allocations that it stands for, in 1/2^16 */
    uint32_t stack, thread; /* references of the counted table; 0: none */
    uint32_t born_s;        /* CLOCK_MONOTONIC, seconds */
    uint32_t next;          /* free ones */
};
_Static_assert(sizeof(struct heap_record) == 48, "memory a record: README");

/* Lists of free records, by address, so that threads seldom meet. */
enum { HEAP_FREE_LISTS = 16 };

struct heap_pool {
    struct heap_record *records; /* number 0 is not used */
    uint32_t size;
    uint32_t bump; /* records [1, bump] have been used */
    struct {
        uint64_t head; /* reference, and above it a count of changes */
    } __attribute__((aligned(CACHE_LINE))) lists[HEAP_FREE_LISTS];
};

/* 0 or -ENOMEM. */
int heap_pool_create(struct heap_pool *pool, uint32_t size) MUST_USE;
void heap_pool_destroy(struct heap_pool *pool);
static inline size_t heap_pool_bytes(uint32_t size)
{
    return (size + (size_t)1) * sizeof(struct heap_record);
}
static inline struct heap_record *heap_pool_at(const struct heap_pool *pool, uint32_t ref)
{
    return &pool->records[ref];
}
static inline enum heap_condition heap_condition_of(uint64_t state)
{
    return (enum heap_condition)(state & ((1u << HEAP_CONDITION_BITS) - 1));
}
/* A FREE record, of which `list` has the last ones; 0: all are in use. */
uint32_t heap_pool_take(struct heap_pool *pool, uint32_t list) MUST_USE;
void heap_pool_give(struct heap_pool *pool, uint32_t ref, uint32_t list);
/* FREE to LIVE, with the next number. */
void heap_record_publish(struct heap_record *record);
/* By whom took its reference out of the slot. True: it is FREE, in the caller's hands; false: the
 * snapshot has it and will end it. */
bool heap_record_end(struct heap_record *record) MUST_USE;
/* True: it was LIVE and is PINNED. */
bool heap_record_pin(struct heap_record *record) MUST_USE;
/* True: it is LIVE again; false: it was ended meanwhile, is FREE, and in the caller's hands. */
bool heap_record_unpin(struct heap_record *record) MUST_USE;

#endif
