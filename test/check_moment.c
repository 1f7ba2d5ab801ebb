/* Moments: the work is called when it is due, and only then. */
#include "test/check.h"

#include <pthread.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/thread/moment.h"

static uint32_t worked;
static bool was_clean;

static void work(bool clean)
{
    store_relaxed(&was_clean, clean);
    add_relaxed(&worked, 1);
}

START_TEST(at_first_nothing_is_due)
{
    ck_assert_uint_eq(moment_due_ns, UINT64_MAX);
    ck_assert(moment_work == NULL);
    moment_pass(true);
    moment_work = work;
    moment_pass(true);
    ck_assert_uint_eq(worked, 0);
}
END_TEST

START_TEST(work_is_called_from_its_time_on)
{
    moment_work = work;
    moment_due_ns = clock_monotonic_ns() + 3600 * NS_PER_SEC;
    moment_pass(true);
    ck_assert_uint_eq(worked, 0);
    moment_due_ns = clock_monotonic_ns();
    moment_pass(true);
    ck_assert_uint_eq(worked, 1);
    ck_assert(was_clean);
    moment_pass(false);
    ck_assert_uint_eq(worked, 2);
    ck_assert(!was_clean);
    worked = 1;
    /* The work itself says when it is due again. */
    moment_pass(true);
    ck_assert_uint_eq(worked, 2);
}
END_TEST

static void work_and_set_off(bool clean)
{
    work(clean);
    moment_due_ns = UINT64_MAX;
}

START_TEST(work_can_be_made_due)
{
    moment_work = work_and_set_off;
    for (uint32_t i = 1; i <= 3; i++) {
        moment_set_due_now();
        moment_pass(true);
        moment_pass(true);
        ck_assert_uint_eq(worked, i);
    }
}
END_TEST

START_TEST(without_work_nothing_is_called)
{
    moment_set_due_now();
    moment_pass(true);
    ck_assert_uint_eq(worked, 0);
}
END_TEST

/* The end of the process takes the work away while others pass moments. */
enum { PASSES = 200000, PASSERS = 2 };
static uint32_t passing = PASSERS;

static void *pass(void *argument)
{
    for (int i = 0; i < PASSES; i++)
        moment_pass(true);
    add_relaxed(&passing, -1);
    return argument;
}

START_TEST(work_may_be_taken_away_at_any_time)
{
    pthread_t threads[PASSERS];
    moment_set_due_now();
    for (int i = 0; i < PASSERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pass, NULL), 0);
    while (load_relaxed(&passing)) {
        store_release(&moment_work, work);
        store_release(&moment_work, NULL);
    }
    for (int i = 0; i < PASSERS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("moment");
    TCase *moments = tcase_create("moments");
    tcase_set_timeout(moments, 60);
    tcase_add_test(moments, at_first_nothing_is_due);
    tcase_add_test(moments, work_is_called_from_its_time_on);
    tcase_add_test(moments, work_can_be_made_due);
    tcase_add_test(moments, without_work_nothing_is_called);
    tcase_add_test(moments, work_may_be_taken_away_at_any_time);
    suite_add_tcase(suite, moments);
    return suite;
}
