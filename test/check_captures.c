/* Captures: each a file of its own, a copy of what the window has of it, whoever begins, ends,
 * nests, forgets or races. Recorder, export and uploader are real. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/captures.h"
#include "agent/thread/thread_context.h"
#include "test/demand.h"
#include "test/flush_fixture.h"
#include "test/record_fixture.h"
#include "test/temp_folder.h"

static struct thread_slot *own;
static struct label_room *room;

static void setup(void)
{
    flush_fixture_start();
    own = thread_attach(0, 0);
    ck_assert_ptr_nonnull(own);
    room = user_labels_room(own);
    ck_assert_ptr_nonnull(room);
}

static void teardown(void)
{
    temp_folder_remove(flush_folder);
}

static int begin_at(struct capture **holder, const char *name, uint64_t now_ns)
{
    uint64_t label[LABEL_WORDS_MAX];
    enum capture_scope scope = holder == &captures_process ? CAPTURE_OF_PROCESS : CAPTURE_OF_THREAD;
    demand(label_make(label, capture_key(scope), name, NULL) == 0);
    return capture_begin(holder, scope, label, now_ns);
}

static int begin(const char *name)
{
    return begin_at(&room->capture, name, clock_monotonic_ns());
}

static int end(void)
{
    return capture_end(&room->capture, clock_monotonic_ns());
}

static void add(uint64_t amount)
{
    flush_add_labelled_sample(RECORD_CPU, amount);
}

static void expect_files(const char *pattern, ...)
{
    char expected[1024];
    va_list list;
    va_start(list, pattern);
    vsnprintf(expected, sizeof(expected), pattern, list);
    va_end(list);
    flush_write_out();
    char *listed = list_folder(flush_folder);
    ck_assert_str_eq(listed, expected);
    free(listed);
}

/* What the capture's files have, which the window's file of the same slice has under its label,
 * too, beside all else. */
static int64_t sum_of(const char *name, int64_t number)
{
    char file[64];
    snprintf(file, sizeof(file), "cpu@%s.%d", name, (int)number);
    int64_t copy = profile_total(flush_read(file), CPU_NS);
    const struct profile *window = flush_read("cpu");
    int64_t labelled = profile_under_label(window, CPU_NS, NULL, "capture", name, 0);
    if (!labelled)
        labelled = profile_under_label(window, CPU_NS, NULL, "process_capture", name, 0);
    ck_assert_int_eq(copy, labelled);
    return copy;
}

START_TEST(a_slice_has_a_file_of_its_own)
{
    int pid = getpid();
    add(1);
    ck_assert_int_eq(begin("slice"), 0);
    uint64_t begin_ns = clock_realtime_ns();
    add(20);
    flush_add_labelled_sample(RECORD_ALLOC, 7);
    uint64_t end_ns = clock_realtime_ns();
    ck_assert_int_eq(end(), 0);
    add(300);
    ck_assert_int_eq(flush_window(false), 4);
    expect_files("app.%d.0000.cpu.pb app.%d.0000.cpu@slice.1.pb app.%d.0000.heap.pb "
                 "app.%d.0000.heap@slice.1.pb",
                 pid, pid, pid, pid);
    ck_assert_int_eq(profile_total(flush_read("cpu"), CPU_NS), 321);
    ck_assert_int_eq(sum_of("slice", 1), 20);
    ck_assert_int_eq(profile_total(flush_read("heap@slice.1"), ALLOC_BYTES), 7);
    struct profile *slice = flush_read("cpu@slice.1");
    ck_assert_int_eq(profile_self(slice, CPU_NS, "flush_site"), 20);
    ck_assert(profile_has_comment(slice, "libagent: capture: slice.1, whole"));
    ck_assert(profile_has_comment(slice, "libagent: service: suite"));
    /* Its time is the slice's; the two clocks were read one behind the other. */
    enum { APART_NS = 50000000 };
    const Perftools__Profiles__Profile *file = slice->files[0];
    ck_assert_int_le(file->time_nanos, (int64_t)begin_ns + APART_NS);
    ck_assert_int_ge(file->time_nanos + file->duration_nanos, (int64_t)end_ns - APART_NS);
    ck_assert_int_le(file->duration_nanos, (int64_t)(end_ns - begin_ns) + APART_NS);
}
END_TEST

