#include "agent/record/intern_table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/sys.h"

/* References count units of 8 bytes, so 31 bits reach 16 GiB. */
enum { REF_UNIT = 8 };

/* A multiplicative word hash (that of Firefox and rustc), with splitmix's finisher so that both
 * halves of the result are good. Every fourth word goes to the same of four sums, which do not wait
 * for each other: a stack of 50 frames takes a quarter of the time. */
static inline uint64_t add_word(uint64_t hash, uint64_t word)
{
    return (((hash << 5) | (hash >> 59)) ^ word) * 0x9e3779b97f4a7c15ull;
}

uint64_t intern_hash(const uint64_t *key, uint32_t words)
{
    enum { LANES = 4 };
    uint64_t lanes[LANES] = {words, 1, 2, 3};
    uint32_t i = 0;
    for (; i + LANES <= words; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] = add_word(lanes[k], key[i + k]);
    uint64_t hash = lanes[0];
    for (; i < words; i++)
        hash = add_word(hash, key[i]);
    for (uint32_t k = 1; k < LANES; k++)
        hash = add_word(hash, lanes[k]);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
    return hash ^ (hash >> 31);
}

/* Reference 0 means "none": the arena's first unit is never an entry. */
static int skip_reference_zero(struct intern_table *table)
{
    return arena_take(&table->arena, REF_UNIT) ? 0 : -1;
}

int intern_create(struct intern_table *table, size_t arena_size, uint32_t index_size)
{
    memset(table, 0, sizeof(*table));
    int error = arena_create(&table->arena, arena_size);
    if (error)
        return error;
    table->index = arena_reserve(index_size * sizeof(uint64_t));
    table->index_mask = index_size - 1;
    if (!table->index || skip_reference_zero(table)) {
        intern_destroy(table);
        return -ENOMEM;
    }
    return 0;
}

void intern_destroy(struct intern_table *table)
{
    if (table->index)
        arena_release(table->index, (table->index_mask + (size_t)1) * sizeof(uint64_t));
    arena_destroy(&table->arena);
    memset(table, 0, sizeof(*table));
}

uint32_t intern_ref(const struct intern_table *table, const struct intern_entry *entry)
{
    return (uint32_t)(((const uint8_t *)entry - table->arena.base) / REF_UNIT);
}

const struct intern_entry *intern_at(const struct intern_table *table, uint32_t ref)
{
    return (const struct intern_entry *)(const void *)(table->arena.base + (size_t)ref * REF_UNIT);
}

bool intern_equal(const uint64_t *a, uint32_t a_words, const uint64_t *b, uint32_t b_words)
{
    return a_words == b_words && memcmp(a, b, a_words * sizeof(a[0])) == 0;
}

static struct intern_entry *new_entry(struct intern_table *table, uint32_t hash,
                                      const uint64_t *key, uint32_t words, uint32_t values)
{
    struct intern_entry *entry =
        arena_take(&table->arena, sizeof(*entry) + (words + values) * sizeof(uint64_t));
    if (!entry)
        return NULL;
    entry->hash = hash;
    entry->words = (uint16_t)words;
    entry->values = (uint16_t)values;
    memcpy(entry->data, key, words * sizeof(key[0]));
    return entry;
}

static uint32_t part_size(const struct intern_table *table)
{
    return table->index_mask / INTERN_PARTS + 1;
}

static void mark_filled(struct intern_table *table, uint32_t position)
{
    uint32_t part = position / part_size(table);
    uint64_t bit = (uint64_t)1 << part % 64;
    if (!(load_relaxed(&table->filled[part / 64]) & bit))
        __atomic_fetch_or(&table->filled[part / 64], bit, __ATOMIC_RELAXED);
}

struct intern_entry *intern(struct intern_table *table, const uint64_t *key, uint32_t words,
                            uint32_t values)
{
    uint64_t hash = intern_hash(key, words);
    uint32_t tag = (uint32_t)(hash >> 32);
    uint32_t position = (uint32_t)hash & table->index_mask;
    struct intern_entry *fresh = NULL;
    for (int probe = 0; probe < INTERN_PROBES; probe++) {
        uint64_t *word = &table->index[position];
        uint64_t seen = load_acquire(word);
        if (seen == 0) {
            if (!fresh && !(fresh = new_entry(table, tag, key, words, values)))
                return NULL;
            uint64_t wanted = (uint64_t)tag << 32 | intern_ref(table, fresh);
            if (__atomic_compare_exchange_n(word, &seen, wanted, false, __ATOMIC_RELEASE,
                                            __ATOMIC_ACQUIRE)) {
                mark_filled(table, position);
                add_relaxed(&table->entries, 1);
                return fresh;
            }
        }
        if ((uint32_t)(seen >> 32) == tag) {
            const struct intern_entry *entry = intern_at(table, (uint32_t)seen);
            if (intern_equal(entry->data, entry->words, key, words))
                return (struct intern_entry *)entry;
        }
        position = (position + 1) & table->index_mask;
    }
    return NULL;
}

const struct intern_entry *intern_next(const struct intern_table *table, uint32_t *position)
{
    uint32_t size = part_size(table);
    while (*position <= table->index_mask) {
        uint32_t part = *position / size;
        if (!(load_relaxed(&table->filled[part / 64]) >> part % 64 & 1)) {
            *position = (part + 1) * size;
            continue;
        }
        uint64_t word = load_acquire(&table->index[(*position)++]);
        if (word)
            return intern_at(table, (uint32_t)word);
    }
    return NULL;
}

static void clear_index(struct intern_table *table)
{
    size_t size = (table->index_mask + (size_t)1) * sizeof(uint64_t);
    /* It was written at random places, so whole pages go back; where memory is locked (mlockall)
     * the kernel refuses that. */
    if (sys_call3(SYS_madvise, table->index, size, MADV_DONTNEED) != 0)
        memset(table->index, 0, size);
}

void intern_clear(struct intern_table *table)
{
    arena_clear(&table->arena);
    clear_index(table);
    table->entries = 0;
    memset(table->filled, 0, sizeof(table->filled));
    (void)!skip_reference_zero(table);
}
