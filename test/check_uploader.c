/* The uploader's queue: order, bounds, the end, threads, fork. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/run_loop_watch.h"
#include "test/temp_folder.h"

/* --- The queue ------------------------------------------------------------------------------- */

START_TEST(blobs_are_written_in_order)
{
    make_output_possible();
    for (uint32_t i = 0; i < 10; i++)
        submit_blob(i);
    ck_assert(!nothing_is_left());
    run_to_the_end();
    assert_blobs_written(0, 9);
    ck_assert_int_eq(count_in_log("libagent: "), 0);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(order_is_that_of_submits)
{
    make_output_possible();
    submit_blob(2);
    submit_blob_of(2, "heap");
    submit_blob(1);
    run_to_the_end();
    ck_assert_str_eq(watch.order, "app.77.0002.cpu.pb app.77.0002.heap.pb app.77.0001.cpu.pb ");
}
END_TEST

START_TEST(oldest_is_dropped_when_full)
{
    make_output_possible();
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH; i++)
        submit_blob(i);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    for (uint32_t i = 0; i < 5; i++) {
        submit_blob(UPLOADER_QUEUE_LENGTH + i);
        ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), i + 1);
    }
    run_to_the_end();
    assert_blobs_written(5, UPLOADER_QUEUE_LENGTH + 4);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 5);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 0);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(broken_and_empty_bodies)
{
    struct blob_header header = {.family = "cpu"};
    struct buffer body = {0};
    buffer_append(&body, "x", 1);
    body.error = -ENOMEM;
    ck_assert_int_eq(uploader_submit(&header, &body), -ENOMEM);
    ck_assert_ptr_null(body.data);
    ck_assert_int_eq(body.error, 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 1);
    ck_assert_ptr_nonnull(buffer_room(&body, 10));
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    ck_assert_ptr_null(body.data);
    ck_assert(nothing_is_left());
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(texts_are_cut_and_copied)
{
    make_output_possible();
    char folder[sizeof watch_output];
    char program[] = "ap p";
    strcpy(folder, watch_output);
    struct uploader_config config = {
        .folder = folder, .output_limit = 1 << 20, .program = program, .pid = 5};
    config.compression = COMPRESSION_NONE;
    ck_assert_int_eq(uploader_start(&config), 0);
    memset(folder, 'x', sizeof folder);
    memset(program, 'x', sizeof program);
    struct blob_header header;
    memset(&header, 'y', sizeof header);
    strcpy(header.dialect, "pprof");
    strcpy(header.family, "cpu");
    strcpy(header.capture, "");
    header.sequence = 1;
    struct buffer body = {0};
    buffer_append(&body, "x", 1);
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    run_to_the_end();
    ck_assert(file_exists(in_folder(watch_output, "ap_p.5.0001.cpu.pb")));
    memset(header.family, 'y', sizeof header.family);
    buffer_append(&body, "x", 1);
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    run_to_the_end();
    ck_assert_int_eq(count_in_log("family yyyyyyyyyyyyyyy was dropped"), 1);
}
END_TEST

START_TEST(files_are_compressed)
{
    static const char *const commands[] = {"gzip -dc %s/app.77.0000.cpu.pb.gz > %s/plain",
                                           "zstd -qdc %s/app.77.0000.cpu.pb.zst > %s/plain"};
    make_output_possible();
    start_uploader(_i == 0 ? COMPRESSION_GZIP : COMPRESSION_ZSTD, 1 << 20);
    submit_blob(0);
    run_to_the_end();
    ck_assert_int_eq(watch.mapped, 0);
    char command[512];
    char text[1100];
    snprintf(command, sizeof command, commands[_i], watch_output, watch_base);
    ck_assert_int_eq(system(command), 0);
    size_t size;
    char *plain = read_file(in_folder(watch_base, "plain"), &size);
    ck_assert_uint_eq(size, blob_text(0, text, sizeof text));
    ck_assert(memcmp(plain, text, size) == 0);
    free(plain);
}
END_TEST

static void submit_as(const char *dialect, const char *family)
{
    struct blob_header header = {.sequence = 3};
    struct buffer body = {0};
    strcpy(header.dialect, dialect);
    strcpy(header.family, family);
    buffer_append(&body, dialect, strlen(dialect));
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
}

/* Only formats that are asked for are files, and those for people are as they are. */
START_TEST(formats_of_files)
{
    struct uploader_config config = {.folder = watch_output,
                                     .output_limit = 1 << 20,
                                     .compression = COMPRESSION_GZIP,
                                     .program = "app",
                                     .pid = 77,
                                     .routes.formats = FORMAT_HTML | FORMAT_COLLAPSED};
    make_output_possible();
    ck_assert_int_eq(uploader_start(&config), 0);
    ck_assert(!routes_want("pprof") && !routes_want("parca") && !routes_want("svg"));
    ck_assert(routes_want("html") && routes_want("collapsed") && routes_have_files());
    static const char *const dialects[] = {"pprof", "html", "collapsed"};
    for (size_t i = 0; i < 3; i++) {
        submit_as(dialects[i], "cpu");
        submit_as(dialects[i], "heap-growth");
    }
    run_to_the_end();
    char *names = list_folder(watch_output);
    ck_assert_str_eq(names, "app.77.0003.cpu.collapsed app.77.0003.cpu.html "
                            "app.77.0003.heap-growth.collapsed app.77.0003.heap-growth.html");
    free(names);
    size_t size;
    char *content = read_file(in_folder(watch_output, "app.77.0003.cpu.html"), &size);
    ck_assert_uint_eq(size, 4);
    ck_assert_mem_eq(content, "html", 4);
    free(content);
    char files[1024];
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 4);
    ck_assert_ptr_nonnull(strstr(files, "app.77.0003.cpu.html "));
    ck_assert_ptr_nonnull(strstr(files, "app.77.0003.cpu.collapsed "));
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(last_files_are_named)
{
    char files[1024];
    make_output_possible();
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 0);
    ck_assert_str_eq(files, "");
    submit_blob(0);
    submit_blob_of(0, "heap");
    submit_blob(1);
    run_to_the_end();
    char expected[512];
    int length = snprintf(expected, sizeof expected, "%s/app.77.0001.cpu.pb %s/app.77.0000.heap.pb",
                          watch_output, watch_output);
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 3);
    ck_assert_str_eq(files, expected);
    /* Room for exactly both, and for one of them. */
    ck_assert_uint_eq(uploader_last_files(files, (size_t)length + 1), 3);
    ck_assert_str_eq(files, expected);
    ck_assert_uint_eq(uploader_last_files(files, (size_t)length), 3);
    *strchr(expected, ' ') = 0;
    ck_assert_str_eq(files, expected);
    ck_assert_uint_eq(uploader_last_files(files, 5), 3);
    ck_assert_str_eq(files, "");
    ck_assert_uint_eq(uploader_last_files(NULL, 0), 3);
}
END_TEST

