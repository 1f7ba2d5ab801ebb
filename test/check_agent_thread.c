/* The agent's two threads: when they are born, what they do when asked, and what happens where none
 * can be made or a disk hangs. Recorder, unwinder, export and uploader are real. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "test/demand.h"
#include "test/flush_fixture.h"
#include "test/next_libc.h"
#include "test/own_log.h"
#include "test/own_threads_fixture.h"
#include "test/temp_folder.h"

/* ---- the end ---- */

START_TEST(without_samples_the_end_does_nothing)
{
    agent_thread_finish(own_in_ms(3000));
    ck_assert_uint_eq(own.made, 0);
    ck_assert_int_eq(count_files(flush_folder), 0);
}
END_TEST

START_TEST(at_the_end_a_thread_writes_what_is_left)
{
    flush_add_sample(RECORD_CPU, 100);
    flush_add_sample(RECORD_ALLOC, 7);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(own.made, 1); /* it does the uploader's work too */
    ck_assert_int_eq(own_written(), 100);
    ck_assert_int_eq(count_files(flush_folder), 2);
}
END_TEST

static void check_written_by_this_thread(void)
{
    flush_add_sample(RECORD_CPU, 100);
    uint64_t deadline = own_in_ms(8000);
    agent_thread_finish(deadline);
    ck_assert_uint_lt(clock_monotonic_ns(), deadline);
    ck_assert_uint_eq(own.made, 0);
    ck_assert_int_eq(own_written(), 100);
    ck_assert_uint_eq(thread_tls.inside, 0);
    ck_assert_uint_eq(thread_tls.slot->guard & 1, 0);
}

START_TEST(where_no_thread_can_be_made_the_calling_one_writes)
{
    own.create_error = EAGAIN;
    check_written_by_this_thread();
}
END_TEST

START_TEST(where_libc_has_no_threads_the_calling_one_writes)
{
    next.pthread_create = NULL;
    check_written_by_this_thread();
}
END_TEST

