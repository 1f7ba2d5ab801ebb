/* The uploader's queue and run loop. Nothing here waits for time to pass: system calls of the run
 * loop's thread are watched, so that a test knows where it stands, can stop it there, and can let
 * its time-outs pass at once. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/temp_folder.h"
#include "uploader/file_backend.h"
#include "uploader/uploader.h"

static char base[64];
static char missing[80];  /* base/gone: while it is, output cannot be made */
static char output[96];   /* base/gone/out */
static char log_path[80]; /* base/log */

/* --- The run loop's thread, watched ---------------------------------------------------------- */

static __thread bool is_run_loop;
static pthread_t run_loop;

static struct {
    long stop_at; /* call number at which the run loop's thread stops once; 0: nowhere */
    sem_t stopped;
    sem_t go_on;
    sem_t asleep;      /* posted when the run loop begins to wait for its next try */
    int time_outs;     /* so many of these waits end at once, by time */
    uint64_t deadline; /* of the last one */
    int mmaps;
    long mapped; /* bytes, of all threads */
    int answered;
} watch;

/* Mappings are made by libc here: ThreadSanitizer must see that an address was given back, or it
 * takes its next owner for a thread that races with the last. */
static bool map_by_libc(long number, const long args[6], long *result)
{
    void *address = (void *)args[0];
    if (number == SYS_mmap) {
        void *mapped = mmap(address, (size_t)args[1], (int)args[2], (int)args[3], (int)args[4], 0);
        *result = mapped == MAP_FAILED ? -errno : (long)mapped;
        __atomic_fetch_add(&watch.mapped, args[1], __ATOMIC_RELAXED);
        return true;
    }
    if (number == SYS_munmap) {
        *result = munmap(address, (size_t)args[1]) ? -errno : 0;
        __atomic_fetch_sub(&watch.mapped, args[1], __ATOMIC_RELAXED);
        return true;
    }
    return false;
}

