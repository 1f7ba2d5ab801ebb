/* The lock-free set of keys: identity, room, concurrency. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/record/intern_table.h"
#include "test/demand.h"

enum { MIB = 1 << 20 };

static struct intern_table table;

static void make(size_t arena_size, uint32_t index_size)
{
    ck_assert_int_eq(intern_create(&table, arena_size, index_size), 0);
}

static struct intern_entry *intern_word(uint64_t word)
{
    return intern(&table, &word, 1, 1);
}

static uint32_t count_slots(void)
{
    uint32_t count = 0;
    for (uint32_t position = 0; intern_next(&table, &position);)
        count++;
    return count;
}

START_TEST(a_key_has_one_entry)
{
    make(MIB, 1024);
    for (uint32_t words = 1; words <= 40; words++) {
        uint64_t key[40] = {0};
        for (uint32_t i = 0; i < words; i++)
            key[i] = i * 0x10001;
        struct intern_entry *entry = intern(&table, key, words, 3);
        ck_assert_ptr_nonnull(entry);
        ck_assert_uint_eq(entry->words, words);
        ck_assert_uint_eq(entry->values, 3);
        ck_assert_mem_eq(entry->data, key, words * sizeof(key[0]));
        uint64_t *values = intern_values(entry);
        ck_assert_ptr_eq(values, &entry->data[words]);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(values[i], 0);
            values[i] = UINT64_MAX; /* must not spill into the next entry */
        }
        ck_assert_ptr_eq(intern(&table, key, words, 3), entry);
        ck_assert_uint_eq(table.entries, words);
    }
    ck_assert_uint_eq(count_slots(), 40);
    intern_destroy(&table);
}
END_TEST

