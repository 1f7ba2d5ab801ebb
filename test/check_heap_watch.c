/* When the live heap is kept, and what a flush makes of it when something fails: a peak is taken
 * anew when it has grown by a twentieth, not before and not too often; what could not be done is in
 * the profile, and the rest of it too. */
#include "test/check.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/flush.h"
#include "agent/heap_watch.h"
#include "agent/record/heap_kept.h"
#include "agent/record/heap_tables.h"
#include "test/flush_fixture.h"
#include "test/heap_fixture.h"
#include "test/temp_folder.h"

enum { MIB = 1 << 20, SITE = 7, SIZE = 100 };

static void setup(void)
{
    flush_fixture_start();
    options.profiles = PROFILE_ALLOC | PROFILE_HEAP; /* one file a window */
    heap_fixture_start(16 * (size_t)MIB);
}

static void teardown(void)
{
    temp_folder_remove(flush_folder);
}

static uintptr_t address_of(uint32_t number)
{
    return 0x7f0000000000 + (uintptr_t)number * 4112;
}

static uint32_t added;

static void add(uint32_t blocks, size_t size)
{
    for (uint32_t i = 0; i < blocks; i++)
        heap_fixture_add(address_of(added++), size, SITE);
}

static void free_last(uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++)
        heap_fixture_free(address_of(--added));
}

static uint64_t bytes_of(enum heap_kept_which which)
{
    struct heap_kept_facts facts = {.bytes = 0};
    heap_kept_facts(which, &facts);
    return facts.bytes;
}

/* ---- the peak ---- */

static void start_peaks(void)
{
    options.profiles |= PROFILE_HEAP_PEAK;
    heap_watch_start(true);
}

START_TEST(a_peak_is_taken_anew_when_it_grew_by_a_twentieth)
{
    start_peaks();
    heap_watch_look(true);
    ck_assert(!heap_watch_has_peak());
    add(100, SIZE);
    ck_assert_uint_le(heap_watch_due_ns(), clock_monotonic_ns());
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 100 * SIZE);
    /* By 5 % and no more. */
    add(5, SIZE);
    ck_assert_uint_eq(heap_watch_due_ns(), UINT64_MAX);
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 100 * SIZE);
    add(1, 1);
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 105 * SIZE + 1);
    /* What is lower than it was is none. */
    free_last(80);
    add(70, SIZE);
    ck_assert_uint_eq(heap_watch_due_ns(), UINT64_MAX);
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 105 * SIZE + 1);
}
END_TEST

/* A heap that grows by one block after the other to 20,000: a snapshot for each 5 %, so at most
 * log(20000) / log(1.05), and after each look what is kept is within 5 %. */
START_TEST(a_heap_that_grows_costs_a_few_snapshots)
{
    enum { BLOCKS = 20000 };
    int taken = 0;
    start_peaks();
    for (uint64_t before = 0; added < BLOCKS;) {
        add(1, SIZE);
        heap_watch_look(true);
        uint64_t bytes = bytes_of(HEAP_PEAK);
        ck_assert_uint_ge(bytes * 105, (uint64_t)added * SIZE * 100);
        taken += bytes != before;
        before = bytes;
    }
    ck_assert_int_gt(taken, 100);
    ck_assert_double_le(taken, 1 + log(BLOCKS) / log(1.05));
}
END_TEST

static void sleep_until(uint64_t time_ns)
{
    struct timespec time = {(time_t)(time_ns / NS_PER_SEC), (long)(time_ns % NS_PER_SEC)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

/* At a flush there is always one. */
START_TEST(between_two_peaks_is_a_pause)
{
    start_peaks();
    add(100, SIZE);
    uint64_t before = clock_monotonic_ns();
    heap_watch_look(false);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 100 * SIZE);
    add(100, SIZE);
    uint64_t due = heap_watch_due_ns();
    ck_assert_uint_ge(due, before + 10 * NS_PER_MS);
    heap_watch_look(false);
    if (clock_monotonic_ns() < due)
        ck_assert_uint_eq(bytes_of(HEAP_PEAK), 100 * SIZE);
    sleep_until(due);
    heap_watch_look(false);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 200 * SIZE);
    add(100, SIZE);
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 300 * SIZE);
}
END_TEST

/* ---- marks ---- */

