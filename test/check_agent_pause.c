/* The agent's threads make room for what they may not be there for. */
#include "test/check.h"

#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/late_thread.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "test/demand.h"
#include "test/flush_fixture.h"
#include "test/own_log.h"
#include "test/own_threads_fixture.h"
#include "test/temp_folder.h"

/* What the kernel has of this process. */
static int task_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void pass_moment_after_period(void)
{
    while (clock_monotonic_ns() < recorder_window_start_ns() + options.period_ns)
        ;
    moment_set_due_now();
    moment_pass(true);
}

START_TEST(a_pause_ends_the_threads_and_a_moment_after_it_makes_them_again)
{
    options.period_ns = 20 * NS_PER_MS;
    agent_thread_start(own_on_thread, own_on_thread, false);
    int tasks = task_count();
    flush_add_sample(RECORD_CPU, 100);
    pass_moment_after_period();
    own_wait_for_total(100);
    agent_thread_pause(0);
    agent_thread_pause(0);
    if (!own_thread_uses_libc())
        ck_assert_int_eq(task_count(), tasks);
    uint32_t before = load_relaxed(&own.made);
    flush_add_sample(RECORD_CPU, 1000);
    pass_moment_after_period();
    agent_thread_go_on();
    pass_moment_after_period();
    ck_assert_uint_eq(load_relaxed(&own.made), before);
    ck_assert_int_eq(own_written(), 100);
    agent_thread_go_on();
    ck_assert_uint_eq(moment_due_ns, recorder_window_start_ns() + options.period_ns);
    pass_moment_after_period();
    own_wait_for_total(1100);
    ck_assert_uint_eq(load_relaxed(&own.made), before + 2);
}
END_TEST

/* Threads that are not known as ours: the main thread, and a sanitizer's. */
static int count_foreign(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.' && !flush_is_own_thread(atoi(task->d_name));
    closedir(tasks);
    return count;
}

START_TEST(threads_are_known_however_often_they_were_made)
{
    int foreign = 0;
    for (int i = 1; i <= 10; i++) {
        flush_add_sample(RECORD_CPU, 100);
        ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
        ck_assert_int_eq(own_written(), 100 * i);
        ck_assert_uint_eq(own.made, (uint32_t)i);
        if (i == 1) /* a sanitizer makes its own with the first */
            foreign = count_foreign();
        ck_assert_int_eq(count_foreign(), foreign);
        ck_assert(flush_own_threads_there());
        agent_thread_pause(0);
        ck_assert(!flush_own_threads_there());
        agent_thread_go_on();
    }
}
END_TEST

START_TEST(what_a_pause_leaves_in_the_queue_is_written_at_the_end)
{
    struct blob_header header = {.family = "cpu", .dialect = "pprof"};
    struct buffer body = {0};
    ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0); /* makes the thread */
    agent_thread_pause(0);
    buffer_append(&body, "x", 1);
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    agent_thread_go_on();
    ck_assert_int_eq(count_files(flush_folder), 0);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(count_files(flush_folder), 1);
}
END_TEST