START_TEST(keys_that_differ_have_entries_that_differ)
{
    make(MIB, 4096);
    static const uint64_t keys[][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0},
                                       {0, 0, 1}, {1, 1, 0}, {2, 0, 0},
                                       {1, 2, 3}, {3, 2, 1}, {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    enum { KEYS = ARRAY_SIZE(keys) };
    struct intern_entry *entries[3 * KEYS];
    size_t count = 0;
    /* One key is a part of another, too: the length belongs to a key. */
    for (uint32_t words = 1; words <= 3; words++)
        for (size_t k = 0; k < KEYS; k++)
            entries[count++] = intern(&table, keys[k], words, 0);
    for (size_t i = 0; i < count; i++) {
        ck_assert_ptr_nonnull(entries[i]);
        for (size_t j = 0; j < i; j++) {
            bool same = entries[i]->words == entries[j]->words &&
                        memcmp(keys[i % KEYS], keys[j % KEYS], entries[i]->words * 8) == 0;
            ck_assert_int_eq(entries[i] == entries[j], same);
        }
    }
    intern_destroy(&table);
}
END_TEST

START_TEST(a_reference_leads_back_and_is_never_zero)
{
    make(MIB, 8192);
    for (uint64_t word = 0; word < 4000; word++) {
        struct intern_entry *entry = intern_word(word);
        uint32_t ref = intern_ref(&table, entry);
        demand(ref != 0 && ref < 1u << 31);
        demand(intern_at(&table, ref) == entry);
    }
    intern_destroy(&table);
}
END_TEST

START_TEST(the_index_gives_each_entry_once)
{
    make(MIB, 8192);
    static uint32_t seen[4000];
    for (uint64_t word = 0; word < ARRAY_SIZE(seen); word++)
        demand(intern_word(word));
    const struct intern_entry *entry;
    for (uint32_t position = 0; (entry = intern_next(&table, &position));)
        seen[entry->data[0]]++;
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
        demand(seen[i] == 1);
    intern_destroy(&table);
}
END_TEST

/* Fills the table until it refuses; returns how many keys it took. */
static uint32_t fill(uint32_t most)
{
    uint32_t taken = 0;
    while (taken < most && intern_word(taken)) {
        *intern_values(intern_word(taken)) = taken + 1u;
        taken++;
    }
    return taken;
}

static void check_full(uint32_t taken)
{
    size_t used = table.arena.used;
    for (int round = 0; round < 1000; round++)
        demand(!intern_word(1000000u + (uint64_t)round));
    ck_assert_uint_le(table.arena.used - used, 1000 * 24);
    ck_assert_uint_eq(table.entries, taken);
    ck_assert_uint_eq(count_slots(), taken);
    for (uint64_t word = 0; word < taken; word++)
        demand(*intern_values(intern_word(word)) == word + 1);
}

START_TEST(a_full_arena_takes_no_more_and_keeps_what_it_has)
{
    make(4096, 4096);
    uint32_t taken = fill(4096);
    /* 8 bytes of head, one word, one value; the first 8 bytes are never an entry. */
    ck_assert_uint_eq(taken, (4096 - 8) / 24);
    check_full(taken);
    ck_assert_uint_le(table.arena.used, 4096 + 24);
    intern_destroy(&table);
}
END_TEST

START_TEST(a_full_index_takes_no_more_and_keeps_what_it_has)
{
    make(MIB, INTERN_PROBES);
    uint32_t taken = fill(4096);
    ck_assert_uint_eq(taken, INTERN_PROBES);
    size_t used = table.arena.used;
    check_full(taken);
    ck_assert_uint_eq(table.arena.used, used);
    intern_destroy(&table);
}
END_TEST

START_TEST(an_index_fills_to_a_half_without_a_refusal)
{
    /* What the recorder counts on: half full, probes of 64 places do not run out. */
    make(4 * MIB, 65536);
    for (uint64_t word = 0; word < 32768; word++)
        demand(intern_word(word << 4));
    intern_destroy(&table);
}
END_TEST

static void check_cleared(uint64_t words)
{
    intern_clear(&table);
    ck_assert_uint_eq(table.entries, 0);
    ck_assert_uint_eq(count_slots(), 0);
    for (uint64_t word = 0; word < words; word++) {
        struct intern_entry *entry = intern_word(word);
        demand(entry && *intern_values(entry) == 0 && intern_ref(&table, entry) != 0);
    }
    ck_assert_uint_eq(table.entries, words);
}

static bool locked_memory(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EINVAL;
    return number == SYS_madvise;
}

START_TEST(a_cleared_table_starts_empty)
{
    static const uint64_t sizes[] = {1, 100, 20000}; /* below and above what is cleared by hand */
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        make(MIB, 65536);
        for (int round = 0; round < 3; round++) {
            ck_assert_uint_eq(fill((uint32_t)sizes[i]), sizes[i]);
            check_cleared(sizes[i]);
            intern_clear(&table);
        }
        intern_destroy(&table);
    }
}
END_TEST

START_TEST(a_table_is_cleared_in_a_process_that_locks_its_memory)
{
    make(MIB, 65536);
    fill(20000);
    sys_override = locked_memory;
    check_cleared(20000);
    sys_override = NULL;
    intern_destroy(&table);
}
END_TEST

START_TEST(what_cannot_be_made_is_a_clean_error)
{
    size_t before = arena_reserved();
    arena_set_budget(before + 8192);
    ck_assert_int_eq(intern_create(&table, 16384, 512), -ENOMEM);
    ck_assert_int_eq(intern_create(&table, 8192, 512), -ENOMEM); /* the index does not fit */
    ck_assert_uint_eq(arena_reserved(), before);
    ck_assert_int_eq(intern_create(&table, 4096, 512), 0);
    intern_destroy(&table);
    ck_assert_uint_eq(arena_reserved(), before);
    arena_set_budget(SIZE_MAX);
}
END_TEST

/* ---- keys that the index cannot tell apart ---- */

