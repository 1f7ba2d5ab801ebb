/* The clocks are the kernel's: whatever else has libc's names for them, and with a vDSO or without
 * one. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"

static bool hide_vdso;
static unsigned libc_calls, kernel_calls;

/* In libc's place, for the agent that is in this program too. */
int clock_gettime(clockid_t id, struct timespec *tp)
{
    libc_calls++;
    return (int)sys_raw6(SYS_clock_gettime, id, (long)tp, 0, 0, 0, 0);
}

unsigned long getauxval(unsigned long type)
{
    ElfW(auxv_t) entry = {0};
    int fd = sys_open("/proc/self/auxv", O_RDONLY, 0);
    do {
        if (sys_read(fd, &entry, sizeof(entry)) != (long)sizeof(entry))
            entry.a_type = AT_NULL;
    } while (entry.a_type != AT_NULL && entry.a_type != type);
    sys_close(fd);
    return type == AT_SYSINFO_EHDR && hide_vdso ? 0 : entry.a_un.a_val;
}

static bool count_clock_calls(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    kernel_calls += number == SYS_clock_gettime;
    return false;
}

static uint64_t kernel_ns(clockid_t id)
{
    struct timespec time;
    ck_assert_int_eq(sys_raw6(SYS_clock_gettime, id, (long)&time, 0, 0, 0, 0), 0);
    return (uint64_t)time.tv_sec * NS_PER_SEC + (uint64_t)time.tv_nsec;
}

static void expect_kernels_time(clockid_t id, uint64_t (*clock)(void))
{
    errno = 77;
    for (int i = 0; i < 100; i++) {
        uint64_t before = kernel_ns(id), now = clock(), after = kernel_ns(id);
        ck_assert_uint_le(before, now);
        ck_assert_uint_le(now, after);
    }
    ck_assert_int_eq(errno, 77);
}

/* Counted until they are judged: Check asks for the time, too. */
static void read_both(void)
{
    sys_override = count_clock_calls;
    libc_calls = 0;
    expect_kernels_time(CLOCK_MONOTONIC, clock_monotonic_ns);
    expect_kernels_time(CLOCK_REALTIME, clock_realtime_ns);
    sys_override = NULL;
    ck_assert_uint_eq(libc_calls, 0);
}

/* A machine may have none (valgrind hides it). */
START_TEST(they_are_read_from_the_vdso)
{
    bool has_vdso = getauxval(AT_SYSINFO_EHDR) != 0;
    read_both();
    ck_assert_uint_eq(kernel_calls, has_vdso ? 0 : 200);
}
END_TEST

START_TEST(without_a_vdso_they_are_system_calls)
{
    hide_vdso = true;
    read_both();
    ck_assert_uint_eq(kernel_calls, 200);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("clock");
    TCase *all = tcase_create("all");
    tcase_add_test(all, they_are_read_from_the_vdso);
    tcase_add_test(all, without_a_vdso_they_are_system_calls);
    suite_add_tcase(suite, all);
    return suite;
}
