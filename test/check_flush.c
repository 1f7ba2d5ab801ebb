/* From windows to files: what a flush submits, in which order, and that nothing is lost when a
 * window has to wait. Recorder, export and uploader are real; the files are read by an independent
 * decoder. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/export/name_cache.h"
#include "agent/flush.h"
#include "agent/record/time_recorder.h"
#include "test/demand.h"
#include "test/flush_fixture.h"
#include "test/temp_folder.h"

static struct thread_slot *own;

static void setup(void)
{
    flush_fixture_start();
    own = thread_attach(0, 0);
    ck_assert_ptr_nonnull(own);
}

static void teardown(void)
{
    temp_folder_remove(flush_folder);
}

/* ---- what is written ---- */

START_TEST(an_empty_window_writes_nothing)
{
    ck_assert(!flush_is_due_at_end());
    ck_assert_int_eq(flush_window(false), 0);
    ck_assert_int_eq(flush_window(true), 0);
    flush_write_out();
    ck_assert_int_eq(count_files(flush_folder), 0);
}
END_TEST

START_TEST(overhead_alone_is_kept_for_a_later_window)
{
    own->overhead_ns[OVERHEAD_HOOKS] = 1234;
    ck_assert_int_eq(flush_window(false), 0);
    ck_assert_uint_eq(own->overhead_ns[OVERHEAD_HOOKS], 0);
    ck_assert(!flush_is_due_at_end());
    flush_add_sample(RECORD_CPU, 5);
    ck_assert(flush_is_due_at_end());
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *cpu = flush_read("cpu");
    ck_assert_int_eq(profile_self(cpu, CPU_NS, "libagent overhead"), 1234);
    ck_assert_int_eq(profile_total(cpu, CPU_NS), 1234 + 5);
}
END_TEST

START_TEST(each_family_is_a_file)
{
    flush_add_sample(RECORD_CPU, 100);
    ck_assert_int_eq(flush_window(false), 1);
    flush_add_sample(RECORD_ALLOC, 200);
    ck_assert_int_eq(flush_window(false), 1);
    flush_add_sample(RECORD_CPU, 300);
    flush_add_sample(RECORD_ALLOC, 400);
    flush_add_sample(RECORD_ALLOC, 400);
    ck_assert_int_eq(flush_window(false), 2);
    ck_assert(!flush_is_due_at_end());
    flush_write_out();
    char names[256];
    int pid = getpid();
    snprintf(names, sizeof(names),
             "app.%d.0000.cpu.pb app.%d.0001.heap.pb app.%d.0002.cpu.pb app.%d.0002.heap.pb", pid,
             pid, pid, pid);
    char *listed = list_folder(flush_folder);
    ck_assert_str_eq(listed, names);
    free(listed);
    struct profile *cpu = flush_read("cpu");
    ck_assert_uint_eq(cpu->file_count, 2);
    ck_assert_int_eq(profile_total(cpu, CPU_SAMPLES), 2);
    ck_assert_int_eq(profile_self(cpu, CPU_NS, "flush_site"), 400);
    ck_assert_int_eq(profile_of_tid(cpu, CPU_NS, getpid()), 400);
    struct profile *heap = flush_read("heap");
    ck_assert_int_eq(profile_total(heap, ALLOC_OBJECTS), 3);
    ck_assert_int_eq(profile_self(heap, ALLOC_BYTES, "flush_site"), 1000);
}
END_TEST

START_TEST(only_windows_that_are_written_have_numbers)
{
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(flush_window(false), 0);
        flush_add_sample(RECORD_CPU, 1);
        ck_assert_int_eq(flush_window(false), 1);
        flush_write_out();
        char name[64];
        snprintf(name, sizeof(name), "app.%d.%04d.cpu.pb", getpid(), i);
        ck_assert(file_exists(in_folder(flush_folder, name)));
    }
}
END_TEST

START_TEST(windows_follow_each_other_without_a_gap)
{
    uint64_t begin = clock_realtime_ns();
    for (int i = 0; i < 3; i++) {
        flush_add_sample(RECORD_CPU, 1);
        ck_assert_int_eq(flush_window(false), 1);
    }
    uint64_t end = clock_realtime_ns();
    struct profile *cpu = flush_read("cpu");
    ck_assert_uint_eq(cpu->file_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const Perftools__Profiles__Profile *file = cpu->files[i];
        ck_assert_int_eq(file->period, (int64_t)NS_PER_SEC / options.frequency);
        ck_assert_int_gt(file->duration_nanos, 0);
        ck_assert_int_ge(file->time_nanos, i ? (int64_t)begin : 0);
        ck_assert_int_le(file->time_nanos + file->duration_nanos, (int64_t)end + 1000000);
        if (i) {
            /* Two clocks are read one after the other: a millisecond is a preemption. */
            int64_t before = cpu->files[i - 1]->time_nanos + cpu->files[i - 1]->duration_nanos;
            ck_assert_int_le(llabs(file->time_nanos - before), 100000000);
        }
    }
}
END_TEST

