#include "agent/record/counted_table.h"

#include <errno.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/record/intern_table.h"
#include "agent/record/model_step.h"

/* ---- memory ---- */

static uint32_t *indices(const struct counted_table *table)
{
    return (uint32_t *)(void *)(table->memory +
                                (size_t)table->rooms * COUNTED_SHARDS * COUNTED_ROOM);
}

static size_t memory_size(const struct counted_table *table)
{
    return ((size_t)table->rooms * COUNTED_ROOM +
            (table->index_mask + (size_t)1) * sizeof(uint32_t)) *
           COUNTED_SHARDS;
}

int counted_create(struct counted_table *table, size_t bytes)
{
    memset(table, 0, sizeof(*table));
    /* A cell of the index for two rooms, which is the least that a key takes; half of that where
     * the power of two is the next one below. */
    size_t rooms = bytes / COUNTED_SHARDS / (COUNTED_ROOM + sizeof(uint32_t) / 2);
    rooms = MIN_OF(rooms, (size_t)(INT32_MAX / COUNTED_SHARDS));
    uint32_t cells = 1;
    while (cells <= rooms / 4)
        cells *= 2;
    table->rooms = (uint32_t)rooms;
    table->index_mask = cells - 1;
    table->memory = arena_reserve(memory_size(table));
    if (!table->memory)
        return -ENOMEM;
    for (uint32_t i = 0; i < COUNTED_SHARDS; i++)
        table->shards[i].index = indices(table) + (size_t)i * cells;
    return 0;
}

void counted_destroy(struct counted_table *table)
{
    arena_release(table->memory, memory_size(table));
    memset(table, 0, sizeof(*table));
}

struct counted_entry *counted_at(const struct counted_table *table, uint32_t ref)
{
    return (struct counted_entry *)(void *)(table->memory + (size_t)(ref - 1) * COUNTED_ROOM);
}

static struct counted_shard *shard_of(struct counted_table *table, uint32_t ref)
{
    return &table->shards[(ref - 1) / table->rooms];
}

static uint32_t take_free(struct counted_table *table, struct counted_shard *shard, uint32_t from,
                          uint32_t to)
{
    for (uint32_t rooms = from; rooms < to; rooms++) {
        uint32_t ref = shard->free[rooms];
        if (ref) {
            shard->free[rooms] = counted_at(table, ref)->next;
            return ref;
        }
    }
    return 0;
}

/* An entry of at least `rooms`, 0 when there is none. One that is up to a quarter larger is
 * better than new memory; any larger one is better than none. */
static uint32_t take_rooms(struct counted_table *table, struct counted_shard *shard, uint32_t rooms)
{
    uint32_t near = MIN_OF(rooms + rooms / 4 + 1, (uint32_t)COUNTED_CLASSES);
    uint32_t ref = take_free(table, shard, rooms, near);
    if (!ref && rooms <= table->rooms - shard->bump) {
        ref = (uint32_t)(shard - table->shards) * table->rooms + shard->bump + 1;
        shard->bump += rooms;
        counted_at(table, ref)->rooms = (uint16_t)rooms;
    }
    return ref ? ref : take_free(table, shard, near, COUNTED_CLASSES);
}

/* ---- the index of a shard; its lock is held ---- */

static uint32_t home_cell(const struct counted_table *table, uint32_t hash)
{
    return hash & table->index_mask;
}

static void index_remove(struct counted_table *table, struct counted_shard *shard, uint32_t ref)
{
    uint32_t mask = table->index_mask;
    uint32_t hole = home_cell(table, counted_at(table, ref)->hash);
    while (shard->index[hole] != ref) {
        if (!shard->index[hole])
            return; /* the index was begun anew in a fork child */
        hole = (hole + 1) & mask;
    }
    /* What follows moves up where it may: nothing in between is missed by a later search. */
    for (uint32_t at = (hole + 1) & mask; shard->index[at]; at = (at + 1) & mask) {
        uint32_t home = home_cell(table, counted_at(table, shard->index[at])->hash);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            shard->index[hole] = shard->index[at];
            hole = at;
        }
    }
    shard->index[hole] = 0;
    store_relaxed(&shard->entries, shard->entries - 1);
}

/* A quarter of the cells stays free, so that searches end soon. */
static uint32_t entries_max(const struct counted_table *table)
{
    return table->index_mask - table->index_mask / 4;
}

static uint32_t find_or_add(struct counted_table *table, struct counted_shard *shard, uint32_t hash,
                            const uint64_t *key, uint32_t words)
{
    uint32_t cell = home_cell(table, hash);
    for (uint32_t ref; (ref = shard->index[cell]); cell = (cell + 1) & table->index_mask) {
        struct counted_entry *entry = counted_at(table, ref);
        if (entry->hash == hash && intern_equal(entry->key, entry->words, key, words)) {
            step(&entry->count);
            add_relaxed(&entry->count, 1);
            return ref;
        }
    }
    if (shard->entries >= entries_max(table))
        return 0;
    uint32_t bytes = (uint32_t)sizeof(struct counted_entry) + words * 8;
    uint32_t ref = take_rooms(table, shard, (bytes + COUNTED_ROOM - 1) / COUNTED_ROOM);
    if (!ref)
        return 0;
    struct counted_entry *entry = counted_at(table, ref);
    entry->hash = hash;
    entry->mark = 0;
    entry->words = (uint16_t)words;
    memcpy(entry->key, key, words * sizeof(key[0]));
    store_relaxed(&entry->count, 1);
    store_relaxed(&shard->in_use, shard->in_use + entry->rooms);
    shard->index[cell] = ref;
    store_relaxed(&shard->entries, shard->entries + 1);
    return ref;
}

