/* CPU time that no known thread has used, and when threads that nobody told of are looked for. The
 * clocks and the number of threads are the suite's; the agent's threads are stood in for. */
#include "test/check.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/left_threads.h"
#include "agent/unseen_threads.h"
#include "test/record_fixture.h"

enum { SLOTS = 3, FIRST_TID = 1 << 20 /* beyond all real ones */ };

static struct thread_slot *slots[SLOTS];
static uint64_t clocks[SLOTS], process_ns, own_ns, watcher_ns = 1;
static uint32_t tasks, own_there, looks_wanted, still_there;

void agent_thread_want_look(enum agent_thread_look look)
{
    looks_wanted += look == LOOK_FOR_THREADS;
}

uint32_t flush_own_threads_there(void)
{
    return own_there;
}

uint64_t flush_own_threads_cpu_ns(void)
{
    return own_ns;
}

static long read_clock(int clock, struct timespec *time)
{
    uint64_t value = process_ns;
    if (clock == CLOCK_THREAD_CPUTIME_ID)
        value = watcher_ns;
    for (int i = 0; i < SLOTS; i++)
        if (clock == clock_id_of_thread(FIRST_TID + i))
            value = clocks[i];
    *time = (struct timespec){(time_t)(value / NS_PER_SEC), (long)(value % NS_PER_SEC)};
    return value ? 0 : -EINVAL; /* a thread that is gone */
}

static long tick_ns = 4 * NS_PER_MS;

static bool answer(long number, const long args[6], long *result)
{
    *result = 0;
    if (number == SYS_clock_gettime && args[0] != CLOCK_MONOTONIC)
        *result = read_clock((int)args[0], (struct timespec *)args[1]);
    else if (number == SYS_clock_getres)
        *(struct timespec *)args[1] = (struct timespec){0, tick_ns};
    else if (number == SYS_newfstatat)
        ((struct stat *)args[2])->st_nlink = tasks + 2;
    else if (number == SYS_tgkill)
        *result = (uint32_t)args[1] - 1 < still_there ? 0 : -ESRCH;
    else
        return false;
    return true;
}

/* A second of each was used before. */
static void start(void)
{
    fixture_start((size_t)32 << 20);
    sys_override = answer;
    own_ns = NS_PER_SEC;
    process_ns = NS_PER_SEC + own_ns;
    for (int i = 0; i < SLOTS; i++) {
        clocks[i] = NS_PER_SEC;
        process_ns += NS_PER_SEC;
        slots[i] = thread_adopt(FIRST_TID + i);
    }
    tasks = SLOTS + own_there;
    unseen_threads_start(0);
}

static void run(int index, uint64_t ns)
{
    clocks[index] += ns;
    process_ns += ns;
}

START_TEST(what_known_threads_use_is_not_theirs)
{
    start();
    run(0, 5 * NS_PER_SEC);
    run(2, NS_PER_SEC);
    own_ns += NS_PER_MS;
    process_ns += NS_PER_MS;
    ck_assert(!unseen_threads_have_time());
    ck_assert_uint_eq(unseen_threads_take_time(), 0);
}
END_TEST

START_TEST(what_others_use_is_told_once)
{
    start();
    process_ns += NS_PER_MS - 1;
    ck_assert(!unseen_threads_have_time()); /* not worth it yet */
    ck_assert_uint_eq(unseen_threads_take_time(), 0);
    process_ns += 1;
    ck_assert(unseen_threads_have_time());
    ck_assert_uint_eq(unseen_threads_take_time(), NS_PER_MS);
    ck_assert(!unseen_threads_have_time());
    process_ns += 7 * NS_PER_MS;
    ck_assert_uint_eq(unseen_threads_take_time(), 7 * NS_PER_MS);
}
END_TEST

/* Clocks go on between two that are read: the sum makes up for it. */
START_TEST(what_one_look_misses_the_next_one_has)
{
    start();
    process_ns += 10 * NS_PER_MS;
    clocks[0] += 4 * NS_PER_MS; /* the process's clock was read before */
    ck_assert_uint_eq(unseen_threads_take_time(), 6 * NS_PER_MS);
    process_ns += 4 * NS_PER_MS;
    ck_assert_uint_eq(unseen_threads_take_time(), 4 * NS_PER_MS);
}
END_TEST

START_TEST(a_thread_that_has_left_is_known_for_what_it_had_used)
{
    start();
    run(1, 50 * NS_PER_MS);
    unseen_threads_one_left(clocks[1]);
    thread_release_slot(slots[1]);
    clocks[1] = 0;
    ck_assert(!unseen_threads_have_time());
    process_ns += 2 * NS_PER_MS; /* at its very end */
    ck_assert_uint_eq(unseen_threads_take_time(), 2 * NS_PER_MS);
}
END_TEST

