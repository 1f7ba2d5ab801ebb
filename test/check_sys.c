/* System calls, clocks and counters. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/temp_path.h"

/* The fault that `inject` brings about. */
static struct {
    long number;
    int times;   /* how often yet */
    long result; /* what the call then gives */
    long most;   /* else: bytes that a transfer moves at most; 0: no limit */
} fault;

static bool inject(long number, const long args[6], long *result)
{
    if (number != fault.number)
        return false;
    if (fault.times > 0) {
        fault.times--;
        *result = fault.result;
        return true;
    }
    if (fault.most == 0)
        return false;
    *result = sys_raw6(number, args[0], args[1], MIN_OF(args[2], fault.most), 0, 0, 0);
    return true;
}

static void clear_fault(void)
{
    sys_override = NULL;
    memset(&fault, 0, sizeof(fault));
}

static int temporary_file(void)
{
    char path[TEMP_PATH_SIZE];
    int fd = mkstemp(temp_path(path, "sys"));
    ck_assert_int_ge(fd, 0);
    unlink(path);
    return fd;
}

START_TEST(a_failure_is_a_negative_errno_and_leaves_errno_alone)
{
    char data[8];
    errno = 4711;
    ck_assert_int_eq(sys_open("/no/such/file", O_RDONLY, 0), -ENOENT);
    ck_assert_int_eq(sys_read(-1, data, sizeof(data)), -EBADF);
    ck_assert_int_eq(sys_write(-1, data, sizeof(data)), -EBADF);
    ck_assert_int_eq(sys_read_file("/no/such/file", data, sizeof(data)), -ENOENT);
    ck_assert_ptr_null(sys_map(0));
    sys_close(-1);
    ck_assert_int_eq(errno, 4711);
}
END_TEST

