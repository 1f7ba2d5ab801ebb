/* The live heap by itself: what it holds, what it says when it is full, and that its snapshot keeps
 * what it shows. Orders of events are check_heap_model.c's, threads check_heap_stress.c's. */
#include "test/check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/heap_tables.h"
#include "test/demand.h"
#include "test/heap_fixture.h"

enum { MIB = 1 << 20, SITE = 7 };

static uintptr_t address_of(uint32_t number)
{
    return 0x7f0000000000 + (uintptr_t)number * 4112;
}

static void expect(struct heap_sum sum, uint64_t objects, uint64_t bytes)
{
    ck_assert_uint_eq(sum.objects, objects);
    ck_assert_uint_eq(sum.bytes, bytes);
}

START_TEST(what_was_allocated_lives_until_it_is_freed)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 100, SITE);
    heap_fixture_add(0x1010, 50, SITE);
    heap_fixture_add(0x5000, 7, SITE + 1);
    expect(heap_fixture_sum(SITE), 2, 150);
    expect(heap_fixture_sum(0), 3, 157);
    heap_fixture_free(0x1000);
    heap_fixture_free(0x1020); /* never recorded, in the same page */
    heap_fixture_free(0x9000); /* in one without a record */
    expect(heap_fixture_sum(SITE), 1, 50);
    heap_fixture_free(0x1010);
    heap_fixture_free(0x5000);
    expect(heap_fixture_sum(0), 0, 0);
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    heap_fixture_audit_filter();
    for (int i = 0; i < COUNTED_SHARDS; i++)
        ck_assert_uint_eq(heap.keys.shards[i].entries, 0);
}
END_TEST

START_TEST(a_failed_realloc_leaves_the_record_as_it_was)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 100, SITE);
    struct heap_record before = *heap_pool_at(&heap.pool, 1);
    struct heap_hold hold = heap_recorder_hold((const void *)0x1000);
    ck_assert_ptr_nonnull(hold.slot);
    /* It counts meanwhile, and cannot be found. */
    expect(heap_fixture_sum(SITE), 1, 100);
    heap_fixture_free(0x1000);
    ck_assert_ptr_null(heap_recorder_hold((const void *)0x1000).slot);
    heap_recorder_settle(&hold, true);
    ck_assert_mem_eq(heap_pool_at(&heap.pool, 1), &before, sizeof(before));
    ck_assert_uint_eq(heap_fixture_audit(), 1);
    hold = heap_recorder_hold((const void *)0x1000);
    heap_recorder_settle(&hold, false);
    ck_assert_uint_eq(heap_fixture_audit(), 0);
}
END_TEST

START_TEST(an_occupied_address_shows_a_missed_free)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 100, SITE);
    uint64_t state = heap_pool_at(&heap.pool, 1)->state;
    heap_fixture_add(0x1000, 20, SITE);
    ck_assert_uint_eq(stats_get(STAT_HEAP_MISSED_FREES), 1);
    expect(heap_fixture_sum(SITE), 1, 20);
    /* The same record, and another number. */
    ck_assert_uint_eq(heap_pool_at(&heap.pool, 1)->state, state + (1u << HEAP_CONDITION_BITS));
    ck_assert_uint_eq(heap_fixture_audit(), 1);
}
END_TEST

START_TEST(the_table_grows_and_loses_nothing)
{
    enum { BLOCKS = 100000 };
    heap_fixture_start(16 * MIB);
    for (uint32_t i = 0; i < BLOCKS; i++)
        heap_fixture_add(address_of(i), i, SITE + i % 100);
    ck_assert_uint_gt(heap.slots.open, 3);
    ck_assert_uint_eq(heap_fixture_audit(), BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i += 2)
        heap_fixture_free(address_of(i));
    ck_assert_uint_eq(heap_fixture_audit(), BLOCKS / 2);
    heap_fixture_audit_filter();
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < BLOCKS; i += 2)
        bytes += i;
    expect(heap_fixture_sum(0), BLOCKS / 2, bytes);
    /* What was freed is used again first. */
    uint32_t used = heap.pool.bump;
    for (uint32_t i = 0; i < BLOCKS; i += 2)
        heap_fixture_add(address_of(i), i, SITE);
    ck_assert_uint_eq(heap.pool.bump, used);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED) + stats_get(STAT_HEAP_THINNED), 0);
}
END_TEST

