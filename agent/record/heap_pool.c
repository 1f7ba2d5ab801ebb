#include "agent/record/heap_pool.h"

#include <errno.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/record/model_step.h"

int heap_pool_create(struct heap_pool *pool, uint32_t size)
{
    memset(pool, 0, sizeof(*pool));
    pool->records = arena_reserve(heap_pool_bytes(size));
    pool->size = size;
    return pool->records ? 0 : -ENOMEM;
}

void heap_pool_destroy(struct heap_pool *pool)
{
    arena_release(pool->records, heap_pool_bytes(pool->size));
    memset(pool, 0, sizeof(*pool));
}

/* ---- free ones ---- */

/* The count of changes keeps a head that came back from being taken for the same one. */
static uint64_t head_of(uint64_t before, uint32_t ref)
{
    return ((before >> 32) + 1) << 32 | ref;
}

static uint32_t take_from(struct heap_pool *pool, uint32_t list)
{
    uint64_t *head = &pool->lists[list].head;
    uint64_t seen = load_acquire(head);
    while ((uint32_t)seen) {
        uint32_t next = load_relaxed(&heap_pool_at(pool, (uint32_t)seen)->next);
        step(head);
        if (__atomic_compare_exchange_n(head, &seen, head_of(seen, next), false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return (uint32_t)seen;
    }
    return 0;
}

static uint32_t take_new(struct heap_pool *pool)
{
    step(&pool->bump);
    uint32_t used = load_relaxed(&pool->bump);
    do {
        if (used == pool->size)
            return 0;
    } while (!__atomic_compare_exchange_n(&pool->bump, &used, used + 1, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return used + 1;
}

uint32_t heap_pool_take(struct heap_pool *pool, uint32_t list)
{
    uint32_t ref = take_from(pool, list);
    /* A record that was used before is memory that is there already. */
    for (uint32_t i = 1; !ref && i < HEAP_FREE_LISTS; i++)
        ref = take_from(pool, (list + i) % HEAP_FREE_LISTS);
    return ref ? ref : take_new(pool);
}

void heap_pool_give(struct heap_pool *pool, uint32_t ref, uint32_t list)
{
    uint64_t *head = &pool->lists[list].head;
    uint64_t seen = load_relaxed(head);
    do {
        store_relaxed(&heap_pool_at(pool, ref)->next, (uint32_t)seen);
        step(head);
    } while (!__atomic_compare_exchange_n(head, &seen, head_of(seen, ref), false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
}

/* ---- conditions ---- */

static uint64_t in_condition(uint64_t state, enum heap_condition condition)
{
    return (state >> HEAP_CONDITION_BITS) << HEAP_CONDITION_BITS | condition;
}

void heap_record_publish(struct heap_record *record)
{
    uint64_t number = (load_relaxed(&record->state) >> HEAP_CONDITION_BITS) + 1;
    step(record);
    store_release(&record->state, number << HEAP_CONDITION_BITS | HEAP_LIVE);
}

/* Moves from one of two conditions to what follows it; returns where it was. */
static enum heap_condition move(struct heap_record *record, enum heap_condition first,
                                enum heap_condition after_first, enum heap_condition after_other)
{
    step(record);
    uint64_t seen = load_relaxed(&record->state);
    uint64_t wanted;
    do {
        wanted = in_condition(seen, heap_condition_of(seen) == first ? after_first : after_other);
        step(record);
    } while (!__atomic_compare_exchange_n(&record->state, &seen, wanted, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return heap_condition_of(seen);
}

bool heap_record_end(struct heap_record *record)
{
    return move(record, HEAP_LIVE, HEAP_FREE, HEAP_GOING) == HEAP_LIVE;
}

bool heap_record_pin(struct heap_record *record)
{
    step(record);
    uint64_t seen = load_relaxed(&record->state);
    if (heap_condition_of(seen) != HEAP_LIVE)
        return false;
    step(record);
    return __atomic_compare_exchange_n(&record->state, &seen, in_condition(seen, HEAP_PINNED),
                                       false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool heap_record_unpin(struct heap_record *record)
{
    return move(record, HEAP_PINNED, HEAP_LIVE, HEAP_FREE) == HEAP_PINNED;
}
