/* The end of a thread, however it comes, gives its slot back, and the app's own destructors still
 * find it. */
#include "test/check.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "test/demand.h"
#include "test/next_libc.h"
#include "test/slot_fixture.h"

static uint32_t leavings;
static uint32_t leavings_elsewhere; /* on a thread that is not the slot's */

static void leaving(void)
{
    struct thread_slot *slot = thread_tls.slot;
    add_relaxed(&leavings, 1);
    if (!slot || slot->tid != sys_tid())
        add_relaxed(&leavings_elsewhere, 1);
    thread_leave();
}

static void start(void)
{
    next_from_libc();
    ck_assert_int_eq(thread_start(leaving), 0);
}

/* ---- the end of a thread ---- */

static void *attach_and_return(void *argument)
{
    demand(thread_attach(0, 0));
    return argument;
}

static void *attach_and_exit(void *argument)
{
    ck_assert_ptr_nonnull(thread_attach(0, 0));
    pthread_exit(argument);
}

static uint32_t attached;

static void *attach_and_wait(void *argument)
{
    ck_assert_ptr_nonnull(thread_attach(0, 0));
    store_release(&attached, 1);
    for (;;)
        pause();
    return argument;
}

static void check_gone(uint32_t threads)
{
    ck_assert_uint_eq(leavings, threads);
    ck_assert_uint_eq(leavings_elsewhere, 0);
    ck_assert_uint_eq(slots_in_use(), 0);
    ck_assert_uint_eq(thread_slot_count(), 1);
}

START_TEST(a_slot_is_given_back_by_return)
{
    start();
    for (uint32_t i = 1; i <= 10; i++) {
        run_in_thread(attach_and_return, NULL);
        check_gone(i);
    }
}
END_TEST

START_TEST(a_slot_is_given_back_by_pthread_exit)
{
    start();
    run_in_thread(attach_and_exit, NULL);
    check_gone(1);
}
END_TEST

START_TEST(a_slot_is_given_back_by_cancellation)
{
    start();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, attach_and_wait, NULL), 0);
    while (!load_acquire(&attached))
        sched_yield();
    ck_assert_int_eq(pthread_cancel(thread), 0);
    void *result;
    pthread_join(thread, &result);
    ck_assert_ptr_eq(result, PTHREAD_CANCELED);
    check_gone(1);
}
END_TEST

static pthread_key_t key_before, key_after;
static uint32_t ends_with_slot;

static void app_destructor(void *value)
{
    (void)value;
    ends_with_slot += thread_tls.slot != NULL && slot_is_used(thread_tls.slot);
}

static void *use_keys(void *argument)
{
    pthread_setspecific(key_before, argument);
    attach_and_return(NULL);
    pthread_setspecific(key_after, argument);
    return NULL;
}

START_TEST(destructors_of_the_app_still_count)
{
    pthread_key_create(&key_before, app_destructor);
    start();
    pthread_key_create(&key_after, app_destructor);
    run_in_thread(use_keys, &key_before);
    ck_assert_uint_eq(ends_with_slot, 2);
    check_gone(1);
}
END_TEST

static void attach_late(void *value)
{
    if (thread_tls.left) {
        ck_assert_ptr_nonnull(thread_attach(0, 0));
        thread_leave();
        ends_with_slot++;
    } else {
        pthread_setspecific(key_after, value); /* once more, in the next round */
    }
}

START_TEST(a_thread_can_attach_in_its_teardown)
{
    start();
    pthread_key_create(&key_after, attach_late);
    key_before = key_after;
    run_in_thread(use_keys, &key_before);
    ck_assert_uint_eq(ends_with_slot, 1);
    check_gone(1); /* the late one set no key again */
}
END_TEST

START_TEST(without_keys_a_slot_stays_until_it_is_reaped)
{
    next_from_libc();
    next.pthread_key_create = NULL;
    next.pthread_setspecific = NULL;
    ck_assert_int_eq(thread_start(leaving), 0);
    run_in_thread(attach_and_return, NULL);
    ck_assert_uint_eq(slots_in_use(), 1);
    thread_release_slot(thread_slot_at(0));
    ck_assert_uint_eq(slots_in_use(), 0);
}
END_TEST

/* Sanitizers make a thread several times dearer, emulators hundred times. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY = 10000 };
#else
enum { MANY = 50000 };
#endif
enum { AT_ONCE = 4 };

START_TEST(many_short_threads_need_few_slots)
{
    start();
    pthread_t threads[AT_ONCE];
    int many = test_is_emulated() ? MANY / 10 : MANY;
    for (int i = 0; i < many; i++) {
        if (i >= AT_ONCE)
            pthread_join(threads[i % AT_ONCE], NULL);
        demand(pthread_create(&threads[i % AT_ONCE], NULL, attach_and_return, NULL) == 0);
    }
    for (int i = 0; i < AT_ONCE; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(leavings, many);
    ck_assert_uint_eq(leavings_elsewhere, 0);
    ck_assert_uint_le(thread_slot_count(), AT_ONCE);
    ck_assert_uint_eq(slots_in_use(), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_end");
    TCase *end = tcase_create("end");
    tcase_set_timeout(end, 60);
    tcase_add_test(end, a_slot_is_given_back_by_return);
    tcase_add_test(end, a_slot_is_given_back_by_pthread_exit);
    tcase_add_test(end, a_slot_is_given_back_by_cancellation);
    tcase_add_test(end, destructors_of_the_app_still_count);
    tcase_add_test(end, a_thread_can_attach_in_its_teardown);
    tcase_add_test(end, without_keys_a_slot_stays_until_it_is_reaped);
    tcase_add_test(end, many_short_threads_need_few_slots);
    suite_add_tcase(suite, end);
    return suite;
}