/* Near the end of the memory samples stand for more, and their sum for all: of n, kept with
 * probability p and weight 1/p, the sum's variance is n (1/p - 1). p is at least 2^-5 here, which
 * makes the standard error of 30,000 blocks' sum at most 965; six of them, as in 2e-9 of runs. */
START_TEST(near_the_end_samples_are_thinned)
{
    enum { BLOCKS = 30000 };
    heap_fixture_start(MIB);
    ck_assert_uint_lt(heap.pool.size, BLOCKS * 2 / 3);
    ck_assert_uint_gt(heap.pool.size * 3 / 4, BLOCKS / 5);
    for (uint32_t i = 0; i < BLOCKS; i++)
        heap_fixture_add(address_of(i), 10, SITE);
    ck_assert_uint_gt(stats_get(STAT_HEAP_THINNED), 0);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED), 0);
    struct heap_sum sum = heap_fixture_sum(0);
    ck_assert_uint_eq(sum.bytes, sum.objects * 10);
    ck_assert_uint_gt(sum.objects, BLOCKS - 6 * 965);
    ck_assert_uint_lt(sum.objects, BLOCKS + 6 * 965);
    ck_assert_uint_lt(heap_fixture_audit(), heap.pool.size);
}
END_TEST

/* A stack for each block: their room is what ends. */
START_TEST(stacks_without_end_are_thinned_and_dropped_with_a_word)
{
    heap_fixture_start(MIB);
    uint32_t added = 0;
    for (uint32_t i = 0; i < 2000000 && !stats_get(STAT_HEAP_DROPPED); i++, added++)
        heap_fixture_add(address_of(i), 10, 1000 + i);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED), 1);
    ck_assert_uint_gt(stats_get(STAT_HEAP_THINNED), 1000);
    heap_fixture_audit();
    for (uint32_t i = 0; i < added; i++)
        heap_fixture_free(address_of(i));
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        ck_assert_uint_eq(heap.keys.shards[i].in_use, 0);
    /* All of it can be used again, by stacks of another size, too. */
    heap_fixture_add(0x1000, 1, SITE);
    expect(heap_fixture_sum(0), 1, 1);
}
END_TEST

START_TEST(one_in_n_samples_stands_for_n)
{
    enum { BLOCKS = 20000, ONE_IN = 4 };
    heap_fixture_start_one_in(16 * MIB, ONE_IN);
    for (uint32_t i = 0; i < BLOCKS; i++)
        heap_fixture_add(address_of(i), 10, SITE);
    struct heap_sum sum = heap_fixture_sum(0);
    ck_assert_uint_eq(sum.objects, heap_fixture_audit() * ONE_IN);
    /* Standard error sqrt(20000 * 3) = 245. */
    ck_assert_uint_gt(sum.objects, BLOCKS - 6 * 245);
    ck_assert_uint_lt(sum.objects, BLOCKS + 6 * 245);
}
END_TEST

START_TEST(nothing_is_added_after_a_stop_and_frees_go_on)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 1, SITE);
    heap_fixture_add(0x2000, 1, SITE);
    heap_recorder_stop();
    heap_fixture_add(0x3000, 1, SITE);
    heap_fixture_free(0x1000);
    ck_assert_uint_eq(heap_fixture_audit(), 1);
    heap_recorder_clear();
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    heap_fixture_audit_filter();
    heap_fixture_start(MIB);
    heap_fixture_add(0x2000, 1, SITE);
    ck_assert_uint_eq(heap_fixture_audit(), 1);
    ck_assert_uint_eq(stats_get(STAT_HEAP_MISSED_FREES), 0);
}
END_TEST

