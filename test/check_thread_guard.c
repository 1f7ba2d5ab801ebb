/* Guards: what was unpublished is used by nobody once they are quiescent. */
#include "test/check.h"

#include <pthread.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "test/demand.h"
#include "test/record_fixture.h"

/* ---- guards ---- */

static struct thread_slot *guarded;
static int pauses; /* that the wait made */
static int pause_that_leaves;
static bool enters_again;

static bool while_it_waits(long number, const long args[6], long *result)
{
    (void)args;
    if (number != SYS_nanosleep)
        return false;
    *result = 0;
    if (++pauses == pause_that_leaves) {
        thread_guard_leave(guarded);
        if (enters_again)
            thread_guard_enter(guarded);
    }
    return true;
}

START_TEST(an_open_guard_is_not_quiescent)
{
    fixture_threads();
    struct thread_slot *slot = thread_prepare(1, NULL);
    struct thread_slot *other = thread_prepare(1, NULL);
    ck_assert(thread_guard_quiescent(0));
    for (int i = 0; i < 5; i++) {
        thread_guard_enter(other);
        ck_assert(!thread_guard_quiescent(0));
        ck_assert(!thread_guard_quiescent(clock_monotonic_ns() + NS_PER_MS));
        thread_guard_enter(slot);
        thread_guard_leave(other);
        ck_assert(!thread_guard_quiescent(0));
        thread_guard_leave(slot);
        ck_assert(thread_guard_quiescent(0));
    }
}
END_TEST

START_TEST(the_wait_for_a_guard_ends_at_its_deadline)
{
    fixture_threads();
    guarded = thread_prepare(1, NULL);
    thread_guard_enter(guarded);
    uint64_t deadline = clock_monotonic_ns() + 5 * NS_PER_MS;
    ck_assert(!thread_guard_quiescent(deadline));
    ck_assert_uint_ge(clock_monotonic_ns(), deadline);
}
END_TEST

START_TEST(the_wait_ends_when_the_guard_is_closed)
{
    fixture_threads();
    guarded = thread_prepare(1, NULL);
    /* Also when its thread is in the next one by then. */
    enters_again = _i;
    pause_that_leaves = 3;
    thread_guard_enter(guarded);
    sys_override = while_it_waits;
    ck_assert(thread_guard_quiescent(clock_monotonic_ns() + 100 * NS_PER_SEC));
    sys_override = NULL;
    ck_assert_int_eq(pauses, 3);
    ck_assert_int_eq(thread_guard_quiescent(0), !enters_again);
}
END_TEST

START_TEST(the_guards_of_a_moment_can_be_asked_for_later)
{
    fixture_threads();
    enum { SLOTS = THREAD_GRACE_OPEN + 10 };
    struct thread_slot *slots[SLOTS];
    struct thread_grace grace;
    for (int i = 0; i < SLOTS; i++)
        slots[i] = thread_prepare(1, NULL);
    thread_grace_begin(&grace);
    ck_assert(thread_grace_over(&grace));
    thread_guard_enter(slots[3]);
    thread_guard_enter(slots[7]);
    thread_grace_begin(&grace);
    thread_guard_enter(slots[5]); /* after the begin: not waited for */
    ck_assert(!thread_grace_over(&grace));
    thread_guard_leave(slots[7]);
    thread_guard_enter(slots[7]);
    ck_assert(!thread_grace_over(&grace));
    thread_guard_leave(slots[3]);
    ck_assert(thread_grace_over(&grace));
    ck_assert(thread_grace_over(&grace));
    /* More than can be noted: each call gets nearer, none says yes too soon. */
    thread_guard_leave(slots[5]);
    thread_guard_leave(slots[7]);
    for (int i = 0; i < SLOTS; i++)
        thread_guard_enter(slots[i]);
    thread_grace_begin(&grace);
    for (int i = 0; i < SLOTS; i++) {
        ck_assert(!thread_grace_over(&grace));
        thread_guard_leave(slots[i]);
    }
    ck_assert(thread_grace_over(&grace));
}
END_TEST

START_TEST(a_slot_taken_anew_is_outside_of_its_guard)
{
    fixture_threads();
    struct thread_slot *slot = thread_prepare(1, NULL);
    thread_guard_enter(slot);
    thread_release_slot(slot); /* its thread was found dead */
    ck_assert_ptr_eq(thread_prepare(1, NULL), slot);
    ck_assert(thread_guard_quiescent(0));
}
END_TEST

/* A value that is unpublished is used by nobody once guards are quiescent. */
enum { READERS = 3, UNPUBLISHED = 300 };

static uint64_t *published;
static uint32_t readers_end;

static void *read_published(void *argument)
{
    struct thread_slot *slot = thread_attach(0, 0);
    while (!load_relaxed(&readers_end)) {
        thread_guard_enter(slot);
        const uint64_t *value = load_acquire(&published);
        for (int i = 0; i < 10; i++)
            demand(*value != 0);
        thread_guard_leave(slot);
    }
    return argument;
}

START_TEST(what_was_unpublished_is_used_no_more)
{
    fixture_threads();
    pthread_t threads[READERS];
    static uint64_t values[2] = {1, 1};
    published = &values[0];
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_published, NULL);
    for (int i = 1; i < UNPUBLISHED; i++) {
        uint64_t *old = published;
        values[i % 2] = 1;
        __atomic_store_n(&published, &values[i % 2], __ATOMIC_SEQ_CST);
        ck_assert(thread_guard_quiescent(clock_monotonic_ns() + 10 * NS_PER_SEC));
        *old = 0;
    }
    store_relaxed(&readers_end, 1);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_guard");
    TCase *guards = tcase_create("guards");
    tcase_set_timeout(guards, 60);
    tcase_add_test(guards, an_open_guard_is_not_quiescent);
    tcase_add_test(guards, the_wait_for_a_guard_ends_at_its_deadline);
    tcase_add_loop_test(guards, the_wait_ends_when_the_guard_is_closed, 0, 2);
    tcase_add_test(guards, the_guards_of_a_moment_can_be_asked_for_later);
    tcase_add_test(guards, a_slot_taken_anew_is_outside_of_its_guard);
    tcase_add_test(guards, what_was_unpublished_is_used_no_more);
    suite_add_tcase(suite, guards);
    return suite;
}