/* ---- the lock, and what its holder does at the end ---- */

static bool try_lock(struct counted_shard *shard)
{
    step(&shard->lock);
    return !__atomic_load_n(&shard->lock, __ATOMIC_SEQ_CST) &&
           !__atomic_exchange_n(&shard->lock, 1, __ATOMIC_SEQ_CST);
}

/* The entry is off the list: frees it if nobody refers to it. */
static uint32_t settle(struct counted_table *table, struct counted_shard *shard, uint32_t ref)
{
    struct counted_entry *entry = counted_at(table, ref);
    step(&entry->count);
    uint32_t seen = load_acquire(&entry->count);
    while (seen != COUNTED_QUEUED) {
        if (__atomic_compare_exchange_n(&entry->count, &seen, seen & ~COUNTED_QUEUED, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 0;
    }
    index_remove(table, shard, ref);
    store_relaxed(&shard->in_use, shard->in_use - entry->rooms);
    entry->next = shard->free[entry->rooms];
    shard->free[entry->rooms] = ref;
    return 1;
}

static uint32_t drain(struct counted_table *table, struct counted_shard *shard)
{
    uint32_t freed = 0;
    step(&shard->dead);
    uint32_t ref = exchange_acq_rel(&shard->dead, 0);
    while (ref) {
        uint32_t next = counted_at(table, ref)->next;
        freed += settle(table, shard, ref);
        ref = next;
    }
    return freed;
}

static uint32_t drain_and_unlock(struct counted_table *table, struct counted_shard *shard)
{
    uint32_t freed = 0;
    do {
        if (load_relaxed(&shard->dead))
            freed += drain(table, shard);
        step(&shard->lock);
        __atomic_store_n(&shard->lock, 0, __ATOMIC_SEQ_CST);
        step(&shard->dead);
    } while (__atomic_load_n(&shard->dead, __ATOMIC_SEQ_CST) && try_lock(shard));
    return freed;
}

/* ---- what users call ---- */

uint32_t counted_hold(struct counted_table *table, const uint64_t *key, uint32_t words)
{
    uint64_t hash = intern_hash(key, words);
    uint32_t home = (uint32_t)(hash >> 32) % COUNTED_SHARDS;
    if (words > COUNTED_WORDS_MAX)
        return 0;
    for (uint32_t i = 0; i < COUNTED_SHARDS; i++) {
        struct counted_shard *shard = &table->shards[(home + i) % COUNTED_SHARDS];
        if (!try_lock(shard))
            continue;
        uint32_t ref = find_or_add(table, shard, (uint32_t)hash, key, words);
        drain_and_unlock(table, shard);
        return ref;
    }
    return 0;
}

void counted_share(struct counted_table *table, uint32_t ref)
{
    if (!ref)
        return;
    struct counted_entry *entry = counted_at(table, ref);
    step(&entry->count);
    add_relaxed(&entry->count, 1);
}

static void queue_dead(struct counted_table *table, struct counted_shard *shard, uint32_t ref)
{
    struct counted_entry *entry = counted_at(table, ref);
    uint32_t head = load_relaxed(&shard->dead);
    do {
        entry->next = head;
        step(&shard->dead);
    } while (!__atomic_compare_exchange_n(&shard->dead, &head, ref, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    if (try_lock(shard))
        drain_and_unlock(table, shard);
}

void counted_drop(struct counted_table *table, uint32_t ref)
{
    if (!ref)
        return;
    struct counted_entry *entry = counted_at(table, ref);
    step(&entry->count);
    uint32_t seen = load_relaxed(&entry->count);
    uint32_t wanted;
    do {
        wanted = seen == 1 ? COUNTED_QUEUED : seen - 1;
    } while (!__atomic_compare_exchange_n(&entry->count, &seen, wanted, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    if (seen == 1)
        queue_dead(table, shard_of(table, ref), ref);
}

uint32_t counted_drain(struct counted_table *table)
{
    uint32_t freed = 0;
    for (uint32_t i = 0; i < COUNTED_SHARDS; i++)
        if (load_relaxed(&table->shards[i].dead) && try_lock(&table->shards[i]))
            freed += drain_and_unlock(table, &table->shards[i]);
    return freed;
}

void counted_reset_in_child(struct counted_table *table)
{
    for (uint32_t i = 0; i < COUNTED_SHARDS; i++) {
        struct counted_shard *shard = &table->shards[i];
        if (!shard->lock)
            continue;
        memset(shard->index, 0, (table->index_mask + (size_t)1) * sizeof(uint32_t));
        memset(shard->free, 0, sizeof(shard->free));
        shard->entries = 0;
        store_release(&shard->lock, 0);
    }
}