START_TEST(a_thread_without_a_slot_writes_itself)
{
    /* Its stack cannot be walked, so pthread_create might meet a lock that it holds. */
    thread_leave();
    flush_add_sample(RECORD_CPU, 100);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(own.made, 0);
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

/* lfind's frame is libc's, between the app's: this thread might hold a lock of libc. */
static int finish_in_comparison(const void *a, const void *b)
{
    if (flush_is_due_at_end())
        agent_thread_finish(own_in_ms(8000));
    return *(const int *)a - *(const int *)b;
}

START_TEST(in_the_middle_of_libc_no_thread_is_made)
{
    const int numbers[] = {1, 2, 3};
    size_t count = ARRAY_SIZE(numbers);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_ptr_eq(lfind(&numbers[2], numbers, &count, sizeof(numbers[0]), finish_in_comparison),
                     &numbers[2]);
    ck_assert_uint_eq(own.made, 0);
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

/* ---- a disk that hangs ---- */

START_TEST(a_disk_that_hangs_is_given_up_at_the_deadline)
{
    own_log_start();
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 100);
    uint64_t deadline = own_in_ms(300);
    agent_thread_finish(deadline);
    uint64_t now = clock_monotonic_ns();
    ck_assert_uint_ge(now, deadline);
    ck_assert_uint_lt(now, deadline + 2 * NS_PER_SEC);
    ck_assert_int_ge(own_log_lines("in time"), 1);
    ck_assert_int_eq(own_written(), 0);
    own_log_remove();
    /* On a busy machine it may be on its way still, and would make the folder anew. */
    while (!load_acquire(&own.hanging))
        sched_yield();
}
END_TEST

/* ---- requests ---- */

START_TEST(a_flush_is_written_when_it_returns)
{
    for (int i = 1; i <= 3; i++) {
        flush_add_sample(RECORD_CPU, 100);
        ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
        ck_assert_int_eq(own_written(), 100 * i);
        ck_assert_int_eq(count_files(flush_folder), i);
    }
    ck_assert_uint_eq(own.made, 1);
    /* Nothing new: no file. */
    ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
    ck_assert_int_eq(count_files(flush_folder), 3);
    flush_add_sample(RECORD_CPU, 1000);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(own_written(), 1300);
}
END_TEST

START_TEST(flushes_without_a_thread_leave_the_uploader_usable)
{
    own.create_error = EAGAIN;
    for (int i = 1; i <= 3; i++) {
        flush_add_sample(RECORD_CPU, 100);
        ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
        ck_assert_int_eq(own_written(), 100 * i);
    }
    own.create_error = 0;
    flush_add_sample(RECORD_CPU, 100);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(own_written(), 400);
}
END_TEST

static void *flush_in_thread(void *argument)
{
    demand(agent_thread_flush(own_in_ms(20000)) == 0);
    return argument;
}

static __thread bool is_ending;
static uint32_t end_is_asked_for;

static bool hang_or_note(long number, const long args[6], long *result)
{
    if (is_ending && number == SYS_futex && args[3] != 0) /* its wait has a time-out */
        store_release(&end_is_asked_for, 1);
    return own_answer(number, args, result);
}

static void *finish_in_thread(void *argument)
{
    is_ending = true;
    agent_thread_finish(own_in_ms(20000));
    *(int64_t *)argument = own_written();
    return NULL;
}

START_TEST(the_end_is_not_taken_for_a_flush_that_runs)
{
    pthread_t flushing, ending;
    int64_t written_at_end = 0;
    sys_override = hang_or_note;
    store_release(&own.hangs, 1);
    flush_add_sample(RECORD_CPU, 100);
    own_log_start();
    ck_assert_int_eq(agent_thread_flush(own_in_ms(1)),
                     -ETIMEDOUT); /* makes the thread, which hangs */
    ck_assert_int_eq(own_log_lines("in time"), 0);
    agent_thread_flush_last(own_in_ms(1));
    pthread_create(&flushing, NULL, flush_in_thread, NULL);
    while (!load_acquire(&own.hanging))
        ;
    flush_add_sample(RECORD_CPU, 2000);
    pthread_create(&ending, NULL, finish_in_thread, &written_at_end);
    while (!load_acquire(&end_is_asked_for))
        ;
    store_release(&own.hangs, 0);
    pthread_join(ending, NULL);
    pthread_join(flushing, NULL);
    ck_assert_int_eq(written_at_end, 2100);
    ck_assert_int_eq(own_log_lines("in time"), 1);
    own_log_remove();
}
END_TEST

/* ---- periods ---- */

START_TEST(a_moment_after_the_period_makes_the_threads)
{
    /* So long that the second sample comes within it on any machine: after a period without one
     * both threads rest. */
    options.period_ns = NS_PER_SEC;
    agent_thread_start(own_on_thread, own_on_thread, false);
    ck_assert_uint_eq(moment_due_ns, recorder_window_start_ns() + options.period_ns);
    flush_add_sample(RECORD_CPU, 100);
    while (clock_monotonic_ns() < moment_due_ns)
        ;
    /* Also in the middle of libc, but for a thread of libc's. */
    moment_pass(!_i);
    if (_i && own_thread_uses_libc()) {
        ck_assert_uint_eq(own.made, 0);
        return;
    }
    own_wait_for_total(100);
    ck_assert_uint_eq(load_relaxed(&own.made),
                      2); /* the agent's, and at the first blob the other */
    flush_add_sample(RECORD_CPU, 1000);
    own_wait_for_total(1100);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(load_relaxed(&own.made), 2);
    ck_assert_int_eq(own_written(), 1100);
}
END_TEST

START_TEST(without_samples_no_thread_is_made)
{
    options.period_ns = 1;
    agent_thread_start(own_on_thread, own_on_thread, false);
    moment_pass(true);
    ck_assert_uint_eq(own.made, 0);
    /* Not asked again at each moment. */
    ck_assert_uint_gt(moment_due_ns, clock_monotonic_ns() + 5 * NS_PER_SEC);
    ck_assert_uint_lt(moment_due_ns, clock_monotonic_ns() + 11 * NS_PER_SEC);
}
END_TEST

START_TEST(an_early_thread_is_made_at_the_first_moment)
{
    /* Unless it would never have work. */
    options.period_ns = _i ? 0 : 3600 * NS_PER_SEC;
    agent_thread_start(own_on_thread, own_on_thread, true);
    moment_pass(true);
    moment_pass(true);
    ck_assert_uint_eq(load_relaxed(&own.made), _i ? 0 : 1);
    flush_add_sample(RECORD_CPU, 100);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(load_relaxed(&own.made), 1);
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

START_TEST(a_period_of_zero_is_never_over)
{
    options.period_ns = 0;
    agent_thread_start(own_on_thread, own_on_thread, false);
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_uint_eq(moment_due_ns, UINT64_MAX);
    moment_set_due_now();
    moment_pass(true);
    ck_assert_uint_eq(own.made, 0);
    ck_assert_uint_eq(moment_due_ns, UINT64_MAX);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

START_TEST(a_thread_that_cannot_be_made_is_said_once_and_tried_again)
{
    own_log_start();
    own.create_error = EAGAIN;
    options.period_ns = 1;
    agent_thread_start(own_on_thread, own_on_thread, false);
    flush_add_sample(RECORD_CPU, 100);
    for (int i = 0; i < 3; i++) {
        moment_set_due_now();
        moment_pass(true);
        ck_assert_uint_gt(moment_due_ns, clock_monotonic_ns() + 5 * NS_PER_SEC);
    }
    ck_assert_int_eq(own_log_lines("no thread of the agent: too many threads or too little memory "
                                   "(errno 11)"),
                     1);
    own.create_error = 0;
    moment_set_due_now();
    moment_pass(true);
    ck_assert_uint_ge(load_relaxed(&own.made), 1);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(own_written(), 100);
    own_log_remove();
}
END_TEST

START_TEST(a_moment_rescans_objects_that_are_not_known)
{
    modules_stale = 1;
    moment_set_due_now();
    moment_pass(false); /* this thread may be inside the loader */
    ck_assert_uint_eq(modules_stale, 1);
    moment_pass(true);
    ck_assert_uint_eq(modules_stale, 0);
    /* Once a second at most. */
    modules_stale = 1;
    moment_set_due_now();
    moment_pass(true);
    ck_assert_uint_eq(modules_stale, 1);
    ck_assert_uint_le(moment_due_ns, clock_monotonic_ns() + NS_PER_SEC);
    ck_assert_uint_eq(own.made, 0);
}
END_TEST

/* Holds the lock of the objects until it can take the other one. */
static void *hold_objects(void *held)
{
    modules_lock_for_fork();
    sem_post(&((sem_t *)held)[0]);
    sem_wait(&((sem_t *)held)[1]);
    modules_unlock_after_fork();
    return NULL;
}

static void fail_rescans(int count)
{
    sem_t held[2];
    pthread_t holder;
    sem_init(&held[0], 0, 0);
    sem_init(&held[1], 0, 0);
    ck_assert_int_eq(pthread_create(&holder, NULL, hold_objects, held), 0);
    sem_wait(&held[0]);
    for (int i = 0; i < count; i++) {
        agent_thread_reset_in_child(); /* or there is one a second */
        modules_stale = 1;
        moment_set_due_now();
        moment_pass(true);
        ck_assert_uint_eq(modules_stale, 1);
    }
    sem_post(&held[1]);
    pthread_join(holder, NULL);
}

static void rescan_at_moment(void)
{
    agent_thread_reset_in_child();
    moment_set_due_now();
    moment_pass(true);
    ck_assert_uint_eq(modules_stale, 0);
}

/* As behind each dlopen and dlclose of the app. */
static void rescan_by_app(void)
{
    ck_assert_int_eq(modules_rescan(), 0);
}

START_TEST(ten_rescans_that_fail_without_one_between_are_told_once)
{
    static const char text[] = "not up to date";
    static void (*const rescan[])(void) = {rescan_at_moment, rescan_by_app, rescan_by_app};
    own_log_start();
    for (size_t i = 0; i < ARRAY_SIZE(rescan); i++) {
        fail_rescans(9);
        rescan[i]();
    }
    ck_assert_int_eq(own_log_lines(text), 0);
    fail_rescans(10);
    ck_assert_int_eq(own_log_lines(text), 1);
    rescan_by_app();
    fail_rescans(11);
    ck_assert_int_eq(own_log_lines(text), 1);
    own_log_remove();
}
END_TEST

/* ---- fork ---- */

/* ThreadSanitizer has none in a child of a process with threads. */
#ifdef __SANITIZE_THREAD__
enum { CHILD_MAY_HAVE_THREADS = false };
#else
enum { CHILD_MAY_HAVE_THREADS = true };
#endif

static void finish_in_child(void)
{
    thread_reset_in_child();
    recorder_reset_in_child(clock_monotonic_ns(), clock_realtime_ns());
    flush_reset_in_child();
    uploader_reset_in_child(getpid());
    agent_thread_reset_in_child();
    ck_assert_uint_eq(moment_due_ns, recorder_window_start_ns() + options.period_ns);
    own.made = 0;
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(own.made, 0);
    flush_add_sample(RECORD_CPU, 5);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_uint_eq(own.made, 1);
    ck_assert_int_eq(own_written(), 5);
}

START_TEST(a_fork_child_makes_threads_of_its_own)
{
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(agent_thread_flush(own_in_ms(8000)), 0);
    pid_t child = fork();
    if (child == 0) {
        finish_in_child();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    agent_thread_finish(own_in_ms(8000));
    ck_assert_int_eq(own_written(), 100);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("agent_thread");
    TCase *end = tcase_create("end");
    tcase_set_timeout(end, 60);
    tcase_add_checked_fixture(end, own_threads_setup, own_threads_teardown);
    tcase_add_test(end, without_samples_the_end_does_nothing);
    tcase_add_test(end, at_the_end_a_thread_writes_what_is_left);
    tcase_add_test(end, where_no_thread_can_be_made_the_calling_one_writes);
    if (own_thread_uses_libc())
        tcase_add_test(end, where_libc_has_no_threads_the_calling_one_writes);
    tcase_add_test(end, a_thread_without_a_slot_writes_itself);
    tcase_add_test(end, in_the_middle_of_libc_no_thread_is_made);
    tcase_add_test(end, a_disk_that_hangs_is_given_up_at_the_deadline);
    suite_add_tcase(suite, end);
    TCase *requests = tcase_create("requests");
    tcase_set_timeout(requests, 60);
    tcase_add_checked_fixture(requests, own_threads_setup, own_threads_teardown);
    tcase_add_test(requests, a_flush_is_written_when_it_returns);
    tcase_add_test(requests, flushes_without_a_thread_leave_the_uploader_usable);
    tcase_add_test(requests, the_end_is_not_taken_for_a_flush_that_runs);
    suite_add_tcase(suite, requests);
    TCase *periods = tcase_create("periods");
    tcase_set_timeout(periods, 60);
    tcase_add_checked_fixture(periods, own_threads_setup, own_threads_teardown);
    tcase_add_loop_test(periods, a_moment_after_the_period_makes_the_threads, 0, 2);
    tcase_add_test(periods, without_samples_no_thread_is_made);
    tcase_add_loop_test(periods, an_early_thread_is_made_at_the_first_moment, 0, 2);
    tcase_add_test(periods, a_period_of_zero_is_never_over);
    tcase_add_test(periods, a_thread_that_cannot_be_made_is_said_once_and_tried_again);
    tcase_add_test(periods, a_moment_rescans_objects_that_are_not_known);
    tcase_add_test(periods, ten_rescans_that_fail_without_one_between_are_told_once);
    if (CHILD_MAY_HAVE_THREADS)
        tcase_add_test(periods, a_fork_child_makes_threads_of_its_own);
    suite_add_tcase(suite, periods);
    return suite;
}