static char perf_map[64];
static int perf_map_reads;

static bool count_reads(long number, const long args[6], long *result)
{
    (void)result;
    perf_map_reads += number == SYS_openat && strcmp((const char *)args[1], perf_map) == 0;
    return false;
}

/* The map that the program writes is read once for all files of a window, and anew for the next. */
START_TEST(names_of_made_code_are_read_once)
{
    const uintptr_t made = 0x10000; /* where no object is */
    snprintf(perf_map, sizeof(perf_map), "/tmp/perf-%d.map", getpid());
    sys_override = count_reads;
    for (int i = 1; i <= 2; i++) {
        char line[64];
        snprintf(line, sizeof(line), "%lx 10 made_%d\n", (unsigned long)made, i);
        write_file(perf_map, line, strlen(line));
        ck_assert_int_eq(begin("slice"), 0);
        flush_add_sample_at(RECORD_CPU, made + 1, 20);
        flush_add_sample_at(RECORD_ALLOC, made + 1, 7);
        ck_assert_int_eq(end(), 0);
        ck_assert_int_eq(flush_window(false), 4);
        ck_assert_int_eq(perf_map_reads, i);
    }
    sys_override = NULL;
    unlink(perf_map);
    for (int i = 1; i <= 2; i++) {
        char function[16], file[32];
        snprintf(function, sizeof(function), "made_%d", i);
        ck_assert_int_eq(profile_self(flush_read("cpu"), CPU_NS, function), 20);
        ck_assert_int_eq(profile_self(flush_read("heap"), ALLOC_BYTES, function), 7);
        snprintf(file, sizeof(file), "cpu@slice.%d", i);
        ck_assert_int_eq(profile_self(flush_read(file), CPU_NS, function), 20);
    }
}
END_TEST

START_TEST(a_slice_over_windows_has_parts)
{
    static const char *const parts[] = {"first part", "part", "last part"};
    ck_assert_int_eq(begin("slice"), 0);
    for (int i = 0; i < 3; i++) {
        add(10 << i);
        if (i == 2)
            ck_assert_int_eq(end(), 0);
        ck_assert_int_eq(flush_window(false), 2);
    }
    add(1);
    ck_assert_int_eq(flush_window(false), 1);
    struct profile *slice = flush_read("cpu@slice.1");
    ck_assert_uint_eq(slice->file_count, 3);
    for (int i = 0; i < 3; i++) {
        char comment[64];
        snprintf(comment, sizeof(comment), "libagent: capture: slice.1, %s %s",
                 i == 1 ? "a" : "the", parts[i]);
        ck_assert(profile_has_comment(slice, comment));
    }
    ck_assert_int_eq(sum_of("slice", 1), 70);
    ck_assert_int_eq(profile_total(flush_read("cpu"), CPU_NS), 71);
}
END_TEST

START_TEST(the_process_and_a_thread_have_each_their_own)
{
    uint64_t now = clock_monotonic_ns();
    ck_assert_int_eq(begin_at(&captures_process, "all", now), 0);
    ck_assert_int_eq(begin_at(&captures_process, "other", now), -EBUSY);
    add(1);
    ck_assert_int_eq(begin("one"), 0);
    ck_assert_int_eq(begin("two"), -EBUSY);
    add(20);
    ck_assert_int_eq(capture_end(&captures_process, clock_monotonic_ns()), 0);
    ck_assert_int_eq(capture_end(&captures_process, clock_monotonic_ns()), -EALREADY);
    add(300);
    ck_assert_int_eq(end(), 0);
    ck_assert_int_eq(end(), -EALREADY);
    add(4000);
    ck_assert_int_eq(flush_window(false), 3);
    ck_assert_int_eq(profile_total(flush_read("cpu"), CPU_NS), 4321);
    ck_assert_int_eq(sum_of("all", 1), 21);
    ck_assert_int_eq(sum_of("one", 2), 320);
    const struct profile *window = flush_read("cpu");
    ck_assert_int_eq(profile_under_label(window, CPU_NS, NULL, "capture", "two", 0), 0);
    ck_assert_int_eq(profile_under_label(window, CPU_NS, NULL, "process_capture", "other", 0), 0);
}
END_TEST

