#include "test/run_loop_watch.h"

#include <check.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/sys.h"
#include "test/temp_folder.h"

char watch_base[64];
char watch_missing[80];
char watch_output[96];
static char watch_log[80];

__thread bool is_run_loop;
struct watch watch;

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

static bool observe_wait(uint32_t *news, uint32_t seen, const struct timespec *deadline,
                         long *result)
{
    if (!deadline) {
        sem_post(&watch.idle);
        return false;
    }
    watch.deadline = (uint64_t)deadline->tv_sec * NS_PER_SEC + (uint64_t)deadline->tv_nsec;
    if (watch.time_outs == 0) {
        __atomic_store_n(&watch.news, news, __ATOMIC_RELAXED);
        __atomic_store_n(&watch.seen, seen, __ATOMIC_RELEASE);
        sem_post(&watch.asleep);
        return false;
    }
    watch.time_outs--;
    watch.timed_out++;
    *result = -ETIMEDOUT;
    return true;
}

bool watch_calls(long number, const long args[6], long *result)
{
    if (number == SYS_renameat2)
        strcat(strcat(watch.order, (const char *)args[3]), " ");
    if (is_run_loop) {
        watch.mmaps += number == SYS_mmap;
        if (number == __atomic_load_n(&watch.stop_at, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&watch.stop_at, 0, __ATOMIC_RELEASE);
            sem_post(&watch.stopped);
            sem_wait(&watch.go_on);
        }
        if (number == SYS_futex && (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
            return observe_wait((uint32_t *)args[0], (uint32_t)args[2],
                                (const struct timespec *)args[3], result);
    }
    return map_by_libc(number, args, result);
}

static void *run(void *unused)
{
    (void)unused;
    is_run_loop = true;
    uploader_run(false);
    return NULL;
}

static pthread_t run_loop;

void start_run_loop(void)
{
    ck_assert_int_eq(pthread_create(&run_loop, NULL, run, NULL), 0);
}

void end_run_loop(void)
{
    uploader_finish();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 20 * NS_PER_SEC), 0);
    ck_assert_int_eq(pthread_join(run_loop, NULL), 0);
}

/* Between a blob's entry into the queue and the word that tells of it the loop may try, and begin
 * a wait that does not last: that is not the one that is waited for. */
void wait_until_asleep(void)
{
    do
        sem_wait(&watch.asleep);
    while (__atomic_load_n(&watch.seen, __ATOMIC_ACQUIRE) !=
           __atomic_load_n(__atomic_load_n(&watch.news, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE));
}

void stop_run_loop_at(long number)
{
    __atomic_store_n(&watch.stop_at, number, __ATOMIC_RELEASE);
}

/* --- Blobs and what became of them ----------------------------------------------------------- */

void start_uploader(enum compression compression, uint64_t limit)
{
    struct uploader_config config = {.folder = watch_output,
                                     .output_limit = limit,
                                     .compression = compression,
                                     .program = "app",
                                     .pid = 77};
    ck_assert_int_eq(uploader_start(&config), 0);
}

void watch_setup(void)
{
    strcpy(watch_base, temp_folder_make());
    snprintf(watch_missing, sizeof watch_missing, "%s/gone", watch_base);
    snprintf(watch_output, sizeof watch_output, "%s/out", watch_missing);
    snprintf(watch_log, sizeof watch_log, "%s/log", watch_base);
    write_file(watch_log, "", 0);
    log_start(LOG_INFO, watch_log);
    sem_init(&watch.stopped, 0, 0);
    sem_init(&watch.go_on, 0, 0);
    sem_init(&watch.asleep, 0, 0);
    sem_init(&watch.idle, 0, 0);
    sys_override = watch_calls;
    start_uploader(COMPRESSION_NONE, 1 << 30);
}

void watch_teardown(void)
{
    sys_override = NULL;
    temp_folder_remove(watch_base);
}

void make_output_possible(void)
{
    ck_assert_int_eq(mkdir(watch_missing, 0700), 0);
}

size_t blob_text(uint32_t sequence, char *text, size_t size)
{
    size_t length = 0;
    while (length + 16 < size && length < 1000)
        length += (size_t)snprintf(text + length, size - length, "blob %u, ", sequence);
    return length;
}

void submit_blob_of(uint32_t sequence, const char *family)
{
    struct blob_header header = {.dialect = "pprof", .sequence = sequence, .end_unix_ns = 1};
    strcpy(header.family, family);
    char text[1100];
    struct buffer body = {0};
    buffer_append(&body, text, blob_text(sequence, text, sizeof text));
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
    ck_assert_ptr_null(body.data);
    ck_assert_uint_eq(body.size + body.capacity, 0);
}

void submit_blob(uint32_t sequence)
{
    submit_blob_of(sequence, "cpu");
}

void assert_blob_written(uint32_t sequence)
{
    char name[64];
    char text[1100];
    snprintf(name, sizeof name, "app.77.%04u.cpu.pb", sequence);
    size_t size;
    char *content = read_file(in_folder(watch_output, name), &size);
    ck_assert_uint_eq(size, blob_text(sequence, text, sizeof text));
    ck_assert(memcmp(content, text, size) == 0);
    free(content);
}

void assert_blobs_written(uint32_t first, uint32_t last)
{
    char expected[sizeof watch.order] = "";
    for (uint32_t i = first; i <= last; i++) {
        assert_blob_written(i);
        snprintf(expected + strlen(expected), 64, "app.77.%04u.cpu.pb ", i);
    }
    ck_assert_uint_ge(strlen(watch.order), strlen(expected));
    ck_assert_str_eq(watch.order + strlen(watch.order) - strlen(expected), expected);
    ck_assert_int_eq(count_files(watch_output), (int)(last - first + 1));
}

bool nothing_is_left(void)
{
    return uploader_wait_done(0) == 0;
}

void run_to_the_end(void)
{
    uploader_finish();
    uploader_run(false);
    ck_assert(nothing_is_left());
}

int count_in_log(const char *text)
{
    size_t size;
    char *log = read_file(watch_log, &size);
    int count = 0;
    for (const char *at = log; (at = strstr(at, text)); at++)
        count++;
    free(log);
    return count;
}
