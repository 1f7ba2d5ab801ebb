/* Who works on what a start makes anew: not while it is stopped, and a start waits for the rest. */
#include "test/check.h"

#include <pthread.h>
#include <sched.h>

#include "agent/agent_work.h"
#include "agent/base/clock.h"

static uint64_t in_ms(uint64_t ms)
{
    return clock_monotonic_ns() + ms * NS_PER_MS;
}

START_TEST(nobody_works_while_it_is_off)
{
    ck_assert(!agent_work_is_on() && !agent_work_enter());
    agent_work_begins();
    ck_assert(agent_work_is_on() && agent_work_enter());
    agent_work_leave();
    agent_work_ends();
    ck_assert(!agent_work_is_on() && !agent_work_enter());
    ck_assert(agent_work_wait_left(in_ms(0)));
}
END_TEST

START_TEST(who_works_when_it_ends_is_waited_for)
{
    agent_work_begins();
    ck_assert(agent_work_enter());
    agent_work_ends();
    ck_assert(!agent_work_wait_left(in_ms(20)));
    agent_work_leave();
    ck_assert(agent_work_wait_left(in_ms(20)));
}
END_TEST

START_TEST(in_a_child_nobody_works)
{
    agent_work_begins();
    ck_assert(agent_work_enter());
    agent_work_reset_in_child();
    ck_assert(agent_work_wait_left(in_ms(0)));
    ck_assert(agent_work_enter());
}
END_TEST

/* What is made anew, by one thread at a time: plain memory, of which ThreadSanitizer tells too. */
enum { ROUNDS = 2000 };
static int table;
static uint32_t is_over, worked;

static void *work_on_and_on(void *unused)
{
    while (!load_acquire(&is_over)) {
        if (!agent_work_enter())
            continue;
        ck_assert_int_ne(table, 0);
        add_relaxed(&worked, 1);
        agent_work_leave();
    }
    return unused;
}

START_TEST(nobody_works_while_all_is_made_anew)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, work_on_and_on, NULL), 0);
    for (int i = 1; i <= ROUNDS; i++) {
        ck_assert(agent_work_wait_left(in_ms(60000)));
        table = 0;
        table = i;
        uint32_t before = load_relaxed(&worked);
        agent_work_begins();
        while (load_relaxed(&worked) == before)
            sched_yield();
        agent_work_ends();
    }
    store_release(&is_over, 1);
    pthread_join(thread, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("agent_work");
    TCase *work = tcase_create("work");
    tcase_set_timeout(work, 120);
    tcase_add_test(work, nobody_works_while_it_is_off);
    tcase_add_test(work, who_works_when_it_ends_is_waited_for);
    tcase_add_test(work, in_a_child_nobody_works);
    tcase_add_test(work, nobody_works_while_all_is_made_anew);
    suite_add_tcase(suite, work);
    return suite;
}