/* --- The end --------------------------------------------------------------------------------- */

START_TEST(finish_drains)
{
    make_output_possible();
    for (uint32_t i = 0; i < 8; i++)
        submit_blob(i);
    uploader_finish();
    start_run_loop();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    end_run_loop();
    assert_blobs_written(0, 7);
}
END_TEST

START_TEST(waiting_ends_at_the_deadline)
{
    ck_assert_int_eq(uploader_wait_done(0), 0); /* nothing queued: done, whatever the time */
    submit_blob(0);
    uint64_t deadline = clock_monotonic_ns() + 30 * NS_PER_MS;
    ck_assert_int_eq(uploader_wait_done(deadline), -ETIMEDOUT);
    ck_assert_uint_ge(clock_monotonic_ns(), deadline);
    ck_assert(!nothing_is_left());
    /* A blob in the hands of the run loop is not done either. */
    make_output_possible();
    stop_run_loop_at(SYS_renameat2);
    start_run_loop();
    sem_wait(&watch.stopped);
    ck_assert(!nothing_is_left());
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + NS_PER_MS), -ETIMEDOUT);
    sem_post(&watch.go_on);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    end_run_loop();
}
END_TEST

START_TEST(goes_on_after_an_end_that_was_none)
{
    make_output_possible();
    submit_blob(0);
    run_to_the_end();
    uploader_resume();
    ck_assert(nothing_is_left());
    submit_blob(1);
    ck_assert(!nothing_is_left());
    start_run_loop();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    sem_wait(&watch.idle); /* it has not ended: it waits for more */
    end_run_loop();
    /* Submitted after the end, by a thread that then runs the loop itself. */
    submit_blob(2);
    ck_assert(!nothing_is_left());
    uploader_run(false);
    ck_assert(nothing_is_left());
    assert_blobs_written(0, 2);
}
END_TEST

