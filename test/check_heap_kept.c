/* Live heaps that are kept: they show what was live then, whatever becomes of its blocks, and a
 * failure or a fork at any step leaves the one before or the new one, whole. */
#include "test/check.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/record/heap_kept.h"
#include "agent/record/heap_tables.h"
#include "agent/record/model_step.h"
#include "test/demand.h"
#include "test/heap_fixture.h"

enum { MIB = 1 << 20, SITE = 7, BLOCKS = 5, SIZE = 100 };

static const struct heap_view view = {.by_thread = true};

static int add_bytes(const struct heap_row *row, void *sum)
{
    demand(row->count == 1 && row->pcs[0] >= SITE);
    *(uint64_t *)sum += row->values.amount >> RECORD_AMOUNT_BITS_ALLOC;
    return 0;
}

static int add_site(const struct heap_row *row, void *sum)
{
    *(uint64_t *)sum += row->pcs[0] - SITE;
    return 0;
}

static uint64_t bytes_of(enum heap_kept_which which)
{
    uint64_t sum = 0;
    demand(heap_kept_each(which, add_bytes, &sum) == 0);
    return sum;
}

/* A stack for each block, blocks [from, to). */
static void add_blocks(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        heap_fixture_add(0x10000 + i * 4112, SIZE, SITE + i);
}

static void free_blocks(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        heap_fixture_free(0x10000 + i * 4112);
}

static void expect_no_key(void)
{
    for (int i = 0; i < COUNTED_SHARDS; i++)
        ck_assert_uint_eq(heap.keys.shards[i].entries, 0);
}

START_TEST(it_stays_what_it_was)
{
    struct heap_kept_facts facts;
    heap_fixture_start(MIB);
    ck_assert(!heap_kept_facts(HEAP_MARK, &facts));
    ck_assert_uint_eq(bytes_of(HEAP_MARK), 0);
    size_t reserved = arena_reserved();
    add_blocks(0, BLOCKS);
    ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
    free_blocks(0, BLOCKS);
    ck_assert_uint_eq(heap_fixture_sum(0).objects, 0);
    add_blocks(100, 103);
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 0), 0);
    free_blocks(100, 103);
    add_blocks(200, 400); /* which would take the room of stacks that went */
    ck_assert_uint_eq(bytes_of(HEAP_MARK), BLOCKS * SIZE);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 3 * SIZE);
    uint64_t sites = 0;
    ck_assert_int_eq(heap_kept_each(HEAP_PEAK, add_site, &sites), 0);
    ck_assert_uint_eq(sites, 100 + 101 + 102);
    ck_assert(heap_kept_facts(HEAP_MARK, &facts));
    ck_assert_uint_eq(facts.bytes, BLOCKS * SIZE);
    ck_assert_uint_eq(facts.records, BLOCKS);
    /* The next one takes its place. */
    free_blocks(200, 400);
    add_blocks(0, 2);
    ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
    ck_assert_uint_eq(bytes_of(HEAP_MARK), 2 * SIZE);
    free_blocks(0, 2);
    heap_kept_drop(HEAP_MARK);
    heap_kept_drop(HEAP_PEAK);
    heap_kept_drop(HEAP_PEAK);
    ck_assert(!heap_kept_facts(HEAP_PEAK, &facts));
    ck_assert_uint_eq(heap_fixture_audit(), 0);
    expect_no_key();
    ck_assert_uint_eq(arena_reserved(), reserved);
}
END_TEST

START_TEST(what_fails_leaves_the_one_before)
{
    heap_fixture_start(MIB);
    add_blocks(0, BLOCKS);
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 0), 0);
    add_blocks(BLOCKS, 2 * BLOCKS);
    arena_set_budget(0);
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 0), -ENOMEM);
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(heap_snapshot_prepare(&view), 0);
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 0), -EBUSY);
    ck_assert_uint_eq(heap_fixture_sum_of_open(0).objects, 2 * BLOCKS);
    heap_snapshot_finish();
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 2 * BLOCKS * SIZE + 1), -EAGAIN);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), BLOCKS * SIZE);
    ck_assert_int_eq(heap_kept_take(HEAP_PEAK, &view, 2 * BLOCKS * SIZE), 0);
    ck_assert_uint_eq(bytes_of(HEAP_PEAK), 2 * BLOCKS * SIZE);
    heap_kept_drop(HEAP_PEAK);
    ck_assert_uint_eq(heap_fixture_audit(), 2 * BLOCKS);
}
END_TEST

