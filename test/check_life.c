/* Starts and stops: how they are counted, and whom they wait for. Everything but the hooks is real.
 */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/life.h"
#include "agent/thread/moment.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/thread_reset.h"
#include "test/demand.h"
#include "test/life_fixture.h"
#include "test/own_log.h"

/* ---- the count ---- */

START_TEST(the_first_start_starts_and_the_last_stop_stops)
{
    ck_assert_int_eq(stop(), -EALREADY);
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(start(), 1);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 1);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 0);
    ck_assert(!life_is_on());
    ck_assert_int_eq(stop(), -EALREADY);
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(a_start_that_fails_is_not_counted)
{
    sys_override = refuse_maps;
    ck_assert_int_eq(start(), -ENOMEM);
    sys_override = NULL;
    ck_assert_int_eq(own_log_lines("not profiled: start failed: out of memory (errno 12)"), 1);
    ck_assert(!life_is_on());
    ck_assert_int_eq(stop(), -EALREADY);
    ck_assert_int_eq(start(), 0);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(switched_off_from_outside_it_is_off_whoever_started_it)
{
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(life_switch(false), 0);
    ck_assert(!life_is_on());
    ck_assert_int_eq(start(), 1);
    ck_assert(!life_is_on());
    ck_assert_int_eq(stop(), 1);
    ck_assert_int_eq(life_switch(true), 0);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 0);
    ck_assert_int_eq(life_switch(false), 0);
    ck_assert_int_eq(life_switch(true), 0);
    ck_assert(!life_is_on());
}
END_TEST

START_TEST(after_the_end_there_is_no_start)
{
    ck_assert_int_eq(start(), 0);
    ck_assert(life_end(clock_monotonic_ns() + NS_PER_SEC, true));
    ck_assert(!life_is_on() && !life_is_possible());
    ck_assert_int_eq(start(), -ESHUTDOWN);
    ck_assert_int_eq(stop(), -ESHUTDOWN);
    ck_assert(!life_end(clock_monotonic_ns(), true));
}
END_TEST

/* A handler of the app's that interrupted the agent cannot wait for what it interrupted. */
START_TEST(inside_the_agent_nothing_is_changed)
{
    ck_assert_int_eq(start(), 0);
    presence_enter();
    ck_assert_int_eq(stop(), -EDEADLK);
    ck_assert_int_eq(start(), -EDEADLK);
    presence_leave();
    ck_assert_int_eq(stop(), 0);
}
END_TEST

/* ---- nobody is inside ---- */

static uint32_t stays_inside;

static void *be_inside(void *unused)
{
    (void)unused;
    demand(life_enter());
    store_release(&stays_inside, 2);
    while (load_acquire(&stays_inside))
        sched_yield();
    life_leave();
    return NULL;
}

static pthread_t thread_inside(void)
{
    pthread_t thread;
    store_release(&stays_inside, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, be_inside, NULL), 0);
    while (load_acquire(&stays_inside) != 2)
        sched_yield();
    return thread;
}

/* The stop waits for a second, and says so; while the thread is there nothing is made anew. */
START_TEST(a_thread_that_stays_inside_keeps_a_start_away)
{
    ck_assert_int_eq(start(), 0);
    pthread_t thread = thread_inside();
    uint64_t begin = clock_monotonic_ns();
    ck_assert_int_eq(stop(), -ETIMEDOUT);
    ck_assert_uint_ge(clock_monotonic_ns() - begin, NS_PER_SEC);
    ck_assert(!life_is_on());
    uint32_t generation = thread_generation;
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), -EBUSY);
    ck_assert_int_eq(start(), -EBUSY);
    ck_assert_int_eq(own_log_lines("not profiled: a thread is still inside the agent"), 1);
    ck_assert_uint_eq(thread_generation, generation);
    ck_assert_int_eq(stop(), -EALREADY);
    store_release(&stays_inside, 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(start(), 0);
    ck_assert_uint_eq(thread_generation, generation + 1);
    ck_assert_int_eq(stop(), 0);
}
END_TEST