/* --- Threads --------------------------------------------------------------------------------- */

/* The run loop stands still in the middle of compression, then of a write; if submit waited for
 * it, this would not end. */
START_TEST(a_pause_keeps_what_is_queued)
{
    make_output_possible();
    submit_blob(0);
    uploader_pause(true);
    submit_blob(1);
    uploader_run(false);
    ck_assert_str_eq(watch.order, "");
    ck_assert(!uploader_is_done());
    uploader_pause(false);
    run_to_the_end();
    assert_blobs_written(0, 1);
}
END_TEST

static int drained_within;

static bool drain_within(long number, const long args[6], long *result)
{
    if (number == SYS_renameat2)
        drained_within = uploader_drain(clock_monotonic_ns() + 20 * NS_PER_SEC, false);
    return watch_calls(number, args, result);
}

/* The blob in the loop's hands, and the turn that it comes to, are one thread's. */
START_TEST(one_thread_at_a_time_writes)
{
    make_output_possible();
    submit_blob(0);
    stop_run_loop_at(SYS_renameat2);
    start_run_loop();
    sem_wait(&watch.stopped);
    submit_blob(1);
    uploader_run(false);
    ck_assert_int_eq(uploader_drain(clock_monotonic_ns() + NS_PER_MS, false), -ETIMEDOUT);
    ck_assert_str_eq(watch.order, "app.77.0000.cpu.pb ");
    sem_post(&watch.go_on);
    ck_assert_int_eq(uploader_drain(clock_monotonic_ns() + 20 * NS_PER_SEC, false), 0);
    assert_blobs_written(0, 1);
    end_run_loop();
    submit_blob(2);
    ck_assert_int_eq(uploader_drain(0, false), 0);
    assert_blobs_written(0, 2);
}
END_TEST

/* A handler that interrupted the run loop. */
START_TEST(a_drain_in_the_midst_of_a_drain_is_refused)
{
    make_output_possible();
    submit_blob(0);
    sys_override = drain_within;
    ck_assert_int_eq(uploader_drain(0, false), 0);
    ck_assert_int_eq(drained_within, -EDEADLK);
    assert_blobs_written(0, 0);
}
END_TEST

START_TEST(submit_never_waits_for_work)
{
    make_output_possible();
    start_uploader(COMPRESSION_GZIP, 1 << 20);
    stop_run_loop_at(_i == 0 ? SYS_mmap : SYS_write);
    start_run_loop();
    submit_blob(0);
    sem_wait(&watch.stopped);
    for (uint32_t i = 1; i <= UPLOADER_QUEUE_LENGTH + 1; i++)
        submit_blob(i);
    char files[64];
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 0);
    ck_assert(!nothing_is_left());
    /* Blob 0 is in hand: it was 1 that had to go. */
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 1);
    sem_post(&watch.go_on);
    end_run_loop();
    ck_assert(file_exists(in_folder(watch_output, "app.77.0000.cpu.pb.gz")));
    ck_assert(!file_exists(in_folder(watch_output, "app.77.0001.cpu.pb.gz")));
    ck_assert_int_eq(count_files(watch_output), UPLOADER_QUEUE_LENGTH + 1);
}
END_TEST

enum { SUBMITTERS = 4, EACH = 150 };

static void *submit_many(void *argument)
{
    uint32_t first = (uint32_t)(uintptr_t)argument;
    char files[512];
    for (uint32_t i = 0; i < EACH; i++) {
        submit_blob(first + i);
        (void)nothing_is_left();
        (void)uploader_last_files(files, sizeof files);
    }
    return NULL;
}

