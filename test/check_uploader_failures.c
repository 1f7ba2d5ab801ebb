/* The uploader's run loop when profiles cannot be compressed or written. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/run_loop_watch.h"
#include "test/temp_folder.h"

START_TEST(failed_blob_stays_at_the_head)
{
    start_run_loop();
    submit_blob(0);
    wait_until_asleep();
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log(watch_output), 1);
    ck_assert_int_eq(count_in_log("no such file or directory (errno 2); the latest are kept"), 1);
    ck_assert(!nothing_is_left());
    /* Each submit is a try, and says nothing more. */
    submit_blob(1);
    wait_until_asleep();
    submit_blob(2);
    wait_until_asleep();
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    make_output_possible();
    submit_blob(3);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    assert_blobs_written(0, 3);
    ck_assert_int_eq(count_in_log("libagent: "), 2);
    ck_assert_int_eq(count_in_log("can be written to "), 1);
    /* The next row of failures is told again. */
    ck_assert_int_eq(rename(watch_output, in_folder(watch_base, "out")), 0);
    ck_assert_int_eq(rmdir(watch_missing), 0);
    submit_blob(4);
    wait_until_asleep();
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 2);
    make_output_possible();
    end_run_loop();
    assert_blobs_written(4, 4);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 0);
}
END_TEST

START_TEST(tries_are_repeated_by_time)
{
    watch.time_outs = 3;
    uint64_t before = clock_monotonic_ns();
    submit_blob(0);
    start_run_loop();
    wait_until_asleep();
    ck_assert_int_eq(watch.timed_out, 3);
    ck_assert_uint_ge(watch.deadline, before + UPLOADER_RETRY_NS);
    ck_assert_uint_le(watch.deadline, clock_monotonic_ns() + UPLOADER_RETRY_NS);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    make_output_possible();
    end_run_loop();
    assert_blobs_written(0, 0);
}
END_TEST

/* Who waits is told when waiting is in vain, and only then. */
START_TEST(waiting_in_vain)
{
    uint64_t deadline = clock_monotonic_ns() + 20 * NS_PER_SEC;
    start_run_loop();
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH + 4; i++) {
        submit_blob(i);
        ck_assert_int_eq(uploader_wait_done(deadline), -EAGAIN);
        ck_assert(!nothing_is_left());
    }
    ck_assert_uint_lt(clock_monotonic_ns(), deadline);
    make_output_possible();
    submit_blob(UPLOADER_QUEUE_LENGTH + 4);
    ck_assert_int_eq(uploader_wait_done(deadline), 0);
    assert_blobs_written(5, UPLOADER_QUEUE_LENGTH + 4);
    end_run_loop();
}
END_TEST

START_TEST(waiting_while_it_is_tried_again)
{
    watch.time_outs = 1;
    stop_run_loop_at(SYS_mkdirat);
    start_run_loop();
    submit_blob(0);
    sem_wait(&watch.stopped);
    stop_run_loop_at(SYS_mkdirat); /* of the second try, after its time came */
    sem_post(&watch.go_on);
    sem_wait(&watch.stopped);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + NS_PER_MS), -ETIMEDOUT);
    make_output_possible();
    sem_post(&watch.go_on);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    ck_assert_int_eq(watch.timed_out, 1);
    end_run_loop();
}
END_TEST

START_TEST(blob_is_compressed_once)
{
    start_uploader(COMPRESSION_GZIP, 1 << 20);
    submit_blob(0);
    start_run_loop();
    wait_until_asleep();
    ck_assert_int_ge(watch.mmaps, 5); /* zlib's */
    watch.mmaps = 0;
    make_output_possible();
    end_run_loop();
    ck_assert_int_le(watch.mmaps, 1); /* the listing's */
    ck_assert(file_exists(in_folder(watch_output, "app.77.0000.cpu.pb.gz")));
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

static int refusals;

static bool refuse_memory(long number, const long args[6], long *result)
{
    if (is_run_loop && number == SYS_mmap && __atomic_load_n(&refusals, __ATOMIC_ACQUIRE)) {
        *result = -ENOMEM;
        return true;
    }
    return watch_calls(number, args, result);
}

START_TEST(no_memory_to_compress)
{
    make_output_possible();
    start_uploader(COMPRESSION_ZSTD, 1 << 20);
    sys_override = refuse_memory;
    __atomic_store_n(&refusals, 1, __ATOMIC_RELEASE);
    submit_blob(0);
    start_run_loop();
    wait_until_asleep();
    ck_assert_int_eq(count_in_log("out of memory"), 1);
    ck_assert_int_eq(count_in_log(watch_output), 1);
    __atomic_store_n(&refusals, 0, __ATOMIC_RELEASE);
    end_run_loop();
    ck_assert(file_exists(in_folder(watch_output, "app.77.0000.cpu.pb.zst")));
}
END_TEST

START_TEST(bounded_while_it_fails)
{
    start_run_loop();
    submit_blob(0);
    wait_until_asleep();
    /* Stopped on its way into the next try, the run loop has blob 0 in hand. */
    stop_run_loop_at(SYS_mkdirat);
    submit_blob(1);
    sem_wait(&watch.stopped);
    for (uint32_t i = 2; i <= UPLOADER_QUEUE_LENGTH; i++)
        submit_blob(i);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    sem_post(&watch.go_on);
    /* It fails, and there is no room to put it back. */
    wait_until_asleep();
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 1);
    make_output_possible();
    end_run_loop();
    assert_blobs_written(1, UPLOADER_QUEUE_LENGTH);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(what_fails_at_the_end_is_lost_and_said)
{
    for (uint32_t i = 0; i < 3; i++)
        submit_blob(i);
    start_run_loop();
    wait_until_asleep();
    end_run_loop();
    ck_assert(nothing_is_left());
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 3);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    ck_assert_int_eq(count_in_log("libagent: "), 2);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log("profiles that could not be written and are lost: 3"), 1);
    ck_assert_int_eq(watch.mapped, 0);
    char files[64];
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 0);
}
END_TEST

