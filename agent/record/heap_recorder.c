#include "agent/record/heap_recorder.h"

#include <errno.h>

#include "agent/base/arena.h"
#include "agent/base/log.h"
#include "agent/base/stats.h"
#include "agent/record/heap_tables.h"
#include "agent/record/model_step.h"

struct heap_tables heap;
uint16_t heap_filter[HEAP_FILTER_SIZE];

#ifdef LIBAGENT_TEST
void (*model_step)(const void *place);
#endif

/* Shares of the memory: a quarter for stacks and threads (5 MiB of 20: 22,000 stacks of 25 frames).
 * Of the rest three tenths for slots: 13 bytes of slots for the 48 of a record is what keeps them
 * three fifths full when all records are in use. */
enum { KEYS_SHARE = 4, SLOTS_TENTHS = 3, SLOTS_FULL_TENTHS = 6 };

/* What the windows and threads leave has room for these and, beside them, for a wall profile, which
 * a later start may ask for: the tables stay as long as the process. */
enum { BUDGET_SIXTEENTHS = 5 };

/* Too little for the smallest tables. */
static const size_t least_bytes = (size_t)128 << 10;

/* One in 2^THINNING_MAX at most. */
enum { THINNING_MAX = 16 };

/* ---- start ---- */

static int create_tables(size_t bytes)
{
    size_t rest = bytes - bytes / KEYS_SHARE;
    int error = counted_create(&heap.keys, bytes / KEYS_SHARE);
    if (!error)
        error = heap_slots_create(&heap.slots, rest / 10 * SLOTS_TENTHS);
    if (!error) {
        size_t left = rest - heap.slots.count * sizeof(uint64_t);
        size_t records = MIN_OF(left / sizeof(struct heap_record),
                                (size_t)heap.slots.count / 10 * SLOTS_FULL_TENTHS);
        error = heap_pool_create(&heap.pool, (uint32_t)records);
    }
    if (error)
        heap_recorder_destroy();
    return error;
}

int heap_recorder_start(uint64_t one_in)
{
    int error = heap.pool.records ? 0 : -ENOMEM;
    for (size_t bytes = arena_budget() / 16 * BUDGET_SIXTEENTHS; error && bytes > least_bytes;
         bytes /= 2)
        error = create_tables(bytes);
    if (error)
        log_warn_once("no live heap: its tables have no room in LIBAGENT_MEMORY");
    heap.one_in = one_in;
    store_release(&heap.accepts, error == 0);
    return error;
}

void heap_recorder_destroy(void)
{
    heap_pool_destroy(&heap.pool);
    heap_slots_destroy(&heap.slots);
    counted_destroy(&heap.keys);
    heap = (struct heap_tables){0};
}

bool heap_recorder_is_on(void)
{
    return load_acquire(&heap.accepts) != 0;
}

/* ---- records ---- */

static uint32_t list_of(uint64_t address)
{
    return (uint32_t)(address * 0x9e3779b97f4a7c15ull >> 60) % HEAP_FREE_LISTS;
}

static void note_change(void)
{
    if (!load_relaxed(&heap.changed))
        store_relaxed(&heap.changed, 1);
}

static uint64_t amount_of(const struct heap_record *record)
{
    return record_values_of(record->weight, record->size).amount;
}

