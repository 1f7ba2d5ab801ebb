/* The live heap by itself: what it holds, what it says when it is full, and that its snapshot keeps
 * what it shows. Orders of events are check_heap_model.c's, threads check_heap_stress.c's. */
#include "test/check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

START_TEST(a_page_knows_its_only_record)
{
    enum { PAGE = 1 << HEAP_FILTER_PAGE_BITS, STEP = 16, MANY = 300 };
    const uintptr_t page = 0x10000;
    heap_fixture_start(MIB);
    for (uintptr_t at = 0; at < PAGE; at += STEP) {
        heap_fixture_add(page + at, 1, SITE);
        for (uintptr_t other = 0; other < PAGE; other += STEP)
            ck_assert_int_eq(heap_filter_has(page + other),
                             other >> HEAP_FILTER_PLACE_BITS == at >> HEAP_FILTER_PLACE_BITS);
        ck_assert(!heap_may_be_recorded((const void *)(page + PAGE)));
        ck_assert(!heap_may_be_recorded((const void *)(page - 1)));
        heap_fixture_free(page + at);
        ck_assert(!heap_may_be_recorded((const void *)(page + at)));
    }
    /* Of more, it knows that there are some. */
    heap_fixture_add(page + 64, 1, SITE);
    heap_fixture_add(page + 256, 1, SITE);
    ck_assert(heap_filter_has(page + 64) && heap_filter_has(page + 256));
    heap_fixture_free(page + 64);
    ck_assert(heap_filter_has(page + 256) && !heap_filter_has(page + 64));
    heap_fixture_free(page + 256);
    /* More than it can count: it is looked up from then on. */
    for (uintptr_t i = 0; i < MANY; i++)
        heap_fixture_add(page + i * STEP, 1, SITE);
    heap_fixture_audit_filter();
    for (uintptr_t i = 0; i < MANY; i++)
        heap_fixture_free(page + i * STEP);
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    ck_assert(heap_may_be_recorded((const void *)page) && heap_filter_has(page));
    heap_fixture_add(page, 1, SITE);
    heap_fixture_free(page);
    ck_assert_uint_eq(heap_fixture_audit(), 0);
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
 * probability p and weight 1/p, the sum's variance is n (1/p - 1). Of the last quarter of some
 * 11,000 records each fifteenth has half the p of the one before, so that 30,000 blocks end at p =
 * 2^-6, and 300,000 at 2^-10: a standard error of 1,000, and of 14,000; six of them, as in 2e-9 of
 * runs. */
START_TEST(near_the_end_samples_are_thinned)
{
    static const uint32_t blocks[] = {30000, 300000}, errors[] = {1000, 14000};
    const uint32_t count = blocks[_i], most = 6 * errors[_i];
    heap_fixture_start(MIB);
    ck_assert_uint_gt(heap.pool.size, 10000);
    ck_assert_uint_lt(heap.pool.size, 13000);
    for (uint32_t i = 0; i < count; i++)
        heap_fixture_add(address_of(i), 10, SITE);
    ck_assert_uint_gt(stats_get(STAT_HEAP_THINNED), 0);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED), 0);
    struct heap_sum sum = heap_fixture_sum(0);
    ck_assert_uint_eq(sum.bytes, sum.objects * 10);
    ck_assert_uint_gt(sum.objects, count - most);
    ck_assert_uint_lt(sum.objects, count + most);
    ck_assert_uint_lt(heap_fixture_audit(), heap.pool.size);
}
END_TEST

/* A stack for each block: their room is what ends. */
START_TEST(stacks_without_room_are_folded_and_their_sums_stay)
{
    heap_fixture_start(MIB);
    uint32_t added = 0;
    for (; added < 2000000 && stats_get(STAT_HEAP_TRUNCATED) < 1000; added++)
        heap_fixture_add(address_of(added), 10, 1000 + added);
    /* One that is there already is told as before. */
    for (uint32_t k = 0; k < 100; k++, added++)
        heap_fixture_add(address_of(added), 10, 1000);
    ck_assert_uint_eq(stats_get(STAT_HEAP_TRUNCATED), 1000);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED) + stats_get(STAT_HEAP_THINNED), 0);
    ck_assert_uint_eq(heap_fixture_audit(), added);
    expect(heap_fixture_sum(0), added, (uint64_t)added * 10);
    expect(heap_fixture_sum(1000), 101, 1010);
    expect(heap_fixture_sum(PSEUDO_TRUNCATED), 1000, 10000);
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
    tcase_add_test(tcase, a_page_knows_its_only_record);
    tcase_add_test(tcase, a_failed_realloc_leaves_the_record_as_it_was);
    tcase_add_test(tcase, an_occupied_address_shows_a_missed_free);
    tcase_add_test(tcase, the_table_grows_and_loses_nothing);
    tcase_add_loop_test(tcase, near_the_end_samples_are_thinned, 0, 2);
    tcase_add_test(tcase, stacks_without_room_are_folded_and_their_sums_stay);
    tcase_add_test(tcase, one_in_n_samples_stands_for_n);
    tcase_add_test(tcase, nothing_is_added_after_a_stop_and_frees_go_on);
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
