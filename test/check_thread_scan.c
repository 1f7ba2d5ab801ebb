/* The scan that finds threads whose birth was not seen, and slots whose thread is gone. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "agent/thread/left_threads.h"
#include "agent/thread/thread_scan.h"
#include "test/demand.h"
#include "test/record_fixture.h"

enum { THREADS = 5 };

static pthread_t threads[THREADS];
static int tids[THREADS];
static pthread_barrier_t barrier;
static uint32_t may_end;

static int own_tid; /* of a thread that is taken for one of the agent's */
static int adopted_tids[2 * THREADS];
static int adopted_count;

/* Unknown ones are a sanitizer's. */
static bool is_own(int tid)
{
    bool known = tid == getpid();
    for (int i = 0; i < THREADS; i++)
        known = known || tid == tids[i];
    return !known || tid == own_tid;
}

static void on_adopted(struct thread_slot *slot)
{
    ck_assert_uint_eq(slot->state, SLOT_USED);
    ck_assert_int_lt(adopted_count, ARRAY_SIZE(adopted_tids));
    adopted_tids[adopted_count++] = slot->tid;
}

static int gone_tids[THREADS];
static uint32_t gone_count;

static void on_gone(struct thread_slot *slot)
{
    ck_assert_uint_eq(slot->state, SLOT_USED);
    ck_assert_uint_lt(gone_count, ARRAY_SIZE(gone_tids));
    gone_tids[gone_count++] = slot->tid;
}

static void scan(void)
{
    thread_scan(is_own, on_adopted, on_gone);
}

static void wait_for_end(void)
{
    while (!load_acquire(&may_end))
        sys_futex_wait(&may_end, 0, 0);
}

static void *be_there(void *argument)
{
    *(int *)argument = sys_tid();
    pthread_barrier_wait(&barrier);
    wait_for_end();
    return NULL;
}

static void start_threads(void *(*routine)(void *))
{
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, routine, &tids[i]), 0);
    pthread_barrier_wait(&barrier);
}

static void end_threads(void)
{
    store_release(&may_end, 1);
    sys_futex_wake(&may_end, INT32_MAX);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int times_adopted(int tid)
{
    int times = 0;
    for (int i = 0; i < adopted_count; i++)
        times += adopted_tids[i] == tid;
    return times;
}

static uint32_t slots_of(int tid)
{
    uint32_t slots = 0;
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        slots += slot->state == SLOT_USED && slot->tid == tid;
    }
    return slots;
}

static void start(void)
{
    fixture_threads();
    ck_assert_ptr_nonnull(thread_attach(0, 0));
}

START_TEST(a_thread_without_a_slot_gets_one)
{
    start();
    start_threads(be_there);
    scan();
    ck_assert_int_eq(adopted_count, THREADS);
    scan();
    ck_assert_int_eq(adopted_count, THREADS);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(times_adopted(tids[i]), 1);
        ck_assert_uint_eq(slots_of(tids[i]), 1);
    }
    ck_assert_uint_eq(slots_of(getpid()), 1);
    end_threads();
}
END_TEST

START_TEST(a_thread_that_has_left_is_not_adopted)
{
    start();
    start_threads(be_there);
    left_threads_add(tids[1]);
    ck_assert_uint_eq(left_threads_count(), 1);
    scan();
    ck_assert_int_eq(adopted_count, THREADS - 1);
    ck_assert_int_eq(times_adopted(tids[1]), 0);
    for (int i = 0; i < 64; i++)
        left_threads_add(1);
    scan();
    ck_assert_int_eq(times_adopted(tids[1]), 1);
    end_threads();
}
END_TEST

START_TEST(the_agents_own_threads_get_none)
{
    start();
    start_threads(be_there);
    own_tid = tids[2];
    scan();
    ck_assert_int_eq(adopted_count, THREADS - 1);
    ck_assert_int_eq(times_adopted(tids[2]), 0);
    end_threads();
}
END_TEST

static void *attach_and_be_there(void *argument)
{
    thread_attach(0, 0);
    return be_there(argument);
}

START_TEST(a_thread_with_a_slot_keeps_it)
{
    start();
    start_threads(attach_and_be_there);
    scan();
    ck_assert_int_eq(adopted_count, 0);
    end_threads();
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        ck_assert_int_eq(thread_slot_at(i)->state == SLOT_USED, thread_slot_at(i)->tid == getpid());
}
END_TEST

START_TEST(the_slot_of_a_thread_that_is_gone_is_free_again)
{
    start();
    start_threads(be_there);
    scan();
    uint32_t count = thread_slot_count();
    end_threads(); /* none of them took its slot over, so none gave it back */
    ck_assert_int_eq(adopted_count, THREADS);
    for (int i = 0; i < THREADS; i++) {
        /* join may return a moment before the kernel has forgotten the thread. */
        while (sys_call3(SYS_tgkill, getpid(), tids[i], 0) != -ESRCH)
            ;
    }
    ck_assert_uint_eq(gone_count, 0);
    scan();
    ck_assert_uint_eq(gone_count, THREADS);
    for (int i = 0; i < THREADS; i++)
        ck_assert_uint_eq(slots_of(tids[i]), 0);
    ck_assert_uint_eq(slots_of(getpid()), 1);
    for (int i = 0; i < THREADS; i++)
        ck_assert_ptr_nonnull(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), count);
}
END_TEST