/* One that fails at the end does not keep those behind it from their try. */
START_TEST(each_is_tried_at_the_end)
{
    make_output_possible();
    for (uint32_t i = 0; i < 3; i++)
        submit_blob(i);
    fault_set_open(O_CREAT, 1, 1, -ENOSPC);
    run_to_the_end();
    ck_assert_int_eq(fault_clear(), 1);
    assert_blob_written(0);
    assert_blob_written(2);
    ck_assert_int_eq(count_files(watch_output), 2);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 1);
    ck_assert_int_eq(count_in_log("no space left on device (errno 28)\n"), 1);
    ck_assert_int_eq(count_in_log("profiles that could not be written and are lost: 1"), 1);
}
END_TEST

START_TEST(larger_than_the_limit_is_dropped_at_once)
{
    make_output_possible();
    start_uploader(COMPRESSION_NONE, 500);
    start_run_loop();
    for (uint32_t i = 0; i < 3; i++)
        submit_blob(i);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 3);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    ck_assert_int_eq(count_in_log("a profile of family cpu was dropped: the profile alone exceeds "
                                  "LIBAGENT_OUTPUT_LIMIT"),
                     1);
    end_run_loop();
    ck_assert_int_eq(count_files(watch_output), 0);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(removals_are_said)
{
    make_output_possible();
    start_uploader(COMPRESSION_NONE, 2500);
    for (uint32_t i = 0; i < 4; i++)
        submit_blob(i);
    run_to_the_end();
    assert_blob_written(2);
    assert_blob_written(3);
    ck_assert_int_eq(count_files(watch_output), 2);
    ck_assert_int_eq(count_in_log("old profiles removed from"), 2);
    ck_assert_uint_eq(stats_get(STAT_FILES_REMOVED), 2);
}
END_TEST

static void drain(void)
{
    ck_assert_int_eq(uploader_drain(clock_monotonic_ns() + 20 * NS_PER_SEC, false), 0);
}

static void submit_of_dialect(uint32_t sequence, const char *dialect)
{
    struct blob_header header = {.family = "heap", .sequence = sequence};
    strcpy(header.dialect, dialect);
    struct buffer body = {0};
    buffer_append(&body, "small", 5);
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
}

/* For blobs; there is room for what is smaller, and for the log. */
static bool disk_is_full(long number, const long args[6], long *result)
{
    if (number != SYS_write || memcmp((const char *)args[1], "blob", 4) != 0)
        return watch_calls(number, args, result);
    *result = -ENOSPC;
    return true;
}

/* One line when it is, and one when it is not any more, whatever small files get through. */
START_TEST(full_disk_is_told_once)
{
    make_output_possible();
    sys_override = disk_is_full;
    for (uint32_t i = 0; i < 5; i++) {
        submit_blob(i);
        submit_of_dialect(i, "pprof");
        drain();
    }
    ck_assert_int_eq(count_files(watch_output), 5);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log("can be written to "), 0);
    sys_override = watch_calls;
    submit_blob(5);
    drain();
    ck_assert_int_eq(count_in_log("can be written to "), 1);
    /* None of that size may come again. */
    sys_override = disk_is_full;
    submit_blob(6);
    drain();
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 2);
    for (uint32_t i = 0; i < 20; i++) {
        submit_of_dialect(6 + i, "pprof");
        drain();
        ck_assert_int_eq(count_in_log("can be written to "), i < 15 ? 1 : 2);
    }
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 2);
}
END_TEST

/* No file is wanted of it: neither a failed one, nor a sign that files can be written. */
START_TEST(what_is_for_a_backend_alone_is_no_file)
{
    submit_of_dialect(0, "pprof");
    submit_of_dialect(0, "pyroscope");
    drain();
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 1);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log("can be written to "), 0);
}
END_TEST

static bool refuse_listing(long number, const long args[6], long *result)
{
    if (number != SYS_openat || strcmp((const char *)args[1], ".") != 0)
        return watch_calls(number, args, result);
    *result = -EACCES;
    return true;
}

START_TEST(unlisted_folder_is_said_once)
{
    make_output_possible();
    sys_override = refuse_listing;
    submit_blob(0);
    submit_blob(1);
    run_to_the_end();
    assert_blobs_written(0, 1);
    ck_assert_int_eq(count_in_log("may not be read: LIBAGENT_OUTPUT_LIMIT is not kept there"), 1);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("uploader_failures");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, watch_setup, watch_teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, failed_blob_stays_at_the_head);
    tcase_add_test(all, tries_are_repeated_by_time);
    tcase_add_test(all, waiting_in_vain);
    tcase_add_test(all, waiting_while_it_is_tried_again);
    tcase_add_test(all, blob_is_compressed_once);
    tcase_add_test(all, no_memory_to_compress);
    tcase_add_test(all, bounded_while_it_fails);
    tcase_add_test(all, what_fails_at_the_end_is_lost_and_said);
    tcase_add_test(all, each_is_tried_at_the_end);
    tcase_add_test(all, larger_than_the_limit_is_dropped_at_once);
    tcase_add_test(all, removals_are_said);
    tcase_add_test(all, full_disk_is_told_once);
    tcase_add_test(all, what_is_for_a_backend_alone_is_no_file);
    tcase_add_test(all, unlisted_folder_is_said_once);
    suite_add_tcase(suite, all);
    return suite;
}
