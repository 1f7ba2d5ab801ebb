/* What threads used after their last sample, and nobody saw: whose it is said to be. */
#include "test/check.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/lost_tails.h"
#include "test/record_fixture.h"

enum { INTERVAL_US = 10000, MOST_NS = 26000000 /* and four ticks */ };

static bool answer(long number, const long args[6], long *result)
{
    if (number != SYS_clock_getres || args[0] != CLOCK_MONOTONIC_COARSE)
        return false;
    *(struct timespec *)args[1] = (struct timespec){0, 4 * NS_PER_MS};
    *result = 0;
    return true;
}

static void start(void)
{
    fixture_start((size_t)32 << 20);
    sys_override = answer;
    lost_tails_start();
}

/* `count` threads end that began at `root`. */
static void end(uint64_t root, const char *name, uint32_t interval_us, int count)
{
    struct thread_slot *slot = thread_prepare(root, NULL);
    strcpy(slot->label.name, name);
    slot->interval_us = interval_us;
    while (count--)
        lost_tails_add(slot);
    thread_release_slot(slot);
}

struct wanted {
    uint64_t root;
    const char *name;
    uint64_t amount;
};

static int add_if_it_is(const struct window_row *row, void *data)
{
    struct wanted *wanted = data;
    ck_assert_uint_eq(row->pcs[0], PSEUDO_TAIL);
    ck_assert_uint_eq(row->count, 2);
    ck_assert_uint_eq(row->thread->tid, 0);
    if (row->pcs[1] == wanted->root && strcmp(row->thread->name, wanted->name) == 0)
        wanted->amount += row->values.amount;
    return 0;
}

static int is_of_two_frames(const struct window_row *row, void *unused)
{
    (void)unused;
    ck_assert_uint_eq(row->count, 3);
    ck_assert_uint_eq(row->pcs[0], PSEUDO_TAIL);
    ck_assert_uint_eq(row->pcs[1], 4711);
    ck_assert_uint_eq(row->pcs[2], 4712);
    return 0;
}

static uint64_t amount_of(const struct window *window, uint64_t root, const char *name)
{
    struct wanted wanted = {root, name, 0};
    ck_assert_int_eq(window_each(window, add_if_it_is, &wanted), 0);
    return wanted.amount;
}

START_TEST(time_is_shared_out_in_proportion)
{
    start();
    end(4711, "a", INTERVAL_US, 3);
    end(4711, "b", INTERVAL_US, 1);
    end(4712, "a", INTERVAL_US, 2);
    ck_assert_uint_eq(lost_tails_tell(600), 0);
    ck_assert(recorder_has_samples()); /* it may be all that the program did */
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_rows(window), 3);
    ck_assert_uint_eq(amount_of(window, 4711, "a"), 300);
    ck_assert_uint_eq(amount_of(window, 4711, "b"), 100);
    ck_assert_uint_eq(amount_of(window, 4712, "a"), 200);
    /* Once. */
    ck_assert_uint_eq(lost_tails_tell(600), 600);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
}
END_TEST

START_TEST(nothing_is_lost_in_rounding)
{
    start();
    end(1000, "a", INTERVAL_US, 1);
    end(1001, "a", INTERVAL_US, 1);
    end(1002, "a", INTERVAL_US, 1);
    ck_assert_uint_eq(lost_tails_tell(1000001), 0);
    ck_assert_uint_eq(fixture_total(fixture_turn(), RECORD_CPU).amount, 1000001);
}
END_TEST

START_TEST(what_cannot_be_theirs_is_not)
{
    start();
    end(4711, "a", INTERVAL_US, 2);
    ck_assert_uint_eq(lost_tails_tell(2ull * MOST_NS + 77), 77);
    ck_assert_uint_eq(amount_of(fixture_turn(), 4711, "a"), 2ull * MOST_NS);
    end(4711, "a", 0, 2); /* never had a timer */
    ck_assert_uint_eq(lost_tails_tell(77), 77);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
}
END_TEST

/* Its samples have told where it was; without any it is as one that nobody knew. It is not to have
 * the time of those that were not found: a tick at most. */
START_TEST(a_thread_that_was_found_goes_by_its_outermost_frames)
{
    start();
    struct thread_slot *slot = thread_prepare(0, NULL);
    slot->interval_us = INTERVAL_US;
    lost_tails_add(slot);
    ck_assert_uint_eq(lost_tails_tell(77), 77);
    slot->outermost[0] = 4711;
    slot->outermost[1] = 4712;
    lost_tails_add(slot);
    ck_assert_uint_eq(lost_tails_tell(14 * NS_PER_MS + 77), 77);
    struct window *window = fixture_turn();
    ck_assert_int_eq(window_each(window, is_of_two_frames, NULL), 0);
    ck_assert_uint_eq(fixture_total(window, RECORD_CPU).amount, 14 * NS_PER_MS);
}
END_TEST

START_TEST(there_is_an_end_to_the_table)
{
    start();
    for (uint64_t i = 0; i < 100; i++)
        end(1000 + i, "a", INTERVAL_US, 1);
    ck_assert_uint_eq(lost_tails_tell(100ull * MOST_NS), 36ull * MOST_NS);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 64);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("lost_tails");
    TCase *tcase = tcase_create("tails");
    tcase_add_test(tcase, time_is_shared_out_in_proportion);
    tcase_add_test(tcase, nothing_is_lost_in_rounding);
    tcase_add_test(tcase, what_cannot_be_theirs_is_not);
    tcase_add_test(tcase, a_thread_that_was_found_goes_by_its_outermost_frames);
    tcase_add_test(tcase, there_is_an_end_to_the_table);
    suite_add_tcase(suite, tcase);
    return suite;
}