/* A thread that never sampled with labels of its own is in the process's slice, too. */
static void *sample_elsewhere(void *amount)
{
    demand(thread_attach(0, 0) != NULL);
    flush_add_labelled_sample(RECORD_CPU, *(uint64_t *)amount);
    return amount;
}

START_TEST(the_process_is_all_threads)
{
    pthread_t thread;
    uint64_t amount = 500;
    ck_assert_int_eq(begin_at(&captures_process, "all", clock_monotonic_ns()), 0);
    pthread_create(&thread, NULL, sample_elsewhere, &amount);
    pthread_join(thread, NULL);
    add(60);
    ck_assert_int_eq(capture_end(&captures_process, clock_monotonic_ns()), 0);
    ck_assert_int_eq(flush_window(false), 2);
    ck_assert_int_eq(sum_of("all", 1), 560);
}
END_TEST

START_TEST(what_nobody_ends_ends_at_its_limit)
{
    uint64_t long_ago = clock_monotonic_ns() - CAPTURE_LIMIT_NS;
    ck_assert_int_eq(begin_at(&room->capture, "old", long_ago), 0);
    add(1);
    ck_assert_int_eq(end(), -ETIMEDOUT);
    ck_assert_int_eq(end(), -EALREADY);
    /* One that is over is followed by the next without an end. */
    ck_assert_int_eq(begin_at(&room->capture, "old", long_ago), 0);
    ck_assert_int_eq(begin("new"), 0);
    add(20);
    ck_assert_int_eq(end(), 0);
    /* A flush gives its place back; who ends it then is told so. */
    ck_assert_int_eq(begin_at(&captures_process, "old", long_ago), 0);
    ck_assert_int_eq(flush_window(false), 2);
    ck_assert_int_eq(capture_end(&captures_process, clock_monotonic_ns()), -ETIMEDOUT);
    ck_assert_int_eq(capture_end(&captures_process, clock_monotonic_ns()), -EALREADY);
    for (uint32_t number = 1; number <= 4; number++)
        ck_assert_ptr_null(capture_of_number(number));
    ck_assert_int_eq(sum_of("new", 3), 20);
}
END_TEST

START_TEST(there_are_so_many_at_most)
{
    for (int round = 0; round < 3; round++) {
        uint64_t refused = stats_get(STAT_CAPTURES_REFUSED);
        for (int i = 0; i < CAPTURES_MAX; i++) {
            ck_assert_int_eq(begin("many"), 0);
            if (round != 1)
                add(1);
            ck_assert_int_eq(end(), 0);
        }
        ck_assert_int_eq(begin("many"), -ENOSPC);
        ck_assert_uint_eq(stats_get(STAT_CAPTURES_REFUSED), refused + 1);
        add(100);
        /* Those without a sample have no file, and no place in the end. */
        ck_assert_int_eq(flush_window(false), round == 1 ? 1 : 1 + CAPTURES_MAX);
        flush_write_out();
    }
    ck_assert_int_eq(count_files(flush_folder), 3 + 2 * CAPTURES_MAX);
    ck_assert_int_eq(begin("one"), 0);
    ck_assert_int_eq(end(), 0);
    ck_assert_int_eq(begin("two"), 0);
    /* Nothing to write: the place of the one that has ended is free all the same. */
    ck_assert_int_eq(flush_window(false), 0);
    ck_assert_ptr_null(capture_of_number(3 * CAPTURES_MAX + 1));
    ck_assert_ptr_nonnull(capture_of_number(3 * CAPTURES_MAX + 2));
}
END_TEST