START_TEST(open_closes_on_exec)
{
    int fd = sys_open("/dev/null", O_RDONLY, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    sys_close(fd);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

START_TEST(interrupted_calls_are_repeated)
{
    int fd = temporary_file();
    sys_override = inject;
    fault.number = SYS_write, fault.times = 3, fault.result = -EINTR;
    ck_assert_int_eq(sys_write(fd, "abc", 3), 3);
    ck_assert_int_eq(fault.times, 0);
    lseek(fd, 0, SEEK_SET);
    char data[4] = "";
    fault.number = SYS_read, fault.times = 3;
    ck_assert_int_eq(sys_read(fd, data, 3), 3);
    ck_assert_str_eq(data, "abc");
    fault.number = SYS_openat, fault.times = 2;
    int other = sys_open("/dev/null", O_RDONLY, 0);
    ck_assert_int_ge(other, 0);
    clear_fault();
    close(other);
    close(fd);
}
END_TEST

START_TEST(short_transfers_go_on)
{
    int fd = temporary_file();
    sys_override = inject;
    fault.number = SYS_write, fault.most = 2;
    ck_assert_int_eq(sys_write(fd, "abcdefg", 7), 7);
    lseek(fd, 0, SEEK_SET);
    char data[16] = "";
    fault.number = SYS_read;
    ck_assert_int_eq(sys_read(fd, data, 16), 7);
    ck_assert_str_eq(data, "abcdefg");
    clear_fault();
    close(fd);
}
END_TEST

static int writes_seen;
static bool disk_is_full_after_two(long number, const long args[6], long *result)
{
    if (number != SYS_write)
        return false;
    *result = writes_seen++ == 0 ? MIN_OF(args[2], 2) : -ENOSPC;
    return true;
}

START_TEST(an_error_after_some_bytes_tells_the_bytes)
{
    sys_override = disk_is_full_after_two;
    ck_assert_int_eq(sys_write(1, "abcdefg", 7), 2);
    ck_assert_int_eq(sys_write(1, "cdefg", 5), -ENOSPC);
    clear_fault();
}
END_TEST

START_TEST(a_file_is_read_whole_or_cut)
{
    char path[TEMP_PATH_SIZE];
    int fd = mkstemp(temp_path(path, "sys"));
    ck_assert_int_eq(write(fd, "0123456789", 10), 10);
    char data[32];
    memset(data, 'x', sizeof(data));
    ck_assert_int_eq(sys_read_file(path, data, sizeof(data)), 10);
    ck_assert_str_eq(data, "0123456789");
    ck_assert_int_eq(sys_read_file(path, data, 5), 4);
    ck_assert_str_eq(data, "0123");
    ck_assert_int_eq(sys_read_file(path, data, 1), 0);
    ck_assert_str_eq(data, "");
    ck_assert_int_eq(sys_read_file(path, data, 0), -EINVAL);
    sys_override = inject;
    fault.number = SYS_read, fault.times = 1, fault.result = -EIO;
    ck_assert_int_eq(sys_read_file(path, data, sizeof(data)), -EIO);
    ck_assert_str_eq(data, "");
    clear_fault();
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(sys_read_file(path, data, sizeof(data)), 0);
    unlink(path);
    close(fd);
}
END_TEST

START_TEST(only_a_regular_file_is_read)
{
    char fifo[64], data[8];
    snprintf(fifo, sizeof(fifo), "/tmp/check_sys.%d.fifo", (int)getpid());
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    ck_assert_int_eq(sys_read_file(fifo, data, sizeof(data)), -EISDIR);
    unlink(fifo);
    ck_assert_int_eq(sys_read_file("/tmp", data, sizeof(data)), -EISDIR);
    ck_assert_int_eq(sys_read_file("/dev/ptmx", data, sizeof(data)), -EISDIR);
    ck_assert_str_eq(data, "");
    ck_assert_int_gt(sys_read_file("/proc/self/stat", data, sizeof(data)), 0);
}
END_TEST

START_TEST(a_relative_path_gets_the_working_folder)
{
    char out[16];
    ck_assert_int_eq(chdir("/usr"), 0);
    ck_assert_int_eq(sys_absolute("a/b", out, sizeof(out)), 0);
    ck_assert_str_eq(out, "/usr/a/b");
    ck_assert_int_eq(sys_absolute("/a", out, sizeof(out)), 0);
    ck_assert_str_eq(out, "/a");
    ck_assert_int_eq(sys_absolute("0123456789", out, sizeof(out)), 0);
    ck_assert_str_eq(out, "/usr/0123456789");
    ck_assert_int_eq(sys_absolute("0123456789a", out, sizeof(out)), -ENAMETOOLONG);
    ck_assert_str_eq(out, "0123456789a");
    ck_assert_int_eq(sys_absolute("a", out, 4), -ERANGE);
    ck_assert_str_eq(out, "a");
    ck_assert_int_eq(sys_absolute("/123456789abcdef", out, sizeof(out)), -ENAMETOOLONG);
    ck_assert_str_eq(out, "/123456789abcde");
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(sys_absolute("a", out, sizeof(out)), 0);
    ck_assert_str_eq(out, "/a");
}
END_TEST

/* Folders that are gone, or outside of the root: the path stays as it is. */
static char unreachable[] = "(unreachable)/x";

static bool answer_getcwd(long number, const long args[6], long *result)
{
    if (number != SYS_getcwd)
        return false;
    memcpy((void *)args[0], unreachable, sizeof(unreachable));
    *result = sizeof(unreachable);
    return true;
}

START_TEST(a_folder_that_has_no_path_is_left_out)
{
    char out[64];
    sys_override = answer_getcwd;
    ck_assert_int_eq(sys_absolute("a", out, sizeof(out)), -ENOENT);
    ck_assert_str_eq(out, "a");
    sys_override = inject;
    fault.number = SYS_getcwd, fault.times = 1, fault.result = -ENOENT;
    ck_assert_int_eq(sys_absolute("a", out, sizeof(out)), -ENOENT);
    ck_assert_str_eq(out, "a");
    clear_fault();
}
END_TEST

START_TEST(mapped_memory_is_zero_and_goes)
{
    size_t size = 3 * 4096;
    unsigned char *data = sys_map(size);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < size; i++)
        ck_assert_uint_eq(data[i], 0);
    data[size - 1] = 1;
    ck_assert(sys_readable((uintptr_t)data));
    sys_unmap(data, size);
    ck_assert(!sys_readable((uintptr_t)data));
    sys_unmap(NULL, size);
    sys_override = inject;
    fault.number = SYS_mmap, fault.times = 1, fault.result = -ENOMEM;
    ck_assert_ptr_null(sys_map(size));
    clear_fault();
}
END_TEST

START_TEST(readable_tells_each_byte_of_a_page_border)
{
    char *pages = sys_map(3 * 4096);
    ck_assert_int_eq(mprotect(pages, 4096, PROT_NONE), 0);
    ck_assert_int_eq(mprotect(pages + 2 * 4096, 4096, PROT_NONE), 0);
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    for (int i = -16; i < 4096 + 16; i++)
        ck_assert_int_eq(sys_readable((uintptr_t)(pages + 4096 + i)), i >= 0 && i < 4096);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    ck_assert_mem_eq(&before, &after, 8); /* what the kernel knows of it */
    ck_assert_int_eq(mprotect(pages + 4096, 4096, PROT_READ), 0);
    ck_assert(sys_readable((uintptr_t)pages + 4096));
    sys_unmap(pages, 3 * 4096);
}
END_TEST

START_TEST(readable_refuses_what_no_process_has)
{
    static const uintptr_t bad[] = {
        0, 1, 7, 4095, UINT64_C(1) << 47, UINT64_C(1) << 63, UINTPTR_MAX, UINTPTR_MAX - 4096};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!sys_readable(bad[i]), "%lx", bad[i]);
    ck_assert(sys_readable((uintptr_t)bad));
    ck_assert(sys_readable((uintptr_t)sys_readable));
}
END_TEST