/* ---- a thread that is being born ---- */

static struct thread_slot *prepared;

static void *be_born_late(void *argument)
{
    *(int *)argument = sys_tid();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    thread_attach_prepared(prepared);
    pthread_barrier_wait(&barrier);
    wait_for_end();
    return NULL;
}

START_TEST(a_thread_that_is_being_born_is_not_adopted)
{
    start();
    prepared = thread_prepare(1, NULL);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&threads[0], NULL, be_born_late, &tids[0]);
    pthread_barrier_wait(&barrier);
    /* The kernel knows it, its slot is ready, and it is on its way there. */
    scan();
    ck_assert_int_eq(adopted_count, 0);
    ck_assert_uint_eq(prepared->state, SLOT_USED);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    scan();
    ck_assert_int_eq(adopted_count, 0);
    ck_assert_uint_eq(slots_of(tids[0]), 1);
    store_release(&may_end, 1);
    sys_futex_wake(&may_end, 1);
    pthread_join(threads[0], NULL);
}
END_TEST

/* Found by the scan and, at the same time, attached by its first allocation. */
static void *have_two(void *argument)
{
    struct thread_slot *own = thread_attach(0, 0);
    struct thread_slot *found = thread_adopt(sys_tid());
    thread_take_over(found);
    demand(thread_tls.slot == found);
    demand(load_acquire(&own->state) == SLOT_FREE);
    thread_take_over(found);
    demand(load_acquire(&found->state) == SLOT_USED);
    demand(slots_of(sys_tid()) == 1);
    return argument;
}

START_TEST(who_takes_a_slot_over_gives_the_other_back)
{
    start();
    pthread_create(&threads[0], NULL, have_two, NULL);
    pthread_join(threads[0], NULL);
    ck_assert_uint_eq(thread_slot_count(), 3);
    ck_assert_uint_eq(thread_slot_at(1)->state, SLOT_FREE);
    ck_assert_uint_eq(thread_slot_at(2)->state, SLOT_FREE);
}
END_TEST

/* ---- failures ---- */

static long refused_call, refusal;
static uint32_t refuses;

static bool refuse(long number, const long args[6], long *result)
{
    (void)args;
    *result = refusal;
    return load_relaxed(&refuses) && number == refused_call;
}

START_TEST(without_proc_nothing_is_adopted_and_nothing_released)
{
    static const struct {
        long call, result;
    } refusals[] = {{SYS_readlinkat, -ENOENT}, {SYS_openat, -ENOENT}, {SYS_getdents64, -EACCES}};
    start();
    refused_call = refusals[_i].call;
    refusal = refusals[_i].result;
    sys_override = refuse;
    start_threads(attach_and_be_there);
    own_tid = getpid(); /* the numbers do not fit */
    int first_free = open("/dev/null", O_RDONLY);
    store_relaxed(&refuses, 1);
    scan();
    store_relaxed(&refuses, 0);
    ck_assert_int_eq(adopted_count, 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_uint_eq(slots_of(tids[i]), 1);
    ck_assert_int_eq(open("/dev/null", O_RDONLY), first_free + 1); /* no descriptor is lost */
    end_threads();
}
END_TEST

static uint32_t is_other;

static bool answer_other_number(long number, const long args[6], long *result)
{
    if (!load_relaxed(&is_other) || number != SYS_readlinkat ||
        strcmp((const char *)args[1], "/proc/self") != 0)
        return false;
    memcpy((char *)args[2], "4711", 4);
    *result = 4;
    return true;
}

START_TEST(numbers_of_another_namespace_are_nobodys_here)
{
    start();
    sys_override = answer_other_number;
    start_threads(be_there);
    store_relaxed(&is_other, 1);
    scan();
    ck_assert_int_eq(adopted_count, 0);
    store_relaxed(&is_other, 0);
    scan();
    ck_assert_int_eq(adopted_count, THREADS);
    end_threads();
    sys_override = NULL;
}
END_TEST

START_TEST(a_full_table_adopts_what_it_can)
{
    start();
    start_threads(be_there);
    while (thread_slot_count() < THREAD_SLOTS - 2)
        demand(thread_prepare(1, NULL));
    for (uint32_t i = 1; i < THREAD_SLOTS - 2; i++)
        store_relaxed(&thread_slot_at(i)->tid, getpid());
    scan();
    ck_assert_int_eq(adopted_count, 2);
    end_threads();
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_scan");
    TCase *scans = tcase_create("scans");
    tcase_set_timeout(scans, 60);
    tcase_add_test(scans, a_thread_without_a_slot_gets_one);
    tcase_add_test(scans, a_thread_that_has_left_is_not_adopted);
    tcase_add_test(scans, the_agents_own_threads_get_none);
    tcase_add_test(scans, a_thread_with_a_slot_keeps_it);
    tcase_add_test(scans, the_slot_of_a_thread_that_is_gone_is_free_again);
    tcase_add_test(scans, a_thread_that_is_being_born_is_not_adopted);
    tcase_add_test(scans, who_takes_a_slot_over_gives_the_other_back);
    tcase_add_loop_test(scans, without_proc_nothing_is_adopted_and_nothing_released, 0, 3);
    tcase_add_test(scans, numbers_of_another_namespace_are_nobodys_here);
    tcase_add_test(scans, a_full_table_adopts_what_it_can);
    suite_add_tcase(suite, scans);
    return suite;
}