/* Until its slot goes it counts by what was accounted. */
START_TEST(a_thread_that_went_without_a_word)
{
    start();
    run(1, 50 * NS_PER_MS);
    slots[1]->cpu_last_ns = clocks[1] - 20 * NS_PER_MS;
    clocks[1] = 0;
    ck_assert_uint_eq(unseen_threads_take_time(), 20 * NS_PER_MS);
    unseen_threads_one_left(slots[1]->cpu_last_ns);
    thread_release_slot(slots[1]);
    ck_assert_uint_eq(unseen_threads_take_time(), 0);
}
END_TEST

START_TEST(a_thread_that_comes_by_itself_counts_from_there_on)
{
    start();
    thread_release_slot(slots[0]); /* nobody has told of it */
    unseen_threads_start(0);
    run(0, 30 * NS_PER_MS);
    bool told_before = _i;
    if (told_before)
        ck_assert_uint_eq(unseen_threads_take_time(), 30 * NS_PER_MS);
    slots[0] = thread_adopt(FIRST_TID);
    unseen_threads_one_known(clocks[0]);
    run(0, 100 * NS_PER_MS);
    ck_assert_uint_eq(unseen_threads_take_time(), told_before ? 0 : 30 * NS_PER_MS);
}
END_TEST

/* ---- looks ---- */

START_TEST(a_thread_too_many_is_looked_for)
{
    own_there = 1;
    start();
    unseen_threads_look(100 * NS_PER_MS - 1);
    unseen_threads_look(100 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 0);
    tasks++;
    unseen_threads_look(200 * NS_PER_MS - 1);
    ck_assert_uint_eq(looks_wanted, 0);
    unseen_threads_look(200 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 1);
    unseen_threads_look(200 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 1);
    /* Nobody was found: the one after the next is later. */
    unseen_threads_look(300 * NS_PER_MS - 1);
    ck_assert_uint_eq(looks_wanted, 1);
    unseen_threads_look(300 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 2);
    unseen_threads_look(500 * NS_PER_MS - 1);
    ck_assert_uint_eq(looks_wanted, 2);
    unseen_threads_found();
    unseen_threads_look(500 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 3);
    /* And for ever: after 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 s, as seconds have it. */
    for (uint64_t at = 1000; at < 1100; at++)
        unseen_threads_look(at * NS_PER_SEC);
    ck_assert_uint_eq(looks_wanted, 3 + 6 + 12);
}
END_TEST

/* At a flush, when their slots are to go; by itself it is no reason to make a thread. */
START_TEST(threads_that_are_gone_without_a_word)
{
    start();
    tasks--;
    unseen_threads_look(100 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 0);
    unseen_threads_look_now();
    ck_assert_uint_eq(looks_wanted, 1);
    unseen_threads_look(200 * NS_PER_MS); /* not put off */
    tasks += 2;
    unseen_threads_look(300 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 2);
}
END_TEST

/* The kernel knows threads for a while that have left their slots. */
START_TEST(threads_that_leave_are_not_looked_for)
{
    start();
    for (int tid = 1; tid <= 3; tid++)
        left_threads_add(tid);
    still_there = 2;
    tasks = SLOTS + 2;
    unseen_threads_look_now();
    ck_assert_uint_eq(looks_wanted, 0);
    still_there = 1;
    unseen_threads_look_now();
    ck_assert_uint_eq(looks_wanted, 1);
    /* More than have a name. */
    for (int tid = 1; tid <= LEFT_THREADS_NAMED + 100; tid++)
        left_threads_add(tid + 1000);
    still_there = 0;
    tasks = SLOTS + 90;
    unseen_threads_look_now();
    ck_assert_uint_eq(looks_wanted, 1);
}
END_TEST

/* ---- the watch ---- */

static uint32_t scans;
static uint64_t scan_ns;
static bool finds;

static void scan(void)
{
    scans++;
    watcher_ns += scan_ns;
    if (finds)
        unseen_threads_found();
}

/* As the agent's thread does. Returns when the watch ends, or `until_ns`. */
static uint64_t watch(uint64_t now_ns, uint64_t until_ns)
{
    while (unseen_threads_due_ns() != UINT64_MAX && now_ns < until_ns) {
        now_ns = MAX_OF(now_ns, unseen_threads_due_ns());
        unseen_threads_watch(now_ns, scan);
    }
    return now_ns;
}

START_TEST(without_unseen_threads_nobody_wakes_up)
{
    start();
    for (uint64_t at = 1; at < 1000; at++) {
        run(0, 90 * NS_PER_MS);
        process_ns += 10 * NS_PER_MS; /* at the end of others */
        unseen_threads_look(at * 100 * NS_PER_MS);
        ck_assert_uint_eq(unseen_threads_due_ns(), UINT64_MAX);
    }
    ck_assert(!unseen_threads_check());
    unseen_threads_watch(200 * NS_PER_SEC, scan);
    ck_assert_uint_eq(looks_wanted + scans, 0);
}
END_TEST

