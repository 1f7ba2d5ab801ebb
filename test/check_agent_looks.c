/* The agent's own threads are never taken for the app's by a look at all threads: neither while
 * they have not said yet who they are, nor when another of their kind is there while they still
 * end. */
#include "test/check.h"

#include <pthread.h>

#include "agent/agent_looks.h"
#include "agent/agent_thread.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/uploader_thread.h"
#include "test/next_libc.h"
#include "test/own_threads_fixture.h"

static void *(*held_routine)(void *);
static int tid;
static uint32_t may_go_on;

static void wait_for(uint32_t *word)
{
    while (!load_acquire(word))
        sys_futex_wait(word, 0, 0);
}

static void let_go(uint32_t *word)
{
    store_release(word, 1);
    sys_futex_wake(word, INT32_MAX);
}

static int wait_for_tid(void)
{
    while (!load_acquire(&tid))
        ;
    return tid;
}

static void *held(void *argument)
{
    store_release(&tid, sys_tid());
    wait_for(&may_go_on);
    return held_routine(argument);
}

static int (*create)(void *, const void *, void *(*)(void *), void *);

static int create_held(void *thread, const void *attributes, void *(*routine)(void *),
                       void *argument)
{
    held_routine = routine;
    return create(thread, attributes, held, argument);
}

static void make_agent_thread(void)
{
    agent_thread_start(own_on_thread, own_on_thread, true);
    moment_set_due_now();
    moment_pass(true);
}

START_TEST(a_thread_that_starts)
{
    void (*const make[])(void) = {make_agent_thread, uploader_thread_need};
    own_thread_use_libc(true);
    create = next.pthread_create;
    next.pthread_create = create_held;
    make[_i]();
    int its_tid = wait_for_tid();
    agent_looks_scan();
    ck_assert_ptr_null(thread_find_slot(its_tid));
    let_go(&may_go_on);
    agent_thread_pause(0);
}
END_TEST

static uint32_t has_begun, may_end;

static void *end_slowly(void *unused)
{
    flush_own_thread_begins(FLUSH_OWN_UPLOADER);
    flush_own_thread_ends(FLUSH_OWN_UPLOADER);
    store_release(&tid, sys_tid());
    wait_for(&may_end);
    return unused;
}

static void *begin_next(void *unused)
{
    flush_own_thread_begins(FLUSH_OWN_UPLOADER);
    let_go(&has_begun);
    wait_for(&may_end);
    return unused;
}

START_TEST(a_thread_that_ends_while_the_next_one_is_there)
{
    pthread_t ends, next_one;
    ck_assert_int_eq(pthread_create(&ends, NULL, end_slowly, NULL), 0);
    int its_tid = wait_for_tid();
    ck_assert_int_eq(pthread_create(&next_one, NULL, begin_next, NULL), 0);
    wait_for(&has_begun);
    agent_looks_scan();
    ck_assert_ptr_null(thread_find_slot(its_tid));
    let_go(&may_end);
    pthread_join(ends, NULL);
    pthread_join(next_one, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("agent_looks");
    TCase *tcase = tcase_create("own threads");
    tcase_add_checked_fixture(tcase, own_threads_setup, own_threads_teardown);
    tcase_add_loop_test(tcase, a_thread_that_starts, 0, 2);
    tcase_add_test(tcase, a_thread_that_ends_while_the_next_one_is_there);
    suite_add_tcase(suite, tcase);
    return suite;
}