START_TEST(a_stack_is_alike_to_window_and_live_heap)
{
    enum { STACKS = 3000, FRAMES = 40 };
    struct intern_table windows;
    struct counted_table live;
    struct rng rng = {_i + 1};
    static uint64_t keys[STACKS][FRAMES + 1];
    static uint32_t words[STACKS], refs[STACKS];
    static struct intern_entry *entries[STACKS];
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(intern_create(&windows, 8 * MIB, 16384), 0);
    ck_assert_int_eq(counted_create(&live, 8 * MIB), 0);
    for (int i = 0; i < STACKS; i++) {
        /* Few frames of few values: a good part of them are the same stack. */
        words[i] = 1 + (uint32_t)(rng_next(&rng) % (i % 2 ? 4 : FRAMES));
        for (uint32_t k = 0; k < words[i]; k++)
            keys[i][k] = rng_next(&rng) % (i % 2 ? 3 : 1000000);
        demand(entries[i] = intern(&windows, keys[i], words[i], 0));
        demand(refs[i] = counted_hold(&live, keys[i], words[i]));
        const struct counted_entry *entry = counted_at(&live, refs[i]);
        demand(entry->words == entries[i]->words);
        demand(memcmp(entry->key, entries[i]->data, words[i] * sizeof(uint64_t)) == 0);
        demand(entries[i]->hash == (uint32_t)(intern_hash(keys[i], words[i]) >> 32));
        demand(entry->hash == (uint32_t)intern_hash(keys[i], words[i]));
    }
    uint32_t pairs = 0;
    for (int i = 0; i < STACKS; i++)
        for (int k = 0; k < i; k++) {
            demand((entries[i] == entries[k]) == (refs[i] == refs[k]));
            pairs += refs[i] == refs[k];
        }
    ck_assert_uint_gt(pairs, STACKS);
    counted_destroy(&live);
    intern_destroy(&windows);
}
END_TEST

START_TEST(a_key_goes_with_its_last_reference)
{
    struct counted_table table;
    uint64_t key[COUNTED_WORDS_MAX + 1] = {1, 2, 3};
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(counted_create(&table, 2 * MIB), 0);
    uint32_t ref = counted_hold(&table, key, 3);
    ck_assert_uint_eq(counted_hold(&table, key, 3), ref);
    counted_share(&table, ref);
    ck_assert_uint_eq(counted_at(&table, ref)->count, 3);
    for (int i = 0; i < 2; i++)
        counted_drop(&table, ref);
    ck_assert_uint_eq(counted_at(&table, ref)->count, 1);
    ck_assert_uint_gt(counted_fill(&table, key, 3), 0);
    counted_drop(&table, ref);
    ck_assert_uint_eq(counted_fill(&table, key, 3), 0);
    /* A busy shard: the next one serves, and the dead wait. */
    uint32_t home = (ref - 1) / table.rooms;
    ref = counted_hold(&table, key, 3);
    table.shards[home].lock = 1;
    uint32_t other = counted_hold(&table, key, 3);
    ck_assert_uint_ne(other, 0);
    ck_assert_uint_ne(other, ref);
    counted_drop(&table, ref);
    ck_assert_uint_eq(table.shards[home].dead, ref);
    ck_assert_uint_eq(counted_drain(&table), 0);
    table.shards[home].lock = 0;
    ck_assert_uint_eq(counted_drain(&table), 1);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        table.shards[i].lock = 1;
    ck_assert_uint_eq(counted_hold(&table, key, 3), 0);
    counted_reset_in_child(&table);
    ck_assert_uint_eq(counted_at(&table, other)->key[2], 3);
    counted_drop(&table, other);
    ck_assert_uint_ne(counted_hold(&table, key, COUNTED_WORDS_MAX), 0);
    ck_assert_uint_eq(counted_hold(&table, key, COUNTED_WORDS_MAX + 1), 0);
    counted_destroy(&table);
}
END_TEST

/* Keys of all sizes come and go, in an order drawn at random. */
START_TEST(keys_come_and_go)
{
    enum { KEYS = 400, ROUNDS = 200000 };
    struct counted_table table;
    struct rng rng = {5};
    static uint32_t refs[KEYS];
    static uint64_t key[COUNTED_WORDS_MAX];
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(counted_create(&table, MIB), 0);
    uint32_t refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t which = (uint32_t)(rng_next(&rng) % KEYS);
        uint32_t words = 1 + which * 2;
        if (refs[which]) {
            demand(counted_at(&table, refs[which])->words == words);
            for (uint32_t i = 0; i < words; i++)
                demand(counted_at(&table, refs[which])->key[i] == which);
            counted_drop(&table, refs[which]);
            refs[which] = 0;
            continue;
        }
        for (uint32_t i = 0; i < words; i++)
            key[i] = which;
        refs[which] = counted_hold(&table, key, words);
        refused += refs[which] == 0;
    }
    /* 400 keys of 3.3 KiB in the mean, half of them there at a time, are two thirds of it; what is
     * refused had a shard that was full. */
    ck_assert_uint_lt(refused, ROUNDS / 4);
    for (uint32_t i = 0; i < KEYS; i++)
        if (refs[i])
            counted_drop(&table, refs[i]);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        ck_assert_uint_eq(table.shards[i].in_use + table.shards[i].entries, 0);
    counted_destroy(&table);
}
END_TEST

