/* What a start makes anew, and that a thousand starts and stops under load leave nothing behind.
 * Everything but the hooks is real. */
#include "test/check.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent_hot.h"
#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/record/scratch.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_reset.h"
#include "test/life_fixture.h"
#include "test/slot_fixture.h"
#include "test/temp_folder.h"

START_TEST(a_reset_asserts_that_no_sample_and_no_timer_is_left)
{
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(stop(), 0);
    struct thread_slot *slot = thread_current();
    ck_assert_ptr_nonnull(slot);
    thread_guard_enter(slot);
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), -EBUSY);
    thread_guard_leave(slot);
    slot->timer = 7;
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), -EBUSY);
    slot->timer = -1;
    presence_enter();
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), -EBUSY);
    presence_leave();
    ck_assert_ptr_eq(thread_current(), slot);
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), 0);
    ck_assert_ptr_null(thread_current());
}
END_TEST

/* ---- what a start makes anew ---- */

static int no_timer_of_ours(void)
{
    char timers[4096];
    return (int)sys_read_file("/proc/self/timers", timers, sizeof(timers));
}

START_TEST(after_a_stop_no_timer_is_armed_and_no_thread_of_ours_is_there)
{
    ck_assert_int_eq(start(), 0);
    work_until(STAT_CPU_SAMPLES, 3);
    ck_assert_int_ne(no_timer_of_ours(), 0);
    ck_assert_int_eq(stop(), 0);
    ck_assert_int_eq(no_timer_of_ours(), 0);
    ck_assert(!flush_own_threads_there());
    ck_assert_int_eq(count_files(life_folder), 2);
    uint64_t samples = stats_get(STAT_CPU_SAMPLES), allocations = stats_get(STAT_ALLOC_SAMPLES);
    uint64_t until = clock_thread_cpu_ns() + 50 * NS_PER_MS;
    while (clock_thread_cpu_ns() < until)
        agent_allocated(life_folder, 10000);
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), samples);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), allocations);
}
END_TEST

struct sleeper {
    pthread_t thread;
    int tid;
    uint32_t ends;
};

static void *sleep_until(void *data)
{
    struct sleeper *sleeper = data;
    store_release(&sleeper->tid, sys_tid());
    while (!load_acquire(&sleeper->ends))
        sys_futex_wait(&sleeper->ends, 0, 0);
    return NULL;
}

static void sleeper_begin(struct sleeper *sleeper)
{
    *sleeper = (struct sleeper){0};
    ck_assert_int_eq(pthread_create(&sleeper->thread, NULL, sleep_until, sleeper), 0);
    while (!load_acquire(&sleeper->tid))
        sched_yield();
}

static void sleeper_end(struct sleeper *sleeper)
{
    store_release(&sleeper->ends, 1);
    sys_futex_wake(&sleeper->ends, 1);
    pthread_join(sleeper->thread, NULL);
    while (sys_call3(SYS_tgkill, getpid(), sleeper->tid, 0) == 0)
        sched_yield();
}

/* Spoiled, as a run would leave it. */
static void spoil(struct thread_slot *slot)
{
    slot->cpu_last_ns = 1;
    slot->overhead_ns[OVERHEAD_HANDLERS] = 1000000;
    slot->name_age = 5;
    snprintf(slot->label.name, sizeof(slot->label.name), "before");
}

static void check_new(struct thread_slot *slot, int tid, uint64_t from_ns, const char *name)
{
    ck_assert_ptr_nonnull(slot);
    ck_assert_int_eq(slot->tid, tid);
    ck_assert_uint_eq(slot->label.tid, (uint64_t)tid);
    ck_assert_uint_eq(slot->generation, thread_generation);
    ck_assert_uint_ge(slot->cpu_last_ns, from_ns);
    ck_assert_uint_le(slot->cpu_last_ns, clock_thread_cpu_of_ns(tid));
    ck_assert_int_eq((int)slot->overhead_ns[OVERHEAD_HANDLERS], 0);
    ck_assert_str_eq(slot->label.name, name);
    ck_assert_int_eq(slot->timer, -1);
    ck_assert_uint_eq(slot->guard & 1, 0);
}