START_TEST(many_submit_while_it_runs)
{
    make_output_possible();
    start_run_loop();
    pthread_t threads[SUBMITTERS];
    for (uintptr_t i = 0; i < SUBMITTERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_many, (void *)(i * EACH)), 0);
    for (int i = 0; i < SUBMITTERS; i++)
        pthread_join(threads[i], NULL);
    end_run_loop();
    /* Each blob is either a whole file or counted. */
    uint64_t written = 0;
    for (uint32_t i = 0; i < SUBMITTERS * EACH; i++) {
        char name[64];
        snprintf(name, sizeof name, "app.77.%04u.cpu.pb", i);
        if (file_exists(in_folder(watch_output, name))) {
            assert_blob_written(i);
            written++;
        }
    }
    ck_assert_uint_eq(written, (uint64_t)count_files(watch_output));
    ck_assert_uint_eq(written + stats_get(STAT_WINDOWS_DROPPED), SUBMITTERS * EACH);
    ck_assert_uint_ge(written, UPLOADER_QUEUE_LENGTH);
    char files[512];
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), written);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

/* --- Fork ------------------------------------------------------------------------------------ */

/* The child's part; its exit status says where it failed. */
static int child_goes_on(bool lock_was_free)
{
    char files[512];
    is_run_loop = false;
    long mapped_before = watch.mapped;
    uploader_reset_in_child(4242);
    if (!nothing_is_left() || uploader_last_files(files, sizeof files) != 0 || files[0])
        return 1;
    /* The lock held, what was queued had to be forgotten; else all of it is freed. */
    if (mapped_before == 0 || watch.mapped != (lock_was_free ? 0 : mapped_before))
        return 2;
    struct blob_header header = {.dialect = "pprof", .family = "cpu", .sequence = 0};
    struct buffer body = {0};
    buffer_append(&body, "child", 5);
    if (uploader_submit(&header, &body) != 0)
        return 3;
    uploader_finish();
    uploader_run(false);
    if (!nothing_is_left() || uploader_last_files(files, sizeof files) != 1)
        return 4;
    return count_in_log("libagent: ") == 0 ? 0 : 5;
}

/* 0: the run loop writes, the lock is free. 1: it has just taken the lock (gettid is what the
 * lock asks for then). */
START_TEST(fork_child_begins_anew)
{
    make_output_possible();
    start_run_loop();
    submit_blob(0);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    sem_wait(&watch.idle);
    stop_run_loop_at(_i == 0 ? SYS_write : SYS_gettid);
    submit_blob(1);
    sem_wait(&watch.stopped);
    /* With the lock held by the run loop nothing more can be queued. */
    for (uint32_t i = 2; i < 4 && _i == 0; i++)
        submit_blob(i);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(child_goes_on(_i == 0));
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    size_t size;
    char *content = read_file(in_folder(watch_output, "app.4242.0000.cpu.pb"), &size);
    ck_assert_str_eq(content, "child");
    free(content);
    ck_assert_int_eq(unlink(in_folder(watch_output, "app.4242.0000.cpu.pb")), 0);
    /* The parent ships its own. */
    sem_post(&watch.go_on);
    end_run_loop();
    assert_blobs_written(0, _i == 0 ? 3 : 1);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("uploader");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, watch_setup, watch_teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, blobs_are_written_in_order);
    tcase_add_test(all, order_is_that_of_submits);
    tcase_add_test(all, oldest_is_dropped_when_full);
    tcase_add_test(all, broken_and_empty_bodies);
    tcase_add_test(all, texts_are_cut_and_copied);
    tcase_add_loop_test(all, files_are_compressed, 0, 2);
    tcase_add_test(all, formats_of_files);
    tcase_add_test(all, last_files_are_named);
    tcase_add_test(all, finish_drains);
    tcase_add_test(all, waiting_ends_at_the_deadline);
    tcase_add_test(all, goes_on_after_an_end_that_was_none);
    tcase_add_test(all, a_pause_keeps_what_is_queued);
    tcase_add_test(all, one_thread_at_a_time_writes);
    tcase_add_test(all, a_drain_in_the_midst_of_a_drain_is_refused);
    tcase_add_loop_test(all, submit_never_waits_for_work, 0, 2);
    tcase_add_test(all, many_submit_while_it_runs);
    tcase_add_loop_test(all, fork_child_begins_anew, 0, 2);
    suite_add_tcase(suite, all);
    return suite;
}