static bool observe(long number, const long args[6], long *result)
{
    if (is_run_loop) {
        watch.mmaps += number == SYS_mmap;
        if (number == __atomic_load_n(&watch.stop_at, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&watch.stop_at, 0, __ATOMIC_RELEASE);
            sem_post(&watch.stopped);
            sem_wait(&watch.go_on);
        }
    }
    if (map_by_libc(number, args, result))
        return true;
    bool is_retry_wait = is_run_loop && number == SYS_futex && args[3] != 0 &&
                         (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    if (!is_retry_wait)
        return false;
    const struct timespec *deadline = (const void *)args[3];
    watch.deadline = (uint64_t)deadline->tv_sec * NS_PER_SEC + (uint64_t)deadline->tv_nsec;
    if (watch.time_outs > 0) {
        watch.time_outs--;
        watch.answered++;
        *result = -ETIMEDOUT;
        return true;
    }
    sem_post(&watch.asleep);
    return false;
}

static void *run(void *unused)
{
    (void)unused;
    is_run_loop = true;
    uploader_run();
    return NULL;
}

static void start_run_loop(void)
{
    ck_assert_int_eq(pthread_create(&run_loop, NULL, run, NULL), 0);
}

static void end_run_loop(void)
{
    uploader_finish();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    ck_assert_int_eq(pthread_join(run_loop, NULL), 0);
}

static void stop_run_loop_at(long number)
{
    __atomic_store_n(&watch.stop_at, number, __ATOMIC_RELEASE);
}

/* --- Blobs and what became of them ----------------------------------------------------------- */

static void start(enum compression compression, uint64_t limit)
{
    struct uploader_config config = {.folder = output,
                                     .output_limit = limit,
                                     .compression = compression,
                                     .program = "app",
                                     .pid = 77};
    ck_assert_int_eq(uploader_start(&config), 0);
}

static void setup(void)
{
    strcpy(base, temp_folder_make());
    snprintf(missing, sizeof missing, "%s/gone", base);
    snprintf(output, sizeof output, "%s/out", missing);
    snprintf(log_path, sizeof log_path, "%s/log", base);
    write_file(log_path, "", 0);
    log_start(LOG_INFO, log_path);
    sem_init(&watch.stopped, 0, 0);
    sem_init(&watch.go_on, 0, 0);
    sem_init(&watch.asleep, 0, 0);
    sys_override = observe;
    start(COMPRESSION_NONE, 1 << 30);
}

static void teardown(void)
{
    sys_override = NULL;
    temp_folder_remove(base);
}

static void make_output_possible(void)
{
    ck_assert_int_eq(mkdir(missing, 0700), 0);
}

/* The bytes of blob `sequence`: its number in words, long enough to be cut where cut. */
static size_t text_of(uint32_t sequence, char *text, size_t size)
{
    size_t length = 0;
    while (length + 16 < size && length < 1000)
        length += (size_t)snprintf(text + length, size - length, "blob %u, ", sequence);
    return length;
}

static void submit_family(uint32_t sequence, const char *family)
{
    struct blob_header header = {.dialect = "pprof", .sequence = sequence, .end_unix_ns = 1};
    strcpy(header.family, family);
    char text[1100];
    struct buffer body = {0};
    buffer_append(&body, text, text_of(sequence, text, sizeof text));
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    ck_assert_ptr_null(body.data);
    ck_assert_uint_eq(body.size + body.capacity, 0);
}

static void submit(uint32_t sequence)
{
    submit_family(sequence, "cpu");
}

static void assert_written(uint32_t sequence)
{
    char name[64];
    char text[1100];
    snprintf(name, sizeof name, "app.77.%04u.cpu.pb", sequence);
    size_t size;
    char *content = read_file(in_folder(output, name), &size);
    ck_assert_uint_eq(size, text_of(sequence, text, sizeof text));
    ck_assert(memcmp(content, text, size) == 0);
    free(content);
}

/* Blobs first to last, written in this order, and nothing else. */
static void assert_all_written(uint32_t first, uint32_t last)
{
    struct timespec before = {0};
    for (uint32_t i = first; i <= last; i++) {
        char name[64];
        struct stat status;
        assert_written(i);
        snprintf(name, sizeof name, "app.77.%04u.cpu.pb", i);
        ck_assert_int_eq(stat(in_folder(output, name), &status), 0);
        ck_assert(
            status.st_mtim.tv_sec > before.tv_sec ||
            (status.st_mtim.tv_sec == before.tv_sec && status.st_mtim.tv_nsec >= before.tv_nsec));
        before = status.st_mtim;
    }
    ck_assert_int_eq(count_files(output), (int)(last - first + 1));
}

static void run_to_the_end(void)
{
    uploader_finish();
    uploader_run();
    ck_assert(uploader_is_done());
}

static int count_in_log(const char *text)
{
    size_t size;
    char *log = read_file(log_path, &size);
    int count = 0;
    for (const char *at = log; (at = strstr(at, text)); at++)
        count++;
    free(log);
    return count;
}

/* --- The queue ------------------------------------------------------------------------------- */

START_TEST(blobs_are_written_in_order)
{
    make_output_possible();
    for (uint32_t i = 0; i < 10; i++)
        submit(i);
    ck_assert(!uploader_is_done());
    run_to_the_end();
    assert_all_written(0, 9);
    ck_assert_int_eq(count_in_log("libagent: "), 0);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

/* The order of mtimes is too coarse to prove the order of writes: the names tell. */
static char rename_order[512];

static bool note_renames(long number, const long args[6], long *result)
{
    (void)result;
    if (number == SYS_renameat2) {
        strcat(rename_order, (const char *)args[3]);
        strcat(rename_order, " ");
    }
    return false;
}

START_TEST(order_of_writes)
{
    make_output_possible();
    sys_override = note_renames;
    submit(2);
    submit_family(2, "heap");
    submit(1);
    run_to_the_end();
    ck_assert_str_eq(rename_order, "app.77.0002.cpu.pb app.77.0002.heap.pb app.77.0001.cpu.pb ");
}
END_TEST

START_TEST(oldest_is_dropped_when_full)
{
    make_output_possible();
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH; i++)
        submit(i);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    for (uint32_t i = 0; i < 5; i++) {
        submit(UPLOADER_QUEUE_LENGTH + i);
        ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), i + 1);
    }
    run_to_the_end();
    assert_all_written(5, UPLOADER_QUEUE_LENGTH + 4);
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
    ck_assert(uploader_is_done());
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(texts_are_cut_and_copied)
{
    make_output_possible();
    char folder[sizeof output];
    char program[] = "ap p";
    strcpy(folder, output);
    struct uploader_config config = {
        .folder = folder, .output_limit = 1 << 20, .program = program, .pid = 5};
    config.compression = COMPRESSION_NONE;
    ck_assert_int_eq(uploader_start(&config), 0);
    memset(folder, 'x', sizeof folder);
    memset(program, 'x', sizeof program);
    struct blob_header header;
    memset(&header, 'y', sizeof header);
    strcpy(header.family, "cpu");
    header.sequence = 1;
    struct buffer body = {0};
    buffer_append(&body, "x", 1);
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    run_to_the_end();
    ck_assert(file_exists(in_folder(output, "ap_p.5.0001.cpu.pb")));
}
END_TEST