static uint32_t lets_out;

static bool let_out_at_the_first_nap(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    if (number == SYS_nanosleep && load_acquire(&lets_out))
        store_release(&stays_inside, 0);
    return false;
}

/* Come in late, it is out again at once: no reason not to start. */
START_TEST(a_thread_that_is_inside_for_an_instant_is_waited_for)
{
    sys_override = let_out_at_the_first_nap; /* before there are threads that look at it */
    ck_assert_int_eq(start(), 0);
    pthread_t thread = thread_inside();
    ck_assert_int_eq(stop(), -ETIMEDOUT);
    uint32_t generation = thread_generation;
    store_release(&lets_out, 1);
    ck_assert_int_eq(
        thread_reset_all(flush_is_own_thread, clock_monotonic_ns() + 60ull * NS_PER_SEC), 0);
    ck_assert_uint_eq(thread_generation, generation + 1);
    pthread_join(thread, NULL);
}
END_TEST

/* ---- the agent's thread ---- */

static uint32_t in_control, changes;
static int control_result;

static void note_change(void)
{
    add_relaxed(&changes, 1);
}

static void wait_until_it_is_being_stopped(void)
{
    store_release(&in_control, 1);
    while (life_is_on())
        sched_yield();
}

static void switch_it_off(void)
{
    wait_until_it_is_being_stopped();
    control_result = life_switch(false);
    store_release(&in_control, 2);
}

static void change_it(void)
{
    wait_until_it_is_being_stopped();
    control_result = life_change(note_change);
    store_release(&in_control, 2);
}

/* With the agent's thread in the middle of `work` when it is stopped; `work` is done then. */
static void stop_in_the_middle_of(void (*work)(void))
{
    agent_thread_control(work, false);
    ck_assert_int_eq(start(), 0);
    agent_thread_want_control();
    moment_pass(true); /* where the thread is libc's it is made here */
    while (!load_acquire(&in_control))
        sched_yield();
    ck_assert_int_eq(stop(), 0);
    ck_assert_uint_eq(load_acquire(&in_control), 2);
}

/* The stop waits for the thread's last window, and the thread not for the stop: what it was told
 * from outside meanwhile counts at the next start. */
START_TEST(switched_off_during_a_stop_the_next_start_does_not_start)
{
    stop_in_the_middle_of(switch_it_off);
    ck_assert_int_eq(control_result, 0);
    ck_assert_int_eq(start(), 0);
    ck_assert(!life_is_on());
    ck_assert_int_eq(life_switch(true), 0);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(changed_during_a_stop_it_stays_off)
{
    stop_in_the_middle_of(change_it);
    ck_assert_int_eq(control_result, 0);
    ck_assert_uint_eq(load_relaxed(&changes), 1);
    ck_assert(!life_is_on());
    ck_assert_int_eq(start(), 0);
    ck_assert(life_is_on());
    ck_assert_int_eq(stop(), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("life");
    TCase *count = tcase_create("count");
    tcase_add_checked_fixture(count, life_setup, life_teardown);
    tcase_set_timeout(count, 60);
    tcase_add_test(count, the_first_start_starts_and_the_last_stop_stops);
    tcase_add_test(count, a_start_that_fails_is_not_counted);
    tcase_add_test(count, switched_off_from_outside_it_is_off_whoever_started_it);
    tcase_add_test(count, after_the_end_there_is_no_start);
    tcase_add_test(count, inside_the_agent_nothing_is_changed);
    tcase_add_test(count, a_thread_that_stays_inside_keeps_a_start_away);
    tcase_add_test(count, a_thread_that_is_inside_for_an_instant_is_waited_for);
    tcase_add_test(count, switched_off_during_a_stop_the_next_start_does_not_start);
    tcase_add_test(count, changed_during_a_stop_it_stays_off);
    suite_add_tcase(suite, count);
    return suite;
}