/* For a second behind each find, as often as the kernel looks at timers. */
START_TEST(a_find_begins_a_watch)
{
    start();
    unseen_threads_found();
    ck_assert_uint_eq(watch(NS_PER_SEC, 100 * NS_PER_SEC), 2 * NS_PER_SEC);
    ck_assert_uint_eq(scans, 251);
    finds = true;
    unseen_threads_found();
    ck_assert_uint_ge(watch(10 * NS_PER_SEC, 20 * NS_PER_SEC), 20 * NS_PER_SEC);
    finds = false;
    ck_assert_uint_ge(watch(20 * NS_PER_SEC, 100 * NS_PER_SEC), 21 * NS_PER_SEC);
    ck_assert_uint_le(scans, 251 + 251 * 11);
    tick_ns = 10 * NS_PER_MS;
    scans = 0;
    unseen_threads_found();
    ck_assert_uint_eq(watch(22 * NS_PER_SEC, 100 * NS_PER_SEC), 23 * NS_PER_SEC);
    ck_assert_uint_eq(scans, 101);
    /* One that others see: looks come at once. */
    tasks++;
    unseen_threads_look(30 * NS_PER_SEC);
    ck_assert_uint_eq(unseen_threads_due_ns(), 0);
}
END_TEST

START_TEST(a_watch_takes_little_of_a_processor)
{
    start();
    scan_ns = 2 * NS_PER_MS; /* thousands of threads */
    unseen_threads_found();
    ck_assert_uint_eq(watch(NS_PER_SEC, 100 * NS_PER_SEC), NS_PER_SEC + 3 * 400 * NS_PER_MS);
    ck_assert_uint_eq(scans, 4);
}
END_TEST

/* Though none is there when somebody looks. */
START_TEST(an_eighth_of_the_time_begins_a_watch)
{
    start();
    uint64_t now = 0;
    run(0, 140 * NS_PER_MS);
    process_ns += 19 * NS_PER_MS; /* too little to ask for more */
    unseen_threads_look(now += 100 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 0);
    run(0, 141 * NS_PER_MS);
    process_ns += 20 * NS_PER_MS; /* 20 of 161 */
    unseen_threads_look(now += 100 * NS_PER_MS);
    ck_assert_uint_eq(looks_wanted, 0);
    /* Watches in vain: 0.1, 0.1, 0.2, ... 6.4 s from one to the next. */
    for (uint32_t i = 1; i <= 10; i++) {
        run(0, 140 * NS_PER_MS);
        process_ns += 20 * NS_PER_MS;
        now += (100 * NS_PER_MS << MIN_OF(i - MIN_OF(i, 2u), 6u));
        unseen_threads_look(now - 1);
        ck_assert_uint_eq(looks_wanted, i - 1);
        unseen_threads_look(now);
        ck_assert_uint_eq(looks_wanted, i);
        ck_assert_uint_eq(unseen_threads_due_ns(), 0);
        (void)watch(now, UINT64_MAX);
    }
    /* And as at first after a find; what is told is no less theirs. */
    ck_assert_uint_gt(unseen_threads_take_time(), 0);
    unseen_threads_found();
    process_ns += 20 * NS_PER_MS;
    ck_assert(unseen_threads_check());
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("unseen_threads");
    TCase *time = tcase_create("time");
    tcase_add_test(time, what_known_threads_use_is_not_theirs);
    tcase_add_test(time, what_others_use_is_told_once);
    tcase_add_test(time, what_one_look_misses_the_next_one_has);
    tcase_add_test(time, a_thread_that_has_left_is_known_for_what_it_had_used);
    tcase_add_test(time, a_thread_that_went_without_a_word);
    tcase_add_loop_test(time, a_thread_that_comes_by_itself_counts_from_there_on, 0, 2);
    suite_add_tcase(suite, time);
    TCase *looks = tcase_create("looks");
    tcase_add_test(looks, a_thread_too_many_is_looked_for);
    tcase_add_test(looks, threads_that_are_gone_without_a_word);
    tcase_add_test(looks, threads_that_leave_are_not_looked_for);
    suite_add_tcase(suite, looks);
    TCase *watches = tcase_create("watches");
    tcase_add_test(watches, without_unseen_threads_nobody_wakes_up);
    tcase_add_test(watches, a_find_begins_a_watch);
    tcase_add_test(watches, a_watch_takes_little_of_a_processor);
    tcase_add_test(watches, an_eighth_of_the_time_begins_a_watch);
    suite_add_tcase(suite, watches);
    return suite;
}