START_TEST(a_window_still_shows_what_changed)
{
    heap_fixture_start(MIB);
    add_blocks(0, 1);
    ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
    ck_assert(heap_recorder_has_changed());
    ck_assert_uint_eq(heap_fixture_sum(0).objects, 1);
    ck_assert(!heap_recorder_has_changed());
    ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
    ck_assert(!heap_recorder_has_changed());
}
END_TEST

START_TEST(the_estimate_follows_each_block)
{
    heap_fixture_start(MIB);
    add_blocks(0, BLOCKS);
    ck_assert_uint_eq(heap_recorder_inuse(), BLOCKS * SIZE);
    free_blocks(0, 2);
    ck_assert_uint_eq(heap_recorder_inuse(), (BLOCKS - 2) * SIZE);
    ck_assert_uint_eq(heap_recorder_highest(), BLOCKS * SIZE);
    heap_recorder_forget_highest();
    ck_assert_uint_eq(heap_recorder_highest(), (BLOCKS - 2) * SIZE);
    struct heap_hold hold = heap_recorder_hold((const void *)(0x10000 + 2 * 4112));
    heap_recorder_settle(&hold, true);
    ck_assert_uint_eq(heap_recorder_inuse(), (BLOCKS - 2) * SIZE);
    heap_recorder_clear();
    ck_assert_uint_eq(heap_recorder_inuse(), 0);
}
END_TEST

/* ---- fork ---- */

static int steps_to_fork;
static pid_t child;
static uint32_t stacks[2 * BLOCKS];

static void fork_at_step(const void *place)
{
    (void)place;
    if (steps_to_fork == 0 || --steps_to_fork > 0)
        return;
    child = fork();
    if (child != 0)
        return;
    model_step = NULL;
    heap_snapshot_reset_in_child();
    heap_kept_reset_in_child();
    uint64_t bytes = bytes_of(HEAP_MARK);
    demand(bytes == BLOCKS * SIZE || bytes == 2 * BLOCKS * SIZE);
    /* Each reference is there once: when all holders have dropped theirs, there is none, but for
     * the one that the fork came upon. */
    free_blocks(0, 2 * BLOCKS);
    heap_kept_drop(HEAP_MARK);
    uint32_t left = 0;
    for (int i = 0; i < 2 * BLOCKS; i++)
        left += counted_at(&heap.keys, stacks[i])->count & ~COUNTED_QUEUED;
    demand(left <= 1);
    /* And another can be taken. */
    add_blocks(0, 1);
    demand(heap_kept_take(HEAP_MARK, &view, 0) == 0);
    demand(bytes_of(HEAP_MARK) == SIZE);
    _exit(0);
}

START_TEST(a_fork_at_any_step_leaves_one_or_the_other)
{
    int forks = 0;
    heap_fixture_start(MIB);
    add_blocks(0, 2 * BLOCKS);
    for (uint32_t i = 0; i < 2 * BLOCKS; i++)
        stacks[i] = heap_pool_at(&heap.pool, i + 1)->stack;
    do {
        int status;
        free_blocks(BLOCKS, 2 * BLOCKS);
        ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
        add_blocks(BLOCKS, 2 * BLOCKS);
        for (uint32_t ref = 1; ref <= heap.pool.bump; ref++)
            stacks[ref - 1] = heap_pool_at(&heap.pool, ref)->stack;
        child = 0;
        steps_to_fork = ++forks;
        model_step = fork_at_step;
        ck_assert_int_eq(heap_kept_take(HEAP_MARK, &view, 0), 0);
        model_step = NULL;
        if (child) {
            ck_assert_int_eq(waitpid(child, &status, 0), child);
            ck_assert_msg(status == 0, "forked at step %d: status %#x", forks, (unsigned)status);
        }
        ck_assert_uint_eq(bytes_of(HEAP_MARK), 2 * BLOCKS * SIZE);
    } while (child);
    ck_assert_int_gt(forks, 4 * BLOCKS);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_kept");
    TCase *tcase = tcase_create("kept live heaps");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, it_stays_what_it_was);
    tcase_add_test(tcase, what_fails_leaves_the_one_before);
    tcase_add_test(tcase, a_window_still_shows_what_changed);
    tcase_add_test(tcase, the_estimate_follows_each_block);
    tcase_add_test(tcase, a_fork_at_any_step_leaves_one_or_the_other);
    suite_add_tcase(suite, tcase);
    return suite;
}