START_TEST(comments_tell_what_changed_in_the_window)
{
    stats_add(STAT_STACKS_CUT, 7);
    flush_add_sample(RECORD_CPU, 1);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *first = flush_read("cpu");
    ck_assert(profile_has_comment(first, "libagent: stacks cut at LIBAGENT_MAX_FRAMES: 7"));
    ck_assert(profile_has_comment(first, "libagent: stacks in the table: 1"));
    ck_assert(profile_has_comment(first, "libagent: rows in the table: 1"));
    ck_assert(!profile_has_comment(first, "libagent: cpu samples: 0"));
    flush_forget_files();
    stats_add(STAT_STACKS_CUT, 2);
    stats_add(STAT_TIMERS_REFUSED, 1);
    flush_add_sample(RECORD_CPU, 1);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *second = flush_read("cpu");
    ck_assert(profile_has_comment(second, "libagent: stacks cut at LIBAGENT_MAX_FRAMES: 2"));
    ck_assert(
        profile_has_comment(second, "libagent: threads without cpu samples: timer refused: 1"));
    flush_forget_files();
    flush_add_sample(RECORD_CPU, 1);
    ck_assert_int_eq(flush_window(false), 1);
    const Perftools__Profiles__Profile *third = flush_read("cpu")->files[0];
    for (size_t i = 0; i < third->n_comment; i++)
        ck_assert_ptr_null(strstr(third->string_table[third->comment[i]], "LIBAGENT_MAX_FRAMES"));
}
END_TEST

/* ---- the end ---- */

START_TEST(at_the_end_the_rest_of_each_threads_time_is_added)
{
    struct thread_slot *other = thread_prepare(4711, NULL);
    struct thread_slot *gone = thread_adopt(1); /* no thread of this process: its clock reads 0 */
    gone->cpu_last_ns = 5;
    uint64_t accounted = own->cpu_last_ns;
    flush_add_sample(RECORD_CPU, 1000);
    ck_assert_int_eq(flush_window(true), 1);
    uint64_t now = clock_thread_cpu_ns();
    struct profile *cpu = flush_read("cpu");
    int64_t tail = profile_self(cpu, CPU_NS, "[thread end]");
    ck_assert_int_gt(tail, 0);
    ck_assert_int_le(tail, (int64_t)(now - accounted));
    ck_assert_uint_eq(own->cpu_last_ns, accounted + (uint64_t)tail);
    ck_assert_int_eq(profile_total(cpu, CPU_NS), 1000 + tail);
    ck_assert_uint_eq(other->cpu_last_ns, 0); /* not born */
    ck_assert_uint_eq(gone->cpu_last_ns, 5);  /* and not taken back */
}
END_TEST

START_TEST(without_a_cpu_profile_no_time_is_added)
{
    flush_start(false);
    own->overhead_ns[OVERHEAD_HOOKS] = 5;
    flush_add_sample(RECORD_ALLOC, 1000);
    ck_assert_int_eq(flush_window(true), 1);
    flush_write_out();
    ck_assert_int_eq(count_files(flush_folder), 1);
}
END_TEST

START_TEST(a_thread_that_blocks_the_signal_is_accounted)
{
    own->timer = 5;
    own->cpu_last_ns = 0;
    while (clock_thread_cpu_ns() < 200 * NS_PER_MS)
        ;
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *cpu = flush_read("cpu");
    ck_assert_int_ge(profile_self(cpu, CPU_NS, "[not sampled]"), 200000000);
    own->timer = -1;
}
END_TEST

/* ---- windows that wait ---- */

START_TEST(a_sample_that_does_not_end_makes_its_window_wait)
{
    flush_add_sample(RECORD_CPU, 10);
    thread_guard_enter(own);
    uint64_t begin = clock_monotonic_ns();
    ck_assert_int_eq(flush_window(false), -EAGAIN);
    ck_assert_uint_ge(clock_monotonic_ns() - begin, NS_PER_SEC);
    ck_assert(flush_is_due_at_end());
    flush_write_out();
    ck_assert_int_eq(count_files(flush_folder), 0);
    /* The windows do not turn again, and nothing is cleared. */
    flush_add_sample(RECORD_CPU, 200);
    flush_add_sample(RECORD_ALLOC, 7);
    ck_assert_int_eq(flush_window(false), -EAGAIN);
    flush_add_sample(RECORD_CPU, 3000);
    thread_guard_leave(own);
    ck_assert_int_eq(flush_window(false), 3);
    ck_assert(!flush_is_due_at_end());
    struct profile *cpu = flush_read("cpu");
    ck_assert_uint_eq(cpu->file_count, 2);
    ck_assert_int_eq(profile_total(cpu, CPU_NS), 3210);
    ck_assert_int_eq(cpu->stacks[0].values[CPU_NS] + cpu->stacks[1].values[CPU_NS], 3210);
    ck_assert_int_eq(profile_total(flush_read("heap"), ALLOC_BYTES), 7);
}
END_TEST