START_TEST(files_are_compressed)
{
    static const char *const commands[] = {"gzip -dc %s/app.77.0000.cpu.pb.gz > %s/plain",
                                           "zstd -qdc %s/app.77.0000.cpu.pb.zst > %s/plain"};
    make_output_possible();
    start(_i == 0 ? COMPRESSION_GZIP : COMPRESSION_ZSTD, 1 << 20);
    submit(0);
    run_to_the_end();
    ck_assert_int_eq(watch.mapped, 0);
    char command[512];
    char text[1100];
    snprintf(command, sizeof command, commands[_i], output, base);
    ck_assert_int_eq(system(command), 0);
    size_t size;
    char *plain = read_file(in_folder(base, "plain"), &size);
    ck_assert_uint_eq(size, text_of(0, text, sizeof text));
    ck_assert(memcmp(plain, text, size) == 0);
    free(plain);
}
END_TEST

START_TEST(last_files_are_named)
{
    char files[1024];
    make_output_possible();
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 0);
    ck_assert_str_eq(files, "");
    submit(0);
    submit_family(0, "heap");
    submit(1);
    run_to_the_end();
    char expected[512];
    int length = snprintf(expected, sizeof expected, "%s/app.77.0001.cpu.pb %s/app.77.0000.heap.pb",
                          output, output);
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

/* --- Failures -------------------------------------------------------------------------------- */

START_TEST(failed_blob_stays_at_the_head)
{
    start_run_loop();
    submit(0);
    sem_wait(&watch.asleep);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log(output), 1);
    ck_assert_int_eq(count_in_log("no such file or directory (errno 2)"), 1);
    ck_assert(!uploader_is_done());
    /* Each submit is a try, and says nothing more. */
    submit(1);
    sem_wait(&watch.asleep);
    submit(2);
    sem_wait(&watch.asleep);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    make_output_possible();
    submit(3);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    assert_all_written(0, 3);
    ck_assert_int_eq(count_in_log("libagent: "), 2);
    ck_assert_int_eq(count_in_log("can be written to "), 1);
    /* The next row of failures is told again. */
    ck_assert_int_eq(rename(output, in_folder(base, "out")), 0);
    ck_assert_int_eq(rmdir(missing), 0);
    submit(4);
    sem_wait(&watch.asleep);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 2);
    make_output_possible();
    end_run_loop();
    assert_all_written(4, 4);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 0);
}
END_TEST