START_TEST(a_pause_without_threads_makes_none)
{
    agent_thread_pause(0);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
    agent_thread_go_on();
    ck_assert_uint_eq(own.made, 0);
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

static void *pause_and_count(void *tasks)
{
    agent_thread_pause(0);
    *(int *)tasks = task_count();
    agent_thread_go_on();
    return NULL;
}

static uint32_t pause_waits;

static bool hang_or_note_pause(long number, const long args[6], long *result)
{
    if (!thread_tls.internal && number == SYS_futex && args[1] == FUTEX_WAIT_BITSET_PRIVATE &&
        args[3] == 0) /* for ever */
        store_release(&pause_waits, 1);
    return own_answer(number, args, result);
}

START_TEST(a_pause_waits_for_the_file_that_is_being_written)
{
    pthread_t pausing;
    int tasks = 0, without = task_count();
    sys_override = hang_or_note_pause;
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(agent_thread_flush(own_in_ms(1)),
                     -ETIMEDOUT); /* makes the thread, which hangs */
    while (!load_acquire(&own.hanging))
        ;
    store_release(&pause_waits, 0);
    pthread_create(&pausing, NULL, pause_and_count, &tasks);
    while (!load_acquire(&pause_waits))
        ;
    ck_assert_int_eq(own_written(), 0);
    store_release(&own.hangs, 0);
    pthread_join(pausing, NULL);
    ck_assert_int_eq(own_written(), 100);
    if (!own_thread_uses_libc())
        ck_assert_int_eq(tasks, without + 1);
}
END_TEST

static void wait_for_no_thread(void)
{
    uint64_t limit = own_in_ms(20000);
    while (flush_own_threads_there())
        demand(clock_monotonic_ns() < limit);
}

/* The program goes on, and is another user's: the thread writes nothing when it comes back, ends,
 * and only then is there another one, which does. */
START_TEST(a_thread_that_is_late_for_a_pause_writes_nothing_more)
{
    options.period_ns = 20 * NS_PER_MS;
    agent_thread_start(own_on_thread, own_on_thread, false);
    own_log_start();
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(agent_thread_flush(own_in_ms(1)), -ETIMEDOUT);
    while (!load_acquire(&own.hanging))
        ;
    ck_assert(!agent_thread_pause(own_in_ms(20)));
    ck_assert(late_thread_begins());
    ck_assert(agent_thread_pause(0)); /* is not waited for again */
    agent_thread_go_on();
    ck_assert(!late_thread_is_gone());
    uint32_t before = load_relaxed(&own.made);
    pass_moment_after_period();
    ck_assert_uint_eq(load_relaxed(&own.made), before);
    store_release(&own.hangs, 0);
    wait_for_no_thread();
    ck_assert_int_eq(count_files(flush_folder), 0);
    ck_assert_int_eq(own_log_lines("libagent: "), 1);
    ck_assert_int_eq(own_log_lines("a thread of the agent is held up"), 1);
    ck_assert_uint_eq(load_relaxed(&own.made), before);
    flush_add_sample(RECORD_CPU, 1000);
    pass_moment_after_period();
    ck_assert(late_thread_is_gone());
    own_wait_for_total(1100);
    ck_assert_uint_gt(load_relaxed(&own.made), before);
    own_log_remove();
}
END_TEST

/* ---- rest ---- */

START_TEST(threads_with_nothing_to_do_end_and_a_sample_makes_them_again)
{
    options.period_ns = 20 * NS_PER_MS;
    agent_thread_start(own_on_thread, own_on_thread, false);
    for (int64_t round = 1; round <= 3; round++) {
        flush_add_sample(RECORD_CPU, 100);
        uint64_t limit = own_in_ms(20000);
        while (!flush_own_threads_there() && own_written() < 100 * round) {
            demand(clock_monotonic_ns() < limit);
            moment_pass(true);
        }
        own_wait_for_total(100 * round);
        wait_for_no_thread();
        ck_assert_uint_eq(load_relaxed(&own.made), 2 * (uint32_t)round);
    }
}
END_TEST

/* Whoever asks for a flush while the thread goes to rest gets it. */
START_TEST(a_flush_is_served_while_the_thread_goes_to_rest)
{
    options.period_ns = NS_PER_MS;
    agent_thread_start(own_on_thread, own_on_thread, false);
    for (int64_t round = 1; round <= 50; round++) {
        flush_add_sample(RECORD_CPU, 100);
        moment_pass(true);
        uint64_t deadline = own_in_ms(8000);
        ck_assert_int_eq(agent_thread_flush(deadline), 0);
        ck_assert_uint_lt(clock_monotonic_ns(), deadline);
        ck_assert_int_eq(own_written(), 100 * round);
    }
}
END_TEST

static bool (*answer_before)(long number, const long args[6], long *result);
static bool is_waiting;

/* A wait for a flush, which cannot be done before, ends late: when the next window is on its way to
 * a file already. */
static bool wait_ends_late(long number, const long args[6], long *result)
{
    bool is_wait = number == SYS_futex && (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    if (!is_wait || thread_tls.internal || is_waiting || !load_acquire(&own.hanging))
        return answer_before(number, args, result);
    is_waiting = true;
    store_release(&own.hangs, 0);
    own_wait_for_total(100);
    store_release(&own.hanging, 0);
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 1000);
    agent_thread_want_flush();
    uint64_t limit = own_in_ms(20000);
    while (!load_acquire(&own.hanging))
        demand(clock_monotonic_ns() < limit);
    *result = 0;
    return true;
}

START_TEST(a_flush_is_done_whatever_others_write_since)
{
    answer_before = sys_override;
    sys_override = wait_ends_late;
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(agent_thread_flush(own_in_ms(30000)), 0);
    ck_assert(is_waiting);
    store_release(&own.hangs, 0);
    own_wait_for_total(1100);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("agent_pause");
    TCase *pauses = tcase_create("pauses");
    tcase_set_timeout(pauses, 60);
    tcase_add_checked_fixture(pauses, own_threads_setup, own_threads_teardown);
    tcase_add_test(pauses, a_pause_ends_the_threads_and_a_moment_after_it_makes_them_again);
    tcase_add_test(pauses, threads_are_known_however_often_they_were_made);
    tcase_add_test(pauses, what_a_pause_leaves_in_the_queue_is_written_at_the_end);
    tcase_add_test(pauses, a_pause_without_threads_makes_none);
    tcase_add_test(pauses, a_pause_waits_for_the_file_that_is_being_written);
    tcase_add_test(pauses, a_thread_that_is_late_for_a_pause_writes_nothing_more);
    tcase_add_test(pauses, threads_with_nothing_to_do_end_and_a_sample_makes_them_again);
    tcase_add_test(pauses, a_flush_is_served_while_the_thread_goes_to_rest);
    tcase_add_test(pauses, a_flush_is_done_whatever_others_write_since);
    suite_add_tcase(suite, pauses);
    return suite;
}