static bool encoding_fails;

static bool fail_encoding(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOMEM;
    return encoding_fails && (number == SYS_mmap || number == SYS_mremap);
}

START_TEST(a_window_that_cannot_be_encoded_is_counted_and_given_up)
{
    sys_override = fail_encoding;
    encoding_fails = true;
    flush_add_sample(RECORD_CPU, 10);
    flush_add_sample(RECORD_ALLOC, 10);
    ck_assert_int_eq(flush_window(false), -ENOMEM);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 2);
    ck_assert(!flush_is_due_at_end());
    encoding_fails = false;
    flush_add_sample(RECORD_CPU, 5);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *cpu = flush_read("cpu");
    ck_assert_int_eq(profile_total(cpu, CPU_NS), 5);
    ck_assert(profile_has_comment(cpu, "libagent: windows that could not be written: 2"));
    char name[64];
    snprintf(name, sizeof(name), "app.%d.0000.cpu.pb", getpid());
    ck_assert(file_exists(in_folder(flush_folder, name)));
}
END_TEST

START_TEST(the_loss_of_a_waiting_window_is_not_that_of_the_next)
{
    sys_override = fail_encoding;
    flush_add_sample(RECORD_CPU, 10);
    thread_guard_enter(own);
    ck_assert_int_eq(flush_window(false), -EAGAIN);
    thread_guard_leave(own);
    flush_add_sample(RECORD_CPU, 200);
    encoding_fails = true;
    ck_assert_int_eq(flush_window(true), -ENOMEM);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 4); /* two families of two windows */
    ck_assert(!flush_is_due_at_end());
}
END_TEST

/* ---- the agent's own threads ---- */

static int own_thread_tid;
static uint32_t may_end;

static void *burn_as_agent(void *argument)
{
    flush_own_thread_begins(FLUSH_OWN_UPLOADER);
    (void)argument;
    while (clock_thread_cpu_ns() < 5 * NS_PER_MS)
        ;
    store_release(&own_thread_tid, sys_tid());
    while (!load_acquire(&may_end))
        sys_futex_wait(&may_end, 0, 0);
    return NULL;
}

START_TEST(the_agents_own_time_is_overhead)
{
    pthread_t thread;
    ck_assert(!flush_is_own_thread(getpid()));
    pthread_create(&thread, NULL, burn_as_agent, NULL);
    while (!load_acquire(&own_thread_tid))
        ;
    ck_assert(flush_is_own_thread(own_thread_tid));
    flush_add_sample(RECORD_CPU, 1000);
    ck_assert_int_eq(flush_window(false), 1);
    flush_add_sample(RECORD_CPU, 1000);
    ck_assert_int_eq(flush_window(false), 1);
    uint64_t spent = clock_thread_cpu_of_ns(own_thread_tid);
    store_release(&may_end, 1);
    sys_futex_wake(&may_end, 1);
    pthread_join(thread, NULL);
    struct profile *cpu = flush_read("cpu");
    int64_t overhead = profile_of_thread(cpu, CPU_NS, "libagent-up");
    ck_assert_int_ge(overhead, 5000000);
    ck_assert_int_le(overhead, (int64_t)spent);
    ck_assert_int_eq(profile_self(cpu, CPU_NS, "libagent overhead"), overhead);
    ck_assert_uint_eq(stats_get(STAT_FLUSH_NS), (uint64_t)overhead);
}
END_TEST

/* ---- concurrency and fork ---- */

enum { ADDERS = 3, FLUSHES = 12, SAMPLES = 5000 };

static uint32_t adding, flushes;
static uint64_t added[ADDERS];

static void *add_samples(void *argument)
{
    size_t self = (size_t)argument;
    demand(thread_attach(0, 0));
    for (uint64_t i = 0; i < SAMPLES || load_relaxed(&flushes) < FLUSHES; i++) {
        flush_add_sample(RECORD_CPU, i % 1000);
        added[self] += i % 1000;
    }
    thread_leave();
    add_relaxed(&adding, -1);
    return NULL;
}