START_TEST(what_the_kernel_did_not_tell_leaves_errno_alone)
{
    errno = 4711;
    ck_assert_uint_eq(sys_auxv(AT_PAGESZ), (unsigned long)sysconf(_SC_PAGESIZE));
    ck_assert_uint_eq(sys_auxv(4711), 0);
    ck_assert_int_eq(errno, 4711);
}
END_TEST

START_TEST(ids_are_the_kernels)
{
    ck_assert_int_eq(sys_pid(), getpid());
    ck_assert_int_eq(sys_tid(), getpid());
}
END_TEST

START_TEST(futex_wait_ends_for_each_reason)
{
    uint32_t word = 5;
    ck_assert_int_eq(sys_futex_wait(&word, 6, 0), -EAGAIN);
    uint64_t start = clock_monotonic_ns();
    ck_assert_int_eq(sys_futex_wait(&word, 5, start + 3 * NS_PER_MS), -ETIMEDOUT);
    ck_assert_uint_ge(clock_monotonic_ns(), start + 3 * NS_PER_MS);
    ck_assert_int_eq(sys_futex_wait(&word, 5, 1), -ETIMEDOUT);
}
END_TEST

static uint32_t turn;

static void *take_turn(void *unused)
{
    store_release(&turn, 1);
    sys_futex_wake(&turn, 1);
    return unused;
}

START_TEST(futex_wake_ends_a_wait)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, take_turn, NULL), 0);
    while (load_acquire(&turn) == 0)
        sys_futex_wait(&turn, 0, 0);
    pthread_join(thread, NULL);
}
END_TEST

