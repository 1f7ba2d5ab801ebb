#include "agent/record/heap_slots.h"

#include <errno.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/record/model_step.h"

/* An address as the table sees it. */
struct key {
    uint32_t tag; /* not 0 */
    uint32_t places[2];
};

/* Two rounds of multiply and fold, as in splitmix's finisher: addresses of large blocks differ in
 * few bits, anywhere. */
static struct key key_of(uintptr_t address)
{
    uint64_t hash = (uint64_t)address * 0xbf58476d1ce4e5b9ull;
    hash = (hash ^ hash >> 32) * 0x94d049bb133111ebull;
    hash ^= hash >> 29;
    uint32_t tag = (uint32_t)hash;
    /* The second place from the first one and the tag, as cuckoo filters have it. */
    uint32_t place = (uint32_t)(hash >> 32);
    return (struct key){tag ? tag : 1, {place, place ^ (tag * 0x5bd1e995u | 1)}};
}

static uint64_t *bucket_of(const struct heap_slots *slots, uint32_t level, uint32_t place)
{
    uint32_t bucket = slots->first[level] + (place & (slots->buckets[level] - 1));
    return slots->memory + (size_t)bucket * HEAP_BUCKET;
}

static size_t bytes_of(uint32_t buckets)
{
    return (size_t)buckets * HEAP_BUCKET * sizeof(uint64_t);
}

int heap_slots_create(struct heap_slots *slots, size_t bytes)
{
    memset(slots, 0, sizeof(*slots));
    uint32_t total = 0;
    uint32_t buckets = HEAP_FIRST_BUCKETS;
    while (slots->levels < HEAP_LEVELS_MAX && buckets >= HEAP_FIRST_BUCKETS) {
        if (bytes_of(total + buckets) > bytes) {
            buckets /= 2; /* the last one may be smaller than four times the one before */
            continue;
        }
        slots->first[slots->levels] = total;
        slots->buckets[slots->levels++] = buckets;
        total += buckets;
        if (slots->levels > 1 && buckets < slots->buckets[slots->levels - 2] * HEAP_LEVEL_GROWTH)
            break;
        buckets *= HEAP_LEVEL_GROWTH;
    }
    slots->count = total * HEAP_BUCKET;
    slots->memory = arena_reserve(bytes_of(total));
    slots->open = 1;
    return slots->memory ? 0 : -ENOMEM;
}

void heap_slots_destroy(struct heap_slots *slots)
{
    arena_release(slots->memory, slots->count * sizeof(uint64_t));
    memset(slots, 0, sizeof(*slots));
}

uint64_t *heap_slots_find(struct heap_slots *slots, const struct heap_pool *pool, uintptr_t address,
                          uint64_t *word)
{
    struct key key = key_of(address);
    uint32_t open = load_acquire(&slots->open);
    for (uint32_t i = 0; i < open * 2; i++) {
        uint64_t *bucket = bucket_of(slots, i / 2, key.places[i % 2]);
        step(bucket);
        for (uint32_t k = 0; k < HEAP_BUCKET; k++) {
            uint64_t seen = load_acquire(&bucket[k]);
            if (seen >> 32 != key.tag)
                continue;
            const struct heap_record *record = heap_pool_at(pool, heap_slot_ref(seen));
            step(record);
            if (load_relaxed(&record->address) == address) {
                *word = seen;
                return &bucket[k];
            }
        }
    }
    return NULL;
}

static uint32_t filled(const uint64_t *bucket)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < HEAP_BUCKET; k++)
        count += load_relaxed(&bucket[k]) != 0;
    return count;
}

static bool insert_into(uint64_t *bucket, uint64_t word)
{
    for (uint32_t k = 0; k < HEAP_BUCKET; k++) {
        uint64_t empty = 0;
        if (load_relaxed(&bucket[k]) != 0)
            continue;
        step(bucket);
        if (__atomic_compare_exchange_n(&bucket[k], &empty, word, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

/* The emptier bucket of the two: with a choice, a level takes three fifths of its slots before an
 * address finds both full. */
static bool insert_at(struct heap_slots *slots, uint32_t level, const struct key *key,
                      uint64_t word)
{
    uint64_t *first = bucket_of(slots, level, key->places[0]);
    uint64_t *second = bucket_of(slots, level, key->places[1]);
    if (filled(second) < filled(first)) {
        uint64_t *other = first;
        first = second;
        second = other;
    }
    return insert_into(first, word) || insert_into(second, word);
}

/* From the first level on, so that what is used is small: a new level is touched by those alone
 * that find no room before it. */
bool heap_slots_insert(struct heap_slots *slots, uintptr_t address, uint32_t ref)
{
    struct key key = key_of(address);
    uint64_t word = (uint64_t)key.tag << 32 | ref;
    for (uint32_t level = 0; level < slots->levels; level++) {
        uint32_t open = load_relaxed(&slots->open);
        if (level == open)
            __atomic_compare_exchange_n(&slots->open, &open, level + 1, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED);
        if (insert_at(slots, level, &key, word))
            return true;
    }
    return false;
}

/* The bucket that a slot is in: tables begin at a page. */
static const void *bucket_around(const uint64_t *slot)
{
    return (const void *)ALIGN_DOWN((uintptr_t)slot, (uintptr_t)CACHE_LINE);
}

static bool swap(uint64_t *slot, uint64_t from, uint64_t to)
{
    step(bucket_around(slot));
    return __atomic_compare_exchange_n(slot, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool heap_slot_take(uint64_t *slot, uint64_t word)
{
    return swap(slot, word, 0);
}

bool heap_slot_hold(uint64_t *slot, uint64_t word)
{
    return swap(slot, word, heap_slot_ref(word));
}

void heap_slot_put_back(uint64_t *slot, uint64_t word)
{
    step(bucket_around(slot));
    store_release(slot, word);
}

void heap_slot_drop(uint64_t *slot)
{
    step(bucket_around(slot));
    store_release(slot, 0);
}