START_TEST(a_mark_comes_when_it_is_due_and_once)
{
    options.heap_mark_ns = 20 * NS_PER_MS;
    heap_watch_start(true);
    ck_assert(!heap_watch_has_growth());
    add(1, SIZE);
    uint64_t due = heap_watch_due_ns();
    ck_assert_uint_lt(due, UINT64_MAX);
    sleep_until(due);
    heap_watch_look(false);
    ck_assert(heap_watch_has_growth());
    ck_assert_uint_eq(bytes_of(HEAP_MARK), SIZE);
    ck_assert_uint_eq(heap_watch_due_ns(), UINT64_MAX);
    add(1, SIZE);
    heap_watch_look(true);
    ck_assert_uint_eq(bytes_of(HEAP_MARK), SIZE);
    ck_assert_int_eq(heap_watch_mark(), 0);
    ck_assert_uint_eq(bytes_of(HEAP_MARK), 2 * SIZE);
}
END_TEST

START_TEST(what_fails_leaves_the_mark_before_and_is_counted)
{
    heap_watch_start(true);
    add(1, SIZE);
    ck_assert_int_eq(heap_watch_mark(), 0);
    add(1, SIZE);
    arena_set_budget(0);
    ck_assert_int_eq(heap_watch_mark(), -ENOMEM);
    arena_set_budget(SIZE_MAX);
    ck_assert_uint_eq(bytes_of(HEAP_MARK), SIZE);
    ck_assert_uint_eq(stats_get(STAT_HEAP_SNAPSHOTS_FAILED), 1);
    heap_recorder_stop();
    ck_assert_int_eq(heap_watch_mark(), -ENODATA);
}
END_TEST

/* ---- flushes ---- */

START_TEST(a_window_without_its_live_heap_says_so_and_has_the_rest)
{
    add(3, SIZE);
    ck_assert_int_eq(heap_snapshot_prepare(&(struct heap_view){0}), 0);
    flush_add_sample(RECORD_ALLOC, 50);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *heap = flush_read("heap");
    ck_assert_int_eq(profile_total(heap, ALLOC_BYTES), 50);
    ck_assert_int_eq(profile_total(heap, LIVE_BYTES), 0);
    ck_assert(profile_has_comment(heap, "libagent: live heap: snapshots that failed: 1"));
    /* The open one is another's, and is still open. */
    ck_assert_uint_eq(heap_fixture_sum_of_open(SITE).objects, 3);
    heap_snapshot_finish();
    flush_forget_files();
    add(1, SIZE);
    ck_assert_int_eq(flush_window(false), 1);
    heap = flush_read("heap");
    ck_assert_int_eq(profile_total(heap, LIVE_BYTES), 4 * SIZE);
    ck_assert_int_eq(profile_figure(heap, "live heap: snapshots that failed"), 0);
}
END_TEST

/* While another writes to each part of the table of stacks there is no room for a new one. */
START_TEST(a_stack_without_room_is_told)
{
    add(1, SIZE);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        heap.keys.shards[i].lock = 1;
    heap_fixture_add(address_of(1000), SIZE, SITE + 1);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        heap.keys.shards[i].lock = 0;
    flush_add_sample(RECORD_ALLOC, 50);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *profile = flush_read("heap");
    ck_assert_int_eq(profile_total(profile, LIVE_OBJECTS), 2);
    ck_assert_int_eq(profile_under(profile, LIVE_BYTES, "libagent truncated"), SIZE);
    ck_assert_int_eq(
        profile_figure(profile, "live heap: samples whose stack had no room: libagent truncated"),
        1);
    ck_assert_uint_eq(heap_fixture_audit(), 2);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_watch");
    TCase *tcase = tcase_create("peaks and marks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_peak_is_taken_anew_when_it_grew_by_a_twentieth);
    tcase_add_test(tcase, a_heap_that_grows_costs_a_few_snapshots);
    tcase_add_test(tcase, between_two_peaks_is_a_pause);
    tcase_add_test(tcase, a_mark_comes_when_it_is_due_and_once);
    tcase_add_test(tcase, what_fails_leaves_the_mark_before_and_is_counted);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("flushes");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_window_without_its_live_heap_says_so_and_has_the_rest);
    tcase_add_test(tcase, a_stack_without_room_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