START_TEST(contexts_are_new_for_threads_that_live_whether_they_had_one_or_not)
{
    struct sleeper old, dead, born;
    ck_assert_int_eq(start(), 0);
    sleeper_begin(&old);
    sleeper_begin(&dead);
    ck_assert_ptr_nonnull(thread_adopt(old.tid));
    ck_assert_ptr_nonnull(thread_adopt(dead.tid));
    struct thread_slot *unborn = thread_prepare(4711, &old);
    struct thread_slot *stale = thread_current();
    ck_assert_int_eq(stop(), 0);
    spoil(stale);
    spoil(thread_find_slot(old.tid));
    spoil(thread_find_slot(dead.tid));
    sleeper_end(&dead);
    thread_release_slot(unborn); /* one that waits for its thread puts scans off */
    sleeper_begin(&born);
    /* Those who wait run nothing of ours: their names are read for them. */
    ck_assert_int_eq(pthread_setname_np(pthread_self(), "old main"), 0);
    ck_assert_int_eq(pthread_setname_np(old.thread, "old"), 0);
    ck_assert_int_eq(pthread_setname_np(born.thread, "born"), 0);
    uint64_t of_main = clock_thread_cpu_ns(), of_old = clock_thread_cpu_of_ns(old.tid);
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), 0);
    ck_assert_ptr_null(thread_current());
    check_new(thread_find_slot(sys_tid()), sys_tid(), of_main, "old main");
    check_new(thread_find_slot(old.tid), old.tid, of_old, "old");
    check_new(thread_find_slot(born.tid), born.tid, 0, "born");
    ck_assert_ptr_null(thread_find_slot(dead.tid));
    /* The thread finds its own, which is made once. */
    struct thread_slot *slot = thread_attach(0, 0);
    ck_assert_ptr_eq(slot, thread_find_slot(sys_tid()));
    ck_assert_ptr_eq(thread_current(), slot);
    ck_assert_uint_eq(slot->thread, SLOT_OF_OURS);
    sleeper_end(&old);
    sleeper_end(&born);
}
END_TEST

/* It holds where the thread begins; its time before the start is not of this run. */
START_TEST(the_slot_of_a_thread_that_is_being_made_stays)
{
    ck_assert_int_eq(start(), 0);
    struct thread_slot *unborn = thread_prepare(4711, life_folder);
    ck_assert_int_eq(stop(), 0);
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), 0);
    ck_assert(slot_is_used(unborn));
    ck_assert_uint_eq(unborn->start_routine, 4711);
    ck_assert_ptr_eq(unborn->start_argument, life_folder);
    uint64_t before = clock_thread_cpu_ns();
    thread_attach_prepared(unborn);
    ck_assert_uint_ge(unborn->cpu_last_ns, before);
    ck_assert_uint_eq(unborn->generation, thread_generation);
}
END_TEST

START_TEST(the_internal_mark_survives)
{
    thread_tls.internal = 1;
    ck_assert_int_eq(thread_reset_all(flush_is_own_thread, 0), 0);
    ck_assert_uint_eq(thread_tls.internal, 1);
    thread_tls.internal = 0;
}
END_TEST

/* The gap that is left of an interval of 1 TiB does not hold up a start with 1 byte for more than
 * the megabyte that a countdown has at most; that of the calling thread is new at once. */
