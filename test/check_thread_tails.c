/* What short threads used after their last samples: kept by kind, given to first samples, told. */
#include "test/check.h"

#include <pthread.h>
#include <string.h>

#include "agent/sched/cpu_sample.h"
#include "agent/sched/thread_tails.h"
#include "test/record_fixture.h"

enum { INTERVAL_US = 10000, ROUTINE = 4711, OTHER = 815 };

static struct thread_slot *thread_of(uint64_t routine, const char *name)
{
    struct thread_slot *slot = thread_prepare(routine, NULL);
    strcpy(slot->label.name, name);
    slot->interval_us = INTERVAL_US;
    return slot;
}

struct told {
    uint64_t all, of_routine, named;
};
static struct told told;

static void tell(const struct thread_label *label, uint64_t routine, uint64_t amount_ns)
{
    ck_assert_uint_eq(label->tid, 0);
    told.all += amount_ns;
    told.of_routine += routine == ROUTINE ? amount_ns : 0;
    told.named += strcmp(label->name, "a") == 0 ? amount_ns : 0;
}

static void start(void)
{
    fixture_start((size_t)32 << 20);
    thread_tails_start();
}

START_TEST(each_kind_has_its_own)
{
    start();
    const struct thread_slot *a = thread_of(ROUTINE, "a"), *b = thread_of(ROUTINE, "b"),
                             *other = thread_of(OTHER, "a");
    ck_assert_uint_eq(thread_tails_take(a, 1), 0);
    ck_assert(thread_tails_add(a, 100));
    ck_assert(thread_tails_add(b, 1000));
    ck_assert(thread_tails_add(a, 20));
    ck_assert_uint_eq(thread_tails_take(other, 1), 0);
    ck_assert_uint_eq(thread_tails_take(a, 90), 90);
    ck_assert_uint_eq(thread_tails_take(a, 90), 30);
    ck_assert_uint_eq(thread_tails_take(a, 90), 0);
    ck_assert(thread_tails_add(a, 5));
    ck_assert(thread_tails_add(other, 7));
    thread_tails_tell(tell);
    ck_assert_uint_eq(told.all, 1012);
    ck_assert_uint_eq(told.of_routine, 1005);
    ck_assert_uint_eq(told.named, 12);
    ck_assert_uint_eq(thread_tails_take(b, 1), 0);
    thread_tails_tell(tell);
    ck_assert_uint_eq(told.all, 1012);
}
END_TEST

START_TEST(more_kinds_than_there_is_room_for)
{
    start();
    uint64_t kept = 0;
    for (uint64_t i = 0; i < 1000; i++)
        kept += thread_tails_add(thread_of(ROUTINE + i, "a"), 1);
    ck_assert_uint_ge(kept, 10);
    ck_assert_uint_lt(kept, 1000);
    ck_assert_uint_eq(thread_tails_take(thread_of(ROUTINE, "a"), 1), 1);
    thread_tails_tell(tell);
    ck_assert_uint_eq(told.all, kept - 1);
    ck_assert(thread_tails_add(thread_of(ROUTINE + 999, "a"), 1));
}
END_TEST

enum { THREADS = 3, ROUNDS = 20000 };
static uint64_t added, taken;

static void *add_and_take(void *argument)
{
    const struct thread_slot *slot = argument;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (thread_tails_add(slot, i))
            __atomic_fetch_add(&added, i, __ATOMIC_RELAXED);
        __atomic_fetch_add(&taken, thread_tails_take(slot, i / 2), __ATOMIC_RELAXED);
    }
    return NULL;
}

START_TEST(nothing_is_lost_where_many_come_at_once)
{
    pthread_t threads[THREADS];
    start();
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add_and_take,
                                        thread_of(ROUTINE + (uint64_t)(i % 2), "a")),
                         0);
    for (int i = 0; i < 1000; i++)
        thread_tails_tell(tell);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    thread_tails_tell(tell);
    ck_assert_uint_gt(taken, 0);
    ck_assert_uint_eq(taken + told.all, added);
}
END_TEST

/* ---- whose tails are kept ---- */

static int add_amount(const struct window_row *row, void *data)
{
    ck_assert_uint_eq(row->pcs[0], PSEUDO_TAIL);
    ck_assert_uint_eq(row->pcs[1], ROUTINE);
    uint64_t *amounts = data;
    amounts[row->thread->tid != 0] += row->values.amount;
    return 0;
}

/* Those of threads that have few samples; another one's is told with its number. */
START_TEST(short_threads_alone)
{
    const uint64_t interval = INTERVAL_US * 1000ull;
    start();
    struct thread_slot *slot = thread_of(ROUTINE, "a");
    slot->label.tid = 5;
    cpu_sample_end(slot, 3 * interval);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
    slot->cpu_last_ns = 99 * interval;
    cpu_sample_end(slot, 100 * interval);
    cpu_sample_tell_ends();
    uint64_t amounts[2] = {0};
    ck_assert_int_eq(window_each(fixture_turn(), add_amount, amounts), 0);
    ck_assert_uint_eq(amounts[0], 3 * interval);
    ck_assert_uint_eq(amounts[1], interval);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_tails");
    TCase *tcase = tcase_create("tails");
    tcase_add_test(tcase, each_kind_has_its_own);
    tcase_add_test(tcase, more_kinds_than_there_is_room_for);
    tcase_add_test(tcase, nothing_is_lost_where_many_come_at_once);
    tcase_add_test(tcase, short_threads_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