/* ---- snapshots ---- */

START_TEST(a_snapshot_keeps_what_it_shows)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 100, SITE);
    struct heap_view view = {.by_thread = true};
    ck_assert(heap_recorder_has_changed());
    ck_assert_int_eq(heap_snapshot_prepare(&view), 0);
    ck_assert(!heap_recorder_has_changed());
    ck_assert_int_eq(heap_snapshot_prepare(&view), -EBUSY);
    heap_fixture_free(0x1000);
    ck_assert(heap_recorder_has_changed());
    for (uint32_t i = 0; i < 1000; i++) {
        heap_fixture_add(address_of(i), 1, 1000 + i);
        heap_fixture_free(address_of(i));
    }
    expect(heap_fixture_sum_of_open(SITE), 1, 100);
    heap_snapshot_finish();
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    expect(heap_fixture_sum(0), 0, 0);
}
END_TEST

static int stop_at_second(const struct heap_row *row, void *data)
{
    (void)row;
    return ++*(int *)data == 2 ? -EIO : 0;
}

static int refuse_after = 0;

static bool refuse_memory(long number, const long args[6], long *result)
{
    (void)args;
    if ((number != SYS_mmap && number != SYS_mremap) || refuse_after-- > 0)
        return false;
    *result = -ENOMEM;
    return true;
}

START_TEST(a_snapshot_that_fails_is_over)
{
    heap_fixture_start(4 * MIB);
    for (uint32_t i = 0; i < 3000; i++)
        heap_fixture_add(address_of(i), 1, 1000 + i);
    int rows = 0;
    ck_assert_int_eq(heap_snapshot_prepare(&(struct heap_view){0}), 0);
    ck_assert_int_eq(heap_snapshot_each(stop_at_second, &rows), -EIO);
    heap_snapshot_finish();
    /* Both the rows' memory and the map's, at their first and at a later growth. */
    refuse_after = _i;
    sys_override = refuse_memory;
    ck_assert_int_eq(heap_snapshot_prepare(&(struct heap_view){0}), -ENOMEM);
    sys_override = NULL;
    ck_assert_uint_eq(heap_fixture_audit(), 3000);
    expect(heap_fixture_sum(0), 3000, 3000);
}
END_TEST

struct seen {
    uint32_t rows;
    uint64_t age_s, bytes, objects;
};

static int see(const struct heap_row *row, void *data)
{
    struct seen *seen = data;
    seen->rows++;
    seen->age_s += row->age_s;
    seen->bytes += row->bytes;
    seen->objects += row->values.count >> RECORD_FRACTION_BITS;
    return 0;
}

static struct seen view_of(struct heap_view view)
{
    struct seen seen = {0};
    ck_assert_int_eq(heap_snapshot_prepare(&view), 0);
    ck_assert_int_eq(heap_snapshot_each(see, &seen), 0);
    heap_snapshot_finish();
    return seen;
}

