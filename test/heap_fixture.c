#include "test/heap_fixture.h"

#include <string.h>

#include "agent/base/arena.h"
#include "agent/record/heap_tables.h"
#include "test/demand.h"

static struct rng rng = {1};

void heap_fixture_start(size_t bytes)
{
    heap_fixture_start_one_in(bytes, 1);
}

void heap_fixture_start_one_in(size_t bytes, uint64_t one_in)
{
    arena_set_budget(bytes / 5 * 16);
    ck_assert_int_eq(heap_recorder_start(one_in), 0);
    arena_set_budget(SIZE_MAX);
}

void heap_fixture_add(uintptr_t address, size_t size, uint64_t site)
{
    struct {
        uint64_t words[2];
    } stack = {{1, site}};
    const struct heap_sample sample = {
        .pointer = (const void *)address,
        .size = size,
        .weight = (uint64_t)1 << RECORD_FRACTION_BITS,
        .stack = (const struct record_stack *)(const void *)&stack,
        .frames = 1,
    };
    heap_recorder_add(&sample, &rng);
}

void heap_fixture_free(uintptr_t address)
{
    if (heap_may_be_recorded((const void *)address))
        heap_recorder_free((const void *)address);
}

struct adding {
    uint64_t site;
    struct heap_sum sum;
};

static int add_row(const struct heap_row *row, void *data)
{
    struct adding *adding = data;
    demand(row->count >= 1 && row->generation == (row->pcs[0] != PSEUDO_TRUNCATED));
    if (adding->site && row->pcs[0] != adding->site)
        return 0;
    adding->sum.objects += row->values.count;
    adding->sum.bytes += row->values.amount;
    adding->sum.rows++;
    return 0;
}

struct heap_sum heap_fixture_sum_of_open(uint64_t site)
{
    struct adding adding = {site, {0, 0, 0}};
    demand(heap_snapshot_each(add_row, &adding) == 0);
    demand(adding.sum.objects % (1u << RECORD_FRACTION_BITS) == 0);
    adding.sum.objects >>= RECORD_FRACTION_BITS;
    adding.sum.bytes >>= RECORD_AMOUNT_BITS_ALLOC;
    return adding.sum;
}

struct heap_sum heap_fixture_sum(uint64_t site)
{
    demand(heap_snapshot_prepare(&(struct heap_view){.by_thread = true}) == 0);
    struct heap_sum sum = heap_fixture_sum_of_open(site);
    heap_snapshot_finish();
    return sum;
}

/* ---- the audit ---- */

static uint32_t *counts; /* by reference of a key */

static void audit_record(uint32_t ref)
{
    const struct heap_record *record = heap_pool_at(&heap.pool, ref);
    uint64_t word;
    demand(heap_slots_find(&heap.slots, &heap.pool, record->address, &word));
    demand(heap_slot_ref(word) == ref);
    counts[record->stack]++;
    if (record->thread)
        counts[record->thread]++;
}

static uint32_t free_records(void)
{
    uint32_t count = 0;
    for (int i = 0; i < HEAP_FREE_LISTS; i++) {
        for (uint32_t ref = (uint32_t)heap.pool.lists[i].head; ref;
             ref = heap_pool_at(&heap.pool, ref)->next) {
            demand(heap_condition_of(heap_pool_at(&heap.pool, ref)->state) == HEAP_FREE);
            demand(++count <= heap.pool.bump);
        }
    }
    return count;
}

static void audit_keys(void)
{
    for (int i = 0; i < COUNTED_SHARDS; i++) {
        const struct counted_shard *shard = &heap.keys.shards[i];
        uint32_t entries = 0, rooms = 0;
        demand(shard->lock == 0 && shard->dead == 0);
        for (uint32_t cell = 0; cell <= heap.keys.index_mask; cell++) {
            uint32_t ref = shard->index[cell];
            if (!ref)
                continue;
            const struct counted_entry *entry = counted_at(&heap.keys, ref);
            demand(entry->count != 0 && entry->count == counts[ref]);
            counts[ref] = 0;
            entries++;
            rooms += entry->rooms;
        }
        demand(entries == shard->entries && rooms == shard->in_use);
    }
}

uint32_t heap_fixture_audit(void)
{
    size_t refs = (size_t)heap.keys.rooms * COUNTED_SHARDS + 1;
    uint32_t live = 0, found = 0;
    if (!counts)
        counts = calloc(refs, sizeof(counts[0]));
    for (uint32_t ref = 1; ref <= heap.pool.bump; ref++) {
        const struct heap_record *record = heap_pool_at(&heap.pool, ref);
        enum heap_condition condition = heap_condition_of(record->state);
        demand(condition == HEAP_FREE || condition == HEAP_LIVE);
        if (condition == HEAP_FREE)
            continue;
        audit_record(ref);
        live++;
    }
    for (uint32_t i = 0; i < heap.slots.count; i++) {
        demand(!heap.slots.memory[i] || heap_slot_is_found(heap.slots.memory[i]));
        found += heap.slots.memory[i] != 0;
    }
    audit_keys();
    demand(found == live && heap.live == live);
    demand(free_records() + live == heap.pool.bump);
    return live;
}

void heap_fixture_audit_filter(void)
{
    static uint32_t counts_of[HEAP_FILTER_SIZE];
    static uint8_t places[HEAP_FILTER_SIZE];
    memset(counts_of, 0, sizeof(counts_of));
    memset(places, 0, sizeof(places));
    for (uint32_t ref = 1; ref <= heap.pool.bump; ref++) {
        const struct heap_record *record = heap_pool_at(&heap.pool, ref);
        if (heap_condition_of(record->state) != HEAP_LIVE)
            continue;
        size_t page = (size_t)(heap_filter_at(record->address) - heap_filter);
        counts_of[page]++;
        places[page] = (uint8_t)(places[page] + heap_filter_place(record->address));
        demand(heap_may_be_recorded((const void *)record->address));
        demand(heap_filter_has(record->address));
    }
    for (size_t i = 0; i < HEAP_FILTER_SIZE; i++) {
        if (heap_filter_count(heap_filter[i]) != HEAP_FILTER_STUCK)
            demand(heap_filter[i] == (places[i] << 8 | counts_of[i]));
    }
}