static uint64_t libc_clock(clockid_t id)
{
    struct timespec time;
    ck_assert_int_eq(clock_gettime(id, &time), 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void check_between(uint64_t (*read)(void), clockid_t id)
{
    uint64_t before = libc_clock(id), value = read(), after = libc_clock(id);
    ck_assert_uint_le(before, value);
    ck_assert_uint_le(value, after);
}

START_TEST(clocks_agree_with_libc)
{
    for (int i = 0; i < 1000; i++) {
        check_between(clock_monotonic_ns, CLOCK_MONOTONIC);
        check_between(clock_realtime_ns, CLOCK_REALTIME);
        check_between(clock_thread_cpu_ns, CLOCK_THREAD_CPUTIME_ID);
    }
}
END_TEST

static int other_tid;
static uint32_t other_may_end;

static void *burn_and_wait(void *unused)
{
    while (clock_thread_cpu_ns() < 5 * NS_PER_MS)
        ;
    store_release(&other_tid, sys_tid());
    while (load_acquire(&other_may_end) == 0)
        sys_futex_wait(&other_may_end, 0, 0);
    return unused;
}

START_TEST(another_threads_clock_can_be_read_while_it_lives)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, burn_and_wait, NULL), 0);
    int tid;
    while ((tid = load_acquire(&other_tid)) == 0)
        ;
    clockid_t id;
    ck_assert_int_eq(pthread_getcpuclockid(thread, &id), 0);
    ck_assert_int_eq(clock_id_of_thread(tid), id);
    ck_assert_uint_ge(clock_thread_cpu_of_ns(tid), 5 * NS_PER_MS);
    store_release(&other_may_end, 1);
    sys_futex_wake(&other_may_end, 1);
    pthread_join(thread, NULL);
    /* join may return a moment before the kernel has forgotten the thread. */
    errno = 4711;
    while (clock_thread_cpu_of_ns(tid) != 0)
        ;
    ck_assert_int_eq(errno, 4711);
}
END_TEST

START_TEST(a_refused_clock_reads_zero)
{
    sys_override = inject;
    fault.number = SYS_clock_gettime, fault.times = 1, fault.result = -EPERM;
    ck_assert_uint_eq(clock_thread_cpu_ns(), 0);
    clear_fault();
}
END_TEST

START_TEST(stats_count_have_a_text_and_reset)
{
    for (int i = 0; i < STAT_COUNT; i++) {
        enum stat_id stat = (enum stat_id)i;
        ck_assert_ptr_nonnull(stats_text(stat));
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(stats_text(stat), stats_text((enum stat_id)j));
        stats_add(stat, (uint64_t)i + 1);
        stats_add(stat, 1);
    }
    for (int i = 0; i < STAT_COUNT; i++)
        ck_assert_uint_eq(stats_get((enum stat_id)i), (uint64_t)i + 2);
    stats_reset();
    for (int i = 0; i < STAT_COUNT; i++)
        ck_assert_uint_eq(stats_get((enum stat_id)i), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("sys");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, a_failure_is_a_negative_errno_and_leaves_errno_alone);
    tcase_add_test(calls, open_closes_on_exec);
    tcase_add_test(calls, interrupted_calls_are_repeated);
    tcase_add_test(calls, short_transfers_go_on);
    tcase_add_test(calls, an_error_after_some_bytes_tells_the_bytes);
    tcase_add_test(calls, a_file_is_read_whole_or_cut);
    tcase_add_test(calls, only_a_regular_file_is_read);
    tcase_add_test(calls, a_relative_path_gets_the_working_folder);
    tcase_add_test(calls, a_folder_that_has_no_path_is_left_out);
    tcase_add_test(calls, mapped_memory_is_zero_and_goes);
    tcase_add_test(calls, readable_tells_each_byte_of_a_page_border);
    tcase_add_test(calls, readable_refuses_what_no_process_has);
    tcase_add_test(calls, what_the_kernel_did_not_tell_leaves_errno_alone);
    tcase_add_test(calls, ids_are_the_kernels);
    tcase_add_test(calls, futex_wait_ends_for_each_reason);
    tcase_add_test(calls, futex_wake_ends_a_wait);
    suite_add_tcase(suite, calls);
    TCase *clocks = tcase_create("clocks and stats");
    tcase_add_test(clocks, clocks_agree_with_libc);
    tcase_add_test(clocks, another_threads_clock_can_be_read_while_it_lives);
    tcase_add_test(clocks, a_refused_clock_reads_zero);
    tcase_add_test(clocks, stats_count_have_a_text_and_reset);
    suite_add_tcase(suite, clocks);
    return suite;
}