static int by_hash(const void *a, const void *b)
{
    uint32_t left = (*(struct intern_entry *const *)a)->hash;
    uint32_t right = (*(struct intern_entry *const *)b)->hash;
    return (left > right) - (left < right);
}

enum { SEARCHED = 400000, TWINS = 64 };

/* Pairs of words whose 32-bit tags are equal, by the birthday paradox: of n keys
 * n^2 / 2^33 pairs, here 18.6; fewer than 4 are seen with a probability of 2e-5 for a random
 * hash, and the hash is a fixed one. */
static size_t find_twins(uint64_t twins[TWINS][2])
{
    static struct intern_entry *entries[SEARCHED];
    size_t count = 0;
    make(32 * MIB, 1 << 20);
    for (uint64_t word = 0; word < SEARCHED; word++)
        entries[word] = intern_word(word);
    qsort(entries, SEARCHED, sizeof(entries[0]), by_hash);
    for (size_t i = 1; i < SEARCHED && count < TWINS; i++) {
        if (entries[i]->hash != entries[i - 1]->hash)
            continue;
        twins[count][0] = entries[i - 1]->data[0];
        twins[count++][1] = entries[i]->data[0];
    }
    intern_destroy(&table);
    return count;
}

START_TEST(equal_tags_are_not_equal_keys)
{
    uint64_t twins[TWINS][2];
    size_t count = find_twins(twins);
    ck_assert_uint_ge(count, 4);
    for (size_t i = 0; i < count; i++) {
        /* An index that is full: a search for the second passes the first. */
        make(MIB, INTERN_PROBES);
        struct intern_entry *first = intern_word(twins[i][0]);
        for (uint64_t word = 0; table.entries < INTERN_PROBES; word++)
            demand(intern_word(SEARCHED + word));
        ck_assert_ptr_null(intern_word(twins[i][1]));
        ck_assert_ptr_eq(intern_word(twins[i][0]), first);
        intern_destroy(&table);
        /* One with room: both live there. */
        make(MIB, 2);
        first = intern_word(twins[i][0]);
        struct intern_entry *second = intern_word(twins[i][1]);
        ck_assert_ptr_nonnull(second);
        ck_assert_ptr_ne(first, second);
        ck_assert_uint_eq(first->hash, second->hash);
        ck_assert_ptr_eq(intern_word(twins[i][1]), second);
        intern_destroy(&table);
    }
}
END_TEST

/* ---- many threads ---- */

enum { THREADS = 8, KEYS = 10000, ROUNDS = 3 };

static pthread_barrier_t barrier;
static uint32_t refs[THREADS][KEYS];
static uint64_t refused[THREADS];