START_TEST(tries_are_repeated_by_time)
{
    watch.time_outs = 3;
    uint64_t before = clock_monotonic_ns();
    submit(0);
    start_run_loop();
    sem_wait(&watch.asleep);
    ck_assert_int_eq(watch.answered, 3);
    ck_assert_uint_ge(watch.deadline, before + UPLOADER_RETRY_NS);
    ck_assert_uint_le(watch.deadline, clock_monotonic_ns() + UPLOADER_RETRY_NS);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    make_output_possible();
    end_run_loop();
    assert_all_written(0, 0);
}
END_TEST

START_TEST(blob_is_compressed_once)
{
    start(COMPRESSION_GZIP, 1 << 20);
    submit(0);
    start_run_loop();
    sem_wait(&watch.asleep);
    ck_assert_int_ge(watch.mmaps, 5); /* zlib's */
    watch.mmaps = 0;
    make_output_possible();
    end_run_loop();
    ck_assert_int_le(watch.mmaps, 1); /* the listing's */
    ck_assert(file_exists(in_folder(output, "app.77.0000.cpu.pb.gz")));
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
    return observe(number, args, result);
}

START_TEST(no_memory_to_compress)
{
    make_output_possible();
    start(COMPRESSION_ZSTD, 1 << 20);
    sys_override = refuse_memory;
    __atomic_store_n(&refusals, 1, __ATOMIC_RELEASE);
    submit(0);
    start_run_loop();
    sem_wait(&watch.asleep);
    ck_assert_int_eq(count_in_log("out of memory"), 1);
    ck_assert_int_eq(count_in_log(output), 1);
    __atomic_store_n(&refusals, 0, __ATOMIC_RELEASE);
    end_run_loop();
    ck_assert(file_exists(in_folder(output, "app.77.0000.cpu.pb.zst")));
}
END_TEST

START_TEST(bounded_while_it_fails)
{
    start_run_loop();
    submit(0);
    sem_wait(&watch.asleep);
    /* Stopped on its way into the next try, the run loop has blob 0 in hand. */
    stop_run_loop_at(SYS_mkdirat);
    submit(1);
    sem_wait(&watch.stopped);
    for (uint32_t i = 2; i <= UPLOADER_QUEUE_LENGTH; i++)
        submit(i);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    sem_post(&watch.go_on);
    /* It fails, and there is no room to put it back. */
    sem_wait(&watch.asleep);
    while (stats_get(STAT_WINDOWS_DROPPED) == 0)
        sem_wait(&watch.asleep);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 1);
    make_output_possible();
    end_run_loop();
    assert_all_written(1, UPLOADER_QUEUE_LENGTH);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(what_fails_at_the_end_is_lost_and_said)
{
    for (uint32_t i = 0; i < 3; i++)
        submit(i);
    start_run_loop();
    sem_wait(&watch.asleep);
    end_run_loop();
    ck_assert(uploader_is_done());
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 3);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    ck_assert_int_eq(count_in_log("libagent: "), 2);
    ck_assert_int_eq(count_in_log("cannot write profiles to "), 1);
    ck_assert_int_eq(count_in_log("3 profiles could not be written and are lost"), 1);
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
        submit(i);
    fault_set_open(O_CREAT, 1, 1, -ENOSPC);
    run_to_the_end();
    ck_assert_int_eq(fault_clear(), 1);
    assert_written(0);
    assert_written(2);
    ck_assert_int_eq(count_files(output), 2);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 1);
    ck_assert_int_eq(count_in_log("no space left on device (errno 28)"), 1);
    ck_assert_int_eq(count_in_log("1 profiles could not be written and are lost"), 1);
}
END_TEST

START_TEST(larger_than_the_limit_is_dropped_at_once)
{
    make_output_possible();
    start(COMPRESSION_NONE, 500);
    start_run_loop();
    for (uint32_t i = 0; i < 3; i++)
        submit(i);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_FAILED), 3);
    ck_assert_int_eq(count_in_log("libagent: "), 1);
    ck_assert_int_eq(count_in_log("a profile of family cpu was dropped: the profile alone exceeds "
                                  "LIBAGENT_OUTPUT_LIMIT"),
                     1);
    end_run_loop();
    ck_assert_int_eq(count_files(output), 0);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