START_TEST(age_and_size_are_rows_of_their_own)
{
    struct rng rng = {1};
    struct {
        uint64_t words[2];
    } stack = {{1, SITE}};
    static const struct {
        size_t size;
        uint32_t born_s;
    } blocks[] = {{100, 990}, {110, 992}, {100, 999}, {100, 1000}};
    heap_fixture_start(MIB);
    for (uint32_t i = 0; i < ARRAY_SIZE(blocks); i++)
        heap_recorder_add(&(struct heap_sample){.pointer = (const void *)address_of(i),
                                                .size = blocks[i].size,
                                                .weight = (uint64_t)1 << RECORD_FRACTION_BITS,
                                                .stack = (const void *)&stack,
                                                .frames = 1,
                                                .now_s = blocks[i].born_s},
                          &rng);
    struct seen seen = view_of((struct heap_view){.now_s = 1000});
    ck_assert_uint_eq(seen.rows, 1);
    ck_assert_uint_eq(seen.objects, 4);
    seen = view_of((struct heap_view){.now_s = 1000, .by_age = true});
    ck_assert_uint_eq(seen.rows, 3); /* 8 for two of them, 1, 0 */
    ck_assert_uint_eq(seen.age_s, 9);
    seen = view_of((struct heap_view){.now_s = 1000, .by_size = true});
    ck_assert_uint_eq(seen.rows, 1);
    ck_assert_uint_eq(seen.bytes, 112);
    seen = view_of((struct heap_view){.now_s = 1000, .by_age = true, .min_age_s = 1});
    ck_assert_uint_eq(seen.objects, 3);
    /* Clocks of two processors: a block is not younger than new. */
    seen = view_of((struct heap_view){.now_s = 900, .by_age = true});
    ck_assert_uint_eq(seen.age_s, 0);
    ck_assert_uint_eq(seen.objects, 4);
}
END_TEST

START_TEST(size_classes_are_four_a_doubling)
{
    static const uint64_t pairs[][2] = {{0, 16},      {16, 16},    {17, 20}, {32, 32},
                                        {33, 40},     {40, 40},    {41, 48}, {1025, 1280},
                                        {1280, 1280}, {1281, 1536}};
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
        ck_assert_uint_eq(heap_size_class(pairs[i][0]), pairs[i][1]);
}
END_TEST

/* ---- fork ---- */

START_TEST(a_child_has_the_records_of_its_memory)
{
    heap_fixture_start(MIB);
    heap_fixture_add(0x1000, 100, SITE);
    heap_fixture_add(0x2000, 30, SITE + 1);
    /* A snapshot is open, at a record; a shard is busy. */
    ck_assert_int_eq(heap_snapshot_prepare(&(struct heap_view){0}), 0);
    heap.pinned = 1;
    ck_assert(heap_record_pin(heap_pool_at(&heap.pool, 1)));
    uint32_t busy = (heap_pool_at(&heap.pool, 1)->stack - 1) / heap.keys.rooms;
    if (_i)
        heap_fixture_free(0x1000);
    heap.keys.shards[busy].lock = 1;
    pid_t child = fork();
    if (child == 0) {
        heap_snapshot_reset_in_child();
        bool good = heap_fixture_sum(SITE).objects == (_i ? 0 : 1) &&
                    heap_fixture_sum(SITE + 1).bytes == 30;
        heap_fixture_free(0x2000);
        heap_fixture_add(0x3000, 5, SITE + 2);
        good =
            good && heap_fixture_sum(0).objects == (_i ? 1 : 2) && heap.keys.shards[busy].lock == 0;
        _exit(good ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_recorder");
    TCase *tcase = tcase_create("records");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_was_allocated_lives_until_it_is_freed);
    tcase_add_test(tcase, a_failed_realloc_leaves_the_record_as_it_was);
    tcase_add_test(tcase, an_occupied_address_shows_a_missed_free);
    tcase_add_test(tcase, the_table_grows_and_loses_nothing);
    tcase_add_test(tcase, near_the_end_samples_are_thinned);
    tcase_add_test(tcase, stacks_without_end_are_thinned_and_dropped_with_a_word);
    tcase_add_test(tcase, one_in_n_samples_stands_for_n);
    tcase_add_test(tcase, nothing_is_added_after_a_stop_and_frees_go_on);
    tcase_add_loop_test(tcase, a_stack_is_alike_to_window_and_live_heap, 0, 3);
    tcase_add_test(tcase, a_key_goes_with_its_last_reference);
    tcase_add_test(tcase, keys_come_and_go);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("snapshots");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_snapshot_keeps_what_it_shows);
    tcase_add_loop_test(tcase, a_snapshot_that_fails_is_over, 0, 3);
    tcase_add_test(tcase, age_and_size_are_rows_of_their_own);
    tcase_add_test(tcase, size_classes_are_four_a_doubling);
    tcase_add_loop_test(tcase, a_child_has_the_records_of_its_memory, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