/* Interns all keys in an order of its own, adds 1 to each, in each round. */
static void *intern_all(void *argument)
{
    size_t self = (size_t)argument;
    struct rng rng = {self + 1};
    static __thread uint32_t order[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t other = (uint32_t)(rng_next(&rng) % (i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < KEYS; i++) {
            /* Half of the keys are met by all threads at about the same time. */
            uint64_t number = round == 0 && self % 2 ? i : order[i];
            uint64_t key[3] = {number, ~number, number * number};
            struct intern_entry *entry = intern(&table, key, 3, 1);
            if (!entry) {
                refused[self]++;
                continue;
            }
            demand(memcmp(entry->data, key, sizeof(key)) == 0);
            add_relaxed(intern_values(entry), 1);
            uint32_t ref = intern_ref(&table, entry);
            demand(!refs[self][number] || refs[self][number] == ref);
            refs[self][number] = ref;
        }
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, intern_all, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static uint64_t sum_of_values(void)
{
    uint64_t sum = 0;
    const struct intern_entry *entry;
    for (uint32_t position = 0; (entry = intern_next(&table, &position));)
        sum += entry->data[entry->words];
    return sum;
}

START_TEST(threads_that_intern_the_same_keys_share_entries)
{
    make(16 * MIB, 32768);
    run_threads();
    ck_assert_uint_eq(table.entries, KEYS);
    ck_assert_uint_eq(count_slots(), KEYS);
    for (uint32_t key = 0; key < KEYS; key++) {
        for (int i = 0; i < THREADS; i++)
            demand(refs[i][key] == refs[0][key]);
        const struct intern_entry *entry = intern_at(&table, refs[0][key]);
        demand(entry->data[entry->words] == THREADS * ROUNDS);
    }
    intern_destroy(&table);
}
END_TEST

/* Two threads that reach each new key at the same instant: the one that comes second has written
 * an entry for nothing, and uses the other's. */
enum { RACES = 20000 };

static uint32_t at_key[2];
static struct intern_entry *met[2][RACES];

static void *race_for_keys(void *argument)
{
    size_t self = (size_t)argument;
    for (uint32_t key = 0; key < RACES; key++) {
        store_release(&at_key[self], key + 1);
        for (int spins = 0; load_acquire(&at_key[!self]) <= key; spins++) {
            if (spins > 1000)
                sched_yield();
        }
        met[self][key] = intern_word(key);
    }
    store_release(&at_key[self], UINT32_MAX);
    return NULL;
}

START_TEST(a_race_for_a_new_key_has_one_winner)
{
    make(16 * MIB, 65536);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, race_for_keys, (void *)i), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t key = 0; key < RACES; key++)
        demand(met[0][key] && met[0][key] == met[1][key]);
    ck_assert_uint_eq(table.entries, RACES);
    intern_destroy(&table);
}
END_TEST

static void check_nothing_is_lost(void)
{
    uint64_t sum = sum_of_values();
    for (int i = 0; i < THREADS; i++)
        sum += refused[i];
    ck_assert_uint_gt(sum, sum_of_values());
    ck_assert_uint_eq(sum, (uint64_t)THREADS * ROUNDS * KEYS);
    ck_assert_uint_eq(count_slots(), table.entries);
    intern_destroy(&table);
}

START_TEST(an_arena_that_fills_under_threads_loses_nothing_but_what_it_refused)
{
    make((size_t)KEYS / 2 * 40, 32768);
    run_threads();
    check_nothing_is_lost();
}
END_TEST

START_TEST(an_index_that_fills_under_threads_loses_nothing_but_what_it_refused)
{
    make(16 * MIB, 8192);
    run_threads();
    check_nothing_is_lost();
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("intern_table");
    TCase *one = tcase_create("one thread");
    tcase_set_timeout(one, 60);
    tcase_add_test(one, a_key_has_one_entry);
    tcase_add_test(one, keys_that_differ_have_entries_that_differ);
    tcase_add_test(one, a_reference_leads_back_and_is_never_zero);
    tcase_add_test(one, the_index_gives_each_entry_once);
    tcase_add_test(one, a_full_arena_takes_no_more_and_keeps_what_it_has);
    tcase_add_test(one, a_full_index_takes_no_more_and_keeps_what_it_has);
    tcase_add_test(one, an_index_fills_to_a_half_without_a_refusal);
    tcase_add_test(one, a_cleared_table_starts_empty);
    tcase_add_test(one, a_table_is_cleared_in_a_process_that_locks_its_memory);
    tcase_add_test(one, what_cannot_be_made_is_a_clean_error);
    tcase_add_test(one, equal_tags_are_not_equal_keys);
    suite_add_tcase(suite, one);
    TCase *many = tcase_create("many threads");
    tcase_set_timeout(many, 60);
    tcase_add_test(many, a_race_for_a_new_key_has_one_winner);
    tcase_add_test(many, threads_that_intern_the_same_keys_share_entries);
    tcase_add_test(many, an_arena_that_fills_under_threads_loses_nothing_but_what_it_refused);
    tcase_add_test(many, an_index_that_fills_under_threads_loses_nothing_but_what_it_refused);
    suite_add_tcase(suite, many);
    return suite;
}