START_TEST(removals_are_said)
{
    make_output_possible();
    start(COMPRESSION_NONE, 2500);
    for (uint32_t i = 0; i < 4; i++)
        submit(i);
    run_to_the_end();
    assert_written(2);
    assert_written(3);
    ck_assert_int_eq(count_files(output), 2);
    ck_assert_int_eq(count_in_log("removed 1 old profiles (100"), 2);
    ck_assert_uint_eq(stats_get(STAT_FILES_REMOVED), 2);
}
END_TEST

START_TEST(unlisted_folder_is_said_once)
{
    make_output_possible();
    submit(0);
    submit(1);
    /* Opened twice for each write: the folder, and the folder to be listed. */
    fault_set_open(O_DIRECTORY, 2, 1, -EACCES);
    run_to_the_end();
    ck_assert_int_eq(fault_clear(), 1);
    assert_all_written(0, 1);
    ck_assert_int_eq(count_in_log("may not be read: LIBAGENT_OUTPUT_LIMIT is not kept there"), 1);
}
END_TEST

/* --- The end --------------------------------------------------------------------------------- */

START_TEST(finish_drains)
{
    make_output_possible();
    for (uint32_t i = 0; i < 8; i++)
        submit(i);
    uploader_finish();
    start_run_loop();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    pthread_join(run_loop, NULL);
    assert_all_written(0, 7);
}
END_TEST

START_TEST(waiting_ends_at_the_deadline)
{
    ck_assert_int_eq(uploader_wait_done(0), 0); /* nothing queued: done, whatever the time */
    submit(0);
    uint64_t deadline = clock_monotonic_ns() + 30 * NS_PER_MS;
    ck_assert_int_eq(uploader_wait_done(deadline), -ETIMEDOUT);
    ck_assert_uint_ge(clock_monotonic_ns(), deadline);
    ck_assert(!uploader_is_done());
    /* A blob in the hands of the run loop is not done either. */
    make_output_possible();
    stop_run_loop_at(SYS_renameat2);
    start_run_loop();
    sem_wait(&watch.stopped);
    ck_assert(!uploader_is_done());
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + NS_PER_MS), -ETIMEDOUT);
    sem_post(&watch.go_on);
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    end_run_loop();
}
END_TEST

START_TEST(goes_on_after_an_end_that_was_none)
{
    make_output_possible();
    submit(0);
    run_to_the_end();
    uploader_resume();
    ck_assert(uploader_is_done());
    submit(1);
    ck_assert(!uploader_is_done());
    start_run_loop();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    end_run_loop();
    /* Submitted after the end, by a thread that then runs the loop itself. */
    submit(2);
    ck_assert(!uploader_is_done());
    uploader_run();
    ck_assert(uploader_is_done());
    assert_all_written(0, 2);
}
END_TEST

/* --- Threads --------------------------------------------------------------------------------- */

/* The run loop stands still in the middle of compression, then of a write; if submit waited for
 * it, this would not end. */
START_TEST(submit_never_waits_for_work)
{
    make_output_possible();
    start(COMPRESSION_GZIP, 1 << 20);
    stop_run_loop_at(_i == 0 ? SYS_mmap : SYS_write);
    start_run_loop();
    submit(0);
    sem_wait(&watch.stopped);
    for (uint32_t i = 1; i <= UPLOADER_QUEUE_LENGTH + 1; i++)
        submit(i);
    char files[64];
    ck_assert_uint_eq(uploader_last_files(files, sizeof files), 0);
    ck_assert(!uploader_is_done());
    /* Blob 0 is in hand: it was 1 that had to go. */
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 1);
    sem_post(&watch.go_on);
    end_run_loop();
    ck_assert(file_exists(in_folder(output, "app.77.0000.cpu.pb.gz")));
    ck_assert(!file_exists(in_folder(output, "app.77.0001.cpu.pb.gz")));
    ck_assert_int_eq(count_files(output), UPLOADER_QUEUE_LENGTH + 1);
}
END_TEST