/* The record is not live yet: its end comes later, and so what that takes off. */
static void count_in(const struct heap_record *record)
{
    uint64_t amount = amount_of(record);
    uint64_t now = add_relaxed(&heap.amount, amount) + amount;
    uint64_t highest = load_relaxed(&heap.highest);
    add_relaxed(&heap.live, 1);
    while (now > highest && !__atomic_compare_exchange_n(&heap.highest, &highest, now, true,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void heap_give_back(uint32_t ref)
{
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    add_relaxed(&heap.live, -1u);
    add_relaxed(&heap.amount, -amount_of(record));
    counted_drop(&heap.keys, record->stack);
    counted_drop(&heap.keys, record->thread);
    heap_pool_give(&heap.pool, ref, list_of(record->address));
}

/* The caller took the reference out of its slot. */
static void end_record(uint32_t ref)
{
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    heap_filter_change(record->address, -1);
    if (heap_record_end(record))
        heap_give_back(ref);
    note_change();
}

/* ---- allocation ---- */

/* The last quarter in equal parts, each thinned by half as much again as the one before: so what
 * the tables stand for doubles with each part, and a heap of thousands of times their size finds
 * room. (Parts that shrink as the thinning grows would stand for as much each, and four times the
 * size would be the end.) */
static uint32_t thinning_of(uint64_t in_use, uint64_t size)
{
    uint64_t left = size - MIN_OF(in_use, size), quarter = size / 4;
    if (left >= quarter)
        return 0;
    return 1 + (uint32_t)((quarter - left) * (THINNING_MAX - 1) / quarter);
}

/* 0: the sample is not kept, else how many it stands for. */
static uint64_t draw(struct rng *rng)
{
    if (heap.one_in > 1 && rng_next(rng) % heap.one_in != 0)
        return 0;
    uint32_t thinning = thinning_of(load_relaxed(&heap.live), heap.pool.size);
    if (thinning == 0)
        return heap.one_in;
    stats_add(STAT_HEAP_THINNED, 1);
    uint64_t mask = ((uint64_t)1 << thinning) - 1;
    return (rng_next(rng) & mask) ? 0 : heap.one_in << thinning;
}

/* Fills a record with references of its own. 0: no room. Where there is none for its stack, it has
 * none: it counts as it is, as libagent truncated, since one that was thinned out could stand for a
 * thousand others, and a stack that is known already needs no room. */
static uint32_t make_record(const struct heap_sample *sample, const uint64_t *key, uint32_t words)
{
    uint32_t ref = heap_pool_take(&heap.pool, list_of((uintptr_t)sample->pointer));
    if (!ref)
        return 0;
    uint32_t stack = counted_hold(&heap.keys, key, words);
    uint32_t thread = 0;
    if (sample->thread)
        thread = counted_hold(&heap.keys, (const uint64_t *)sample->thread,
                              sizeof(*sample->thread) / sizeof(uint64_t));
    if (!stack)
        stats_add(STAT_HEAP_TRUNCATED, 1);
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    step(record);
    store_relaxed(&record->address, (uintptr_t)sample->pointer);
    record->size = sample->size;
    record->stack = stack;
    record->thread = thread;
    record->born_s = sample->now_s;
    return ref;
}

/* Called where the hook's own look at the filter excludes nothing. */
static uint64_t *find(uintptr_t address, uint64_t *word)
{
    return heap_filter_has(address) ? heap_slots_find(&heap.slots, &heap.pool, address, word)
                                    : NULL;
}

/* A record of the same address is that of a block whose free was not seen. */
static void end_missed(uintptr_t address)
{
    uint64_t word;
    uint64_t *slot = find(address, &word);
    if (slot && heap_slot_take(slot, word)) {
        end_record(heap_slot_ref(word));
        stats_add(STAT_HEAP_MISSED_FREES, 1);
    }
}

void heap_recorder_add(const struct heap_sample *sample, struct rng *rng)
{
    if (!heap_recorder_is_on())
        return;
    uintptr_t address = (uintptr_t)sample->pointer;
    uint32_t words;
    const uint64_t *key = record_stack_key(sample->stack, sample->frames, &words);
    if (heap_may_be_recorded(sample->pointer))
        end_missed(address);
    uint64_t times = draw(rng);
    if (!times)
        return;
    uint32_t ref = make_record(sample, key, words);
    if (!ref) {
        stats_add(STAT_HEAP_DROPPED, times);
        return;
    }
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    if (__builtin_mul_overflow(sample->weight, times, &record->weight))
        record->weight = UINT64_MAX;
    count_in(record);
    heap_record_publish(record);
    heap_filter_change(address, 1);
    if (!heap_slots_insert(&heap.slots, address, ref)) {
        stats_add(STAT_HEAP_DROPPED, times);
        end_record(ref);
    }
    note_change();
}

/* ---- free and realloc ---- */

void heap_recorder_free(const void *pointer)
{
    uint64_t word;
    uint64_t *slot = find((uintptr_t)pointer, &word);
    if (slot && heap_slot_take(slot, word))
        end_record(heap_slot_ref(word));
}

struct heap_hold heap_recorder_hold(const void *pointer)
{
    struct heap_hold hold;
    hold.slot = find((uintptr_t)pointer, &hold.word);
    if (hold.slot && !heap_slot_hold(hold.slot, hold.word))
        hold.slot = NULL;
    return hold;
}

void heap_recorder_settle(const struct heap_hold *hold, bool failed)
{
    if (failed) {
        heap_slot_put_back(hold->slot, hold->word);
        return;
    }
    heap_slot_drop(hold->slot);
    end_record(heap_slot_ref(hold->word));
}

/* ---- stop, fork ---- */

void heap_recorder_stop(void)
{
    store_release(&heap.accepts, 0);
}

void heap_recorder_clear(void)
{
    for (uint32_t i = 0; i < heap.slots.count; i++) {
        uint64_t *slot = &heap.slots.memory[i];
        uint64_t word = load_acquire(slot);
        if (heap_slot_is_found(word) && heap_slot_take(slot, word))
            end_record(heap_slot_ref(word));
    }
}

void heap_recorder_reset_in_child(void)
{
    if (!heap.pool.records)
        return;
    counted_reset_in_child(&heap.keys);
    uint32_t ref = heap.pinned;
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    bool is_pinned = ref && heap_condition_of(record->state) >= HEAP_PINNED;
    if (is_pinned && !heap_record_unpin(record))
        heap_give_back(ref);
    heap.pinned = 0;
    heap.changed = 0; /* what the parent did is the parent's to show */
}

bool heap_recorder_has_changed(void)
{
    return load_relaxed(&heap.changed) != 0;
}

uint64_t heap_recorder_inuse(void)
{
    return load_relaxed(&heap.amount) >> RECORD_AMOUNT_BITS_ALLOC;
}

uint64_t heap_recorder_highest(void)
{
    return load_relaxed(&heap.highest) >> RECORD_AMOUNT_BITS_ALLOC;
}

void heap_recorder_forget_highest(void)
{
    store_relaxed(&heap.highest, load_relaxed(&heap.amount));
}