/* The queue holds all captures of a window beside the windows. */
START_TEST(captures_push_no_window_out)
{
    for (int window = 0; window < UPLOADER_QUEUE_LENGTH; window++) {
        for (int i = 0; i < CAPTURES_MAX; i++) {
            ck_assert_int_eq(begin("many"), 0);
            add(1);
            ck_assert_int_eq(end(), 0);
        }
        ck_assert_int_eq(flush_window(false), 1 + CAPTURES_MAX);
    }
    flush_write_out();
    ck_assert_uint_eq(flush_read("cpu")->file_count, UPLOADER_QUEUE_LENGTH);
    ck_assert_int_eq(count_files(flush_folder),
                     UPLOADER_QUEUE_LENGTH + UPLOADER_CAPTURES_QUEUE_LENGTH);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    ck_assert_uint_eq(stats_get(STAT_CAPTURES_DROPPED),
                      UPLOADER_QUEUE_LENGTH * CAPTURES_MAX - UPLOADER_CAPTURES_QUEUE_LENGTH);
}
END_TEST

START_TEST(a_thread_that_ends_ends_its_own)
{
    ck_assert_int_eq(begin("left"), 0);
    add(5);
    thread_leave();
    ck_assert_ptr_null(room->capture);
    ck_assert_uint_eq(capture_of_number(1)->state, CAPTURE_ENDED);
    ck_assert_int_eq(flush_window(false), 2);
    ck_assert(profile_has_comment(flush_read("cpu@left.1"), "libagent: capture: left.1, whole"));
}
END_TEST

/* A slot of before a start, or of the parent of a fork, still points to a place that is another's.
 */
START_TEST(a_holder_of_before_ends_nothing)
{
    struct capture *other = NULL;
    ck_assert_int_eq(begin("before"), 0);
    captures_reset();
    ck_assert_int_eq(begin_at(&other, "after", clock_monotonic_ns()), 0);
    ck_assert_ptr_eq(other, room->capture);
    user_labels_forget(room);
    ck_assert_ptr_null(room->capture);
    ck_assert_ptr_nonnull(capture_here(&other));
    ck_assert_int_eq(capture_end(&other, clock_monotonic_ns()), 0);
}
END_TEST

/* ---- what waiting threads are told ---- */

START_TEST(time_is_cut_where_captures_begin_and_end)
{
    uint64_t now = clock_monotonic_ns(), until = UINT64_MAX;
    ck_assert_ptr_null(captures_at(now, &until));
    ck_assert_uint_eq(until, UINT64_MAX);
    ck_assert_int_eq(begin_at(&captures_process, "first", now + 100), 0);
    ck_assert_int_eq(capture_end(&captures_process, now + 200), 0);
    ck_assert_int_eq(begin_at(&captures_process, "second", now + 300), 0);
    ck_assert_int_eq(begin_at(&room->capture, "thread", now + 50), 0);
    static const struct {
        uint64_t at, until;
        bool has;
    } expected[] = {
        {0, 100, false}, {100, 200, true}, {199, 200, true}, {200, 300, false}, {300, 1000, true}};
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        until = now + 1000;
        ck_assert(!!captures_at(now + expected[i].at, &until) == expected[i].has);
        ck_assert_uint_eq(until, now + expected[i].until);
    }
    /* A thread is in its own while it waits, until the limit. */
    user_labels_keep(room);
    until = UINT64_MAX;
    struct label_view view = user_labels_kept(room, now + 250, &until);
    ck_assert_ptr_eq(view.captures[CAPTURE_OF_THREAD], &room->capture->set);
    ck_assert_uint_eq(until, now + 300);
    until = UINT64_MAX;
    view = user_labels_kept(room, now + 50 + CAPTURE_LIMIT_NS, &until);
    ck_assert_ptr_null(view.captures[CAPTURE_OF_THREAD]);
}
END_TEST

/* ---- races ---- */

enum { THREADS = 3, SLICES = 1000 };

static uint64_t in_slices[THREADS + 1], found_in_slices[THREADS + 1];
static uint32_t done;

static const char *const slice_names[THREADS + 1] = {"a", "b", "c", "process"};