enum { SUBMITTERS = 4, EACH = 150 };

static void *submit_many(void *argument)
{
    uint32_t first = (uint32_t)(uintptr_t)argument;
    char files[512];
    for (uint32_t i = 0; i < EACH; i++) {
        submit(first + i);
        (void)uploader_is_done();
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
        if (file_exists(in_folder(output, name))) {
            assert_written(i);
            written++;
        }
    }
    ck_assert_uint_eq(written, (uint64_t)count_files(output));
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
    if (!uploader_is_done() || uploader_last_files(files, sizeof files) != 0)
        return 1;
    /* One buffer of each of the three blobs; the lock held, they had to be forgotten. */
    if ((mapped_before - watch.mapped >= 3 * 4096) != lock_was_free)
        return 2;
    struct blob_header header = {.family = "cpu", .sequence = 0};
    struct buffer body = {0};
    buffer_append(&body, "child", 5);
    if (uploader_submit(&header, &body) != 0)
        return 3;
    uploader_finish();
    uploader_run();
    if (!uploader_is_done() || uploader_last_files(files, sizeof files) != 1)
        return 4;
    return count_in_log("libagent: ") == 0 ? 0 : 5;
}

/* 0: the run loop writes, the lock is free. 1: it has just taken the lock (gettid is what the
 * lock asks for then). */
START_TEST(fork_child_begins_anew)
{
    make_output_possible();
    for (uint32_t i = 0; i < 3; i++)
        submit(i);
    stop_run_loop_at(_i == 0 ? SYS_write : SYS_gettid);
    start_run_loop();
    sem_wait(&watch.stopped);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(child_goes_on(_i == 0));
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    size_t size;
    char *content = read_file(in_folder(output, "app.4242.0000.cpu.pb"), &size);
    ck_assert_str_eq(content, "child");
    free(content);
    ck_assert_int_eq(unlink(in_folder(output, "app.4242.0000.cpu.pb")), 0);
    /* The parent ships its own. */
    sem_post(&watch.go_on);
    end_run_loop();
    assert_all_written(0, 2);
    ck_assert_int_eq(watch.mapped, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("uploader");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, blobs_are_written_in_order);
    tcase_add_test(all, order_of_writes);
    tcase_add_test(all, oldest_is_dropped_when_full);
    tcase_add_test(all, broken_and_empty_bodies);
    tcase_add_test(all, texts_are_cut_and_copied);
    tcase_add_loop_test(all, files_are_compressed, 0, 2);
    tcase_add_test(all, last_files_are_named);
    tcase_add_test(all, failed_blob_stays_at_the_head);
    tcase_add_test(all, tries_are_repeated_by_time);
    tcase_add_test(all, blob_is_compressed_once);
    tcase_add_test(all, no_memory_to_compress);
    tcase_add_test(all, bounded_while_it_fails);
    tcase_add_test(all, what_fails_at_the_end_is_lost_and_said);
    tcase_add_test(all, each_is_tried_at_the_end);
    tcase_add_test(all, larger_than_the_limit_is_dropped_at_once);
    tcase_add_test(all, removals_are_said);
    tcase_add_test(all, unlisted_folder_is_said_once);
    tcase_add_test(all, finish_drains);
    tcase_add_test(all, waiting_ends_at_the_deadline);
    tcase_add_test(all, goes_on_after_an_end_that_was_none);
    tcase_add_loop_test(all, submit_never_waits_for_work, 0, 2);
    tcase_add_test(all, many_submit_while_it_runs);
    tcase_add_loop_test(all, fork_child_begins_anew, 0, 2);
    suite_add_tcase(suite, all);
    return suite;
}