START_TEST(the_countdown_of_bytes_is_drawn_anew)
{
    arena_set_budget((size_t)32 << 20);
    ck_assert_int_eq(thread_start(thread_leave), 0);
    alloc_start(1ull << 40);
    agent_allocated(life_folder, 1);
    ck_assert_uint_le(thread_tls.bytes_until_sample, 1 << 20);
    ck_assert_uint_gt(thread_tls.bytes_after, 0);
    alloc_stop();
    uint64_t left = thread_tls.bytes_until_sample, after = thread_tls.bytes_after;
    alloc_start(1);
    /* As another thread would have it. */
    thread_tls.bytes_until_sample = left;
    thread_tls.bytes_after = after;
    ck_assert_int_eq(recorder_start(1, 1), 0);
    ck_assert_int_eq(scratch_start(10), 0);
    options.max_frames = 10;
    uint32_t calls = 0;
    for (; stats_get(STAT_ALLOC_SAMPLES) == 0; calls++)
        agent_allocated(life_folder, 1024);
    ck_assert_uint_le(calls, 1025);
    agent_allocated(life_folder, 1);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 2);
}
END_TEST

/* ---- buffers ---- */

static char frames_text[32];
static char *frames_pairs[] = {frames_text, NULL};

static int start_with_frames(unsigned frames)
{
    snprintf(frames_text, sizeof(frames_text), "LIBAGENT_MAX_FRAMES=%u", frames);
    options_overlay(OVERLAY_START, frames_pairs);
    return start();
}

/* A recursion so deep that every buffer is filled to its end. */
static __attribute__((noinline)) int recurse(int depth)
{
    if (depth == 0)
        work_until(STAT_CPU_SAMPLES, 3);
    else
        __asm__ volatile("" : : "r"(recurse(depth - 1)));
    return depth;
}

START_TEST(buffers_are_made_for_the_frames_now_in_force)
{
    static const unsigned frames[] = {400, 50, 400};
    size_t reserved[3];
    for (int i = 0; i < 2; i++) { /* what is made once, is */
        ck_assert_int_eq(start_with_frames(400), 0);
        ck_assert_int_eq(stop(), 0);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(start_with_frames(frames[i]), 0);
        ck_assert_uint_eq(options.max_frames, frames[i]);
        reserved[i] = arena_reserved();
        recurse(500);
        ck_assert_uint_ge(stats_get(STAT_STACKS_CUT), 3);
        ck_assert_int_eq(stop(), 0);
    }
    ck_assert_uint_eq(reserved[0], reserved[2]);
    ck_assert_uint_ge(reserved[0] - reserved[1], 350 * sizeof(uint64_t) * SCRATCH_BUFFERS / 2);
}
END_TEST

START_TEST(where_there_is_no_memory_for_them_all_is_as_it_was)
{
    ck_assert_int_eq(start_with_frames(50), 0);
    ck_assert_int_eq(stop(), 0);
    struct thread_slot *slot = thread_current();
    uint32_t generation = thread_generation;
    size_t reserved = arena_reserved();
    sys_override = refuse_maps;
    ck_assert_int_eq(start_with_frames(400), -ENOMEM);
    sys_override = NULL;
    ck_assert_uint_eq(thread_generation, generation);
    ck_assert_ptr_eq(thread_current(), slot);
    ck_assert_uint_le(arena_reserved(), reserved);
    ck_assert_int_eq(start_with_frames(50), 0);
    recurse(100);
    ck_assert_int_eq(stop(), 0);
}
END_TEST

/* A start that fails leaves no tables, and one of our threads, which may stay over stops, may end
 * at any time. */
START_TEST(one_of_our_threads_ends_after_a_start_that_failed)
{
    static char *more_memory[] = {(char *)"LIBAGENT_MEMORY=256MiB", NULL};
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(stop(), 0);
    sys_override = refuse_maps;
    options_overlay(OVERLAY_START, more_memory);
    ck_assert_int_eq(start(), -ENOMEM);
    sys_override = NULL;
    flush_own_thread_begins(FLUSH_OWN_AGENT); /* this one, which has used time */
    flush_own_threads_end();
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(stop(), 0);
}
END_TEST

/* ---- a thousand ---- */

enum { LOADERS = 3 };
static uint32_t load_ends;

static void *load(void *unused)
{
    (void)unused;
    while (!load_acquire(&load_ends)) {
        agent_allocated(life_folder, 300);
        for (volatile int i = 0; i < 1000; i++)
            ;
    }
    return NULL;
}