START_TEST(nothing_is_lost_between_windows)
{
    pthread_t threads[ADDERS];
    flush_start(false); /* no overhead of this process's threads */
    adding = ADDERS;
    for (size_t i = 0; i < ADDERS; i++)
        pthread_create(&threads[i], NULL, add_samples, (void *)i);
    while (load_relaxed(&adding)) {
        if (load_relaxed(&flushes) < FLUSHES) {
            int blobs = flush_window(false);
            ck_assert_int_ge(blobs, 0);
            add_relaxed(&flushes, (uint32_t)blobs);
            flush_write_out();
        }
    }
    uint64_t all = 0;
    for (size_t i = 0; i < ADDERS; i++) {
        pthread_join(threads[i], NULL);
        all += added[i];
    }
    ck_assert_int_ge(flush_window(false), 0);
    struct profile *cpu = flush_read("cpu");
    ck_assert_uint_ge(cpu->file_count, FLUSHES);
    ck_assert_int_eq(profile_total(cpu, CPU_NS), (int64_t)all);
}
END_TEST

START_TEST(a_fork_child_begins_with_number_zero)
{
    flush_add_sample(RECORD_CPU, 10);
    ck_assert_int_eq(flush_window(false), 1);
    flush_add_sample(RECORD_CPU, 200);
    thread_guard_enter(own);
    ck_assert_int_eq(flush_window(false), -EAGAIN);
    pid_t child = fork();
    if (child == 0) {
        thread_reset_in_child();
        recorder_reset_in_child(clock_monotonic_ns(), clock_realtime_ns());
        stats_reset();
        flush_reset_in_child();
        uploader_reset_in_child(getpid());
        ck_assert(!flush_is_due_at_end()); /* what waits is the parent's */
        flush_add_sample(RECORD_CPU, 3000);
        ck_assert_int_eq(flush_window(false), 1);
        flush_write_out();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    thread_guard_leave(own);
    ck_assert_int_eq(flush_window(false), 1);
    char name[64];
    snprintf(name, sizeof(name), "app.%d.0000.cpu.pb", child);
    ck_assert(file_exists(in_folder(flush_folder, name)));
    struct profile *cpu = flush_read("cpu"); /* this process's */
    ck_assert_int_eq(profile_total(cpu, CPU_NS), 210);
}
END_TEST

/* True: names that the parent had are there. */
static bool child_has_names(void)
{
    pid_t child = fork();
    if (child == 0) {
        sys_override = NULL;
        flush_reset_in_child();
        _exit(name_cache_size() > 0);
    }
    int status = -1;
    demand(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int names_while_reading = -1;

static bool fork_at_first_read(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    if (number == SYS_pread64 && names_while_reading < 0)
        names_while_reading = child_has_names();
    return false;
}

/* Where another thread of the parent is at names, what it keeps may be half written. */
START_TEST(a_fork_child_has_no_names_of_a_flush_under_way)
{
    options.symbol_limit = 1 << 20;
    flush_add_sample(RECORD_CPU, 10);
    ck_assert_int_eq(flush_window(false), 1);
    ck_assert(child_has_names());
    flush_add_sample_at(RECORD_CPU, (uintptr_t)child_has_names + 1, 20);
    sys_override = fork_at_first_read;
    ck_assert_int_eq(flush_window(false), 1);
    sys_override = NULL;
    ck_assert_int_eq(names_while_reading, 0);
    ck_assert(child_has_names());
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("flush");
    TCase *flushes_case = tcase_create("flush");
    tcase_set_timeout(flushes_case, 60);
    tcase_add_checked_fixture(flushes_case, setup, teardown);
    tcase_add_test(flushes_case, an_empty_window_writes_nothing);
    tcase_add_test(flushes_case, overhead_alone_is_kept_for_a_later_window);
    tcase_add_test(flushes_case, each_family_is_a_file);
    tcase_add_test(flushes_case, only_windows_that_are_written_have_numbers);
    tcase_add_test(flushes_case, windows_follow_each_other_without_a_gap);
    tcase_add_test(flushes_case, comments_tell_what_changed_in_the_window);
    tcase_add_test(flushes_case, at_the_end_the_rest_of_each_threads_time_is_added);
    tcase_add_test(flushes_case, without_a_cpu_profile_no_time_is_added);
    tcase_add_test(flushes_case, a_thread_that_blocks_the_signal_is_accounted);
    tcase_add_test(flushes_case, a_sample_that_does_not_end_makes_its_window_wait);
    tcase_add_test(flushes_case, a_window_that_cannot_be_encoded_is_counted_and_given_up);
    tcase_add_test(flushes_case, the_loss_of_a_waiting_window_is_not_that_of_the_next);
    tcase_add_test(flushes_case, the_agents_own_time_is_overhead);
    tcase_add_test(flushes_case, nothing_is_lost_between_windows);
    tcase_add_test(flushes_case, a_fork_child_begins_with_number_zero);
    tcase_add_test(flushes_case, a_fork_child_has_no_names_of_a_flush_under_way);
    suite_add_tcase(suite, flushes_case);
    return suite;
}