/* One unit of time for each sample in a slice; the process's is begun and ended by all. */
static void *slice(void *which)
{
    uint64_t index = (uint64_t)(uintptr_t)which;
    struct thread_slot *slot = thread_attach(0, 0);
    demand(slot && user_labels_room(slot));
    const struct {
        uint64_t generation, pc;
    } stack = {0, 0x1000};
    for (int i = 0; i < SLICES; i++) {
        /* Until a flush has found room. */
        while (begin_at(&slot->labels->capture, slice_names[index], clock_monotonic_ns()) != 0)
            sched_yield();
        (void)!begin_at(&captures_process, slice_names[THREADS], clock_monotonic_ns());
        thread_guard_enter(slot);
        struct label_view labels = user_labels_here(slot->labels);
        demand(labels.captures[CAPTURE_OF_THREAD] != NULL);
        recorder_add_labelled(RECORD_CPU, (const struct record_stack *)(const void *)&stack, 1,
                              &slot->label, &labels, (struct record_values){1, 1}, true);
        add_relaxed(&in_slices[index], 1);
        add_relaxed(&in_slices[THREADS], labels.captures[CAPTURE_OF_PROCESS] != NULL);
        thread_guard_leave(slot);
        (void)!capture_end(&captures_process, clock_monotonic_ns());
        demand(capture_end(&slot->labels->capture, clock_monotonic_ns()) == 0);
    }
    add_relaxed(&done, 1);
    return which;
}

/* A capture's words are whole: the name is one of the four, under the key of its scope. */
static int count_row(const struct window_row *row, void *unused)
{
    (void)unused;
    for (int i = 0; i < CAPTURE_SCOPES; i++) {
        const struct intern_entry *entry = row->labels[ROW_CAPTURE + i];
        if (!entry)
            continue;
        const uint64_t *at = entry->data, *stop = entry->data + entry->words;
        struct user_label name, number, more;
        demand(label_next(&at, stop, &name) && label_next(&at, stop, &number) &&
               !label_next(&at, stop, &more) && number.is_number && number.number > 0);
        demand(strncmp(name.key, capture_key((enum capture_scope)i), name.key_size) == 0);
        int index = 0;
        while (index <= THREADS && (strlen(slice_names[index]) != name.text_size ||
                                    memcmp(slice_names[index], name.text, name.text_size) != 0))
            index++;
        demand(index <= THREADS && (index == THREADS) == (i == CAPTURE_OF_PROCESS));
        found_in_slices[index] += row->values.amount;
    }
    return 0;
}

static void flush_round(void)
{
    uint64_t told = clock_monotonic_ns();
    captures_end_late(told);
    struct window *window = recorder_turn(told, told);
    demand(thread_guard_quiescent(UINT64_MAX));
    demand(window_each(window, count_row, NULL) == 0);
    recorder_clear(window);
    captures_free(told);
}

START_TEST(nothing_is_lost_in_a_race)
{
    pthread_t threads[THREADS];
    thread_leave();
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, slice, (void *)i);
    while (load_relaxed(&done) < THREADS)
        flush_round();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    flush_round();
    for (int i = 0; i <= THREADS; i++) {
        ck_assert_uint_gt(in_slices[i], 0);
        ck_assert_uint_eq(found_in_slices[i], in_slices[i]);
    }
    /* No place is lost. */
    flush_round();
    struct capture *holders[CAPTURES_MAX] = {0};
    for (int i = 0; i < CAPTURES_MAX; i++)
        ck_assert_int_eq(begin_at(&holders[i], "a", clock_monotonic_ns()), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("captures");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_slice_has_a_file_of_its_own);
    tcase_add_test(all, names_of_made_code_are_read_once);
    tcase_add_test(all, a_slice_over_windows_has_parts);
    tcase_add_test(all, the_process_and_a_thread_have_each_their_own);
    tcase_add_test(all, the_process_is_all_threads);
    tcase_add_test(all, what_nobody_ends_ends_at_its_limit);
    tcase_add_test(all, there_are_so_many_at_most);
    tcase_add_test(all, captures_push_no_window_out);
    tcase_add_test(all, a_thread_that_ends_ends_its_own);
    tcase_add_test(all, a_holder_of_before_ends_nothing);
    tcase_add_test(all, time_is_cut_where_captures_begin_and_end);
    tcase_add_test(all, nothing_is_lost_in_a_race);
    suite_add_tcase(suite, all);
    return suite;
}