static void *nothing(void *unused)
{
    return unused;
}

static void *load_with_threads(void *unused)
{
    while (!load_acquire(&load_ends))
        run_in_thread(nothing, unused);
    return NULL;
}

static int entries(const char *path)
{
    int count = 0;
    DIR *list = opendir(path);
    ck_assert_ptr_nonnull(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

static long resident_pages(void)
{
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(file, "%ld %ld", &all, &resident), 2);
    fclose(file);
    return resident;
}

static void cycle(int times)
{
    for (int i = 0; i < times; i++) {
        /* A thread may have no processor for a second, with ThreadSanitizer. */
        int error = start();
        for (int tries = 0; error == -EBUSY && tries < 10; tries++)
            error = start();
        ck_assert_int_eq(error, 0);
        if (i % 50 == 0)
            work_until(STAT_CPU_SAMPLES, 2);
        ck_assert_int_eq(stop(), 0);
    }
}

static void remove_files(void)
{
    temp_folder_remove(life_folder);
    ck_assert_int_eq(mkdir(life_folder, 0700), 0);
}

/* What stays is measured after a hundred, when all is there that is made once. A page that each of
 * the others left would be 4 MiB. ThreadSanitizer's own memory grows. */
START_TEST(a_thousand_starts_and_stops_under_load_leave_nothing)
{
    pthread_t threads[LOADERS + 1];
    struct sleeper sleeper;
    sleeper_begin(&sleeper);
    for (int i = 0; i < LOADERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load, NULL), 0);
    ck_assert_int_eq(pthread_create(&threads[LOADERS], NULL, load_with_threads, NULL), 0);
    cycle(100);
    remove_files();
    size_t reserved = arena_reserved();
    long resident = resident_pages();
    cycle(900);
    ck_assert_uint_eq(arena_reserved(), reserved);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* theirs grows */
    ck_assert_int_le(resident_pages() - resident, 512);
#else
    (void)resident;
#endif
    store_release(&load_ends, 1);
    for (int i = 0; i <= LOADERS; i++)
        pthread_join(threads[i], NULL);
    sleeper_end(&sleeper);
    ck_assert(!flush_own_threads_there());
    /* `.`, `..`, and the main thread; descriptors: 0, 1, 2 and what the suite itself has. */
    int descriptors = entries("/proc/self/fd");
    ck_assert_int_eq(start(), 0);
    ck_assert_uint_le(slots_in_use(), 3);
    ck_assert_int_eq(stop(), 0);
    ck_assert_int_eq(entries("/proc/self/fd"), descriptors);
    ck_assert_int_eq(no_timer_of_ours(), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("life_reset");
    TCase *reset = tcase_create("reset");
    tcase_add_checked_fixture(reset, life_setup, life_teardown);
    tcase_set_timeout(reset, 60);
    tcase_add_test(reset, a_reset_asserts_that_no_sample_and_no_timer_is_left);
    tcase_add_test(reset, after_a_stop_no_timer_is_armed_and_no_thread_of_ours_is_there);
    tcase_add_test(reset, contexts_are_new_for_threads_that_live_whether_they_had_one_or_not);
    tcase_add_test(reset, the_slot_of_a_thread_that_is_being_made_stays);
    tcase_add_test(reset, the_internal_mark_survives);
    tcase_add_test(reset, the_countdown_of_bytes_is_drawn_anew);
    tcase_add_test(reset, buffers_are_made_for_the_frames_now_in_force);
    tcase_add_test(reset, where_there_is_no_memory_for_them_all_is_as_it_was);
    tcase_add_test(reset, one_of_our_threads_ends_after_a_start_that_failed);
    suite_add_tcase(suite, reset);
    TCase *many = tcase_create("many");
    tcase_add_checked_fixture(many, life_setup, life_teardown);
    tcase_set_timeout(many, 240);
    tcase_add_test(many, a_thousand_starts_and_stops_under_load_leave_nothing);
    suite_add_tcase(suite, many);
    return suite;
}
