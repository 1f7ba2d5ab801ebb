#include "agent/base/clock.h"

#include <time.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"

static uint64_t to_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * NS_PER_SEC + (uint64_t)time->tv_nsec;
}

static uint64_t read_vdso(clockid_t id)
{
    struct timespec time;
    return clock_gettime(id, &time) == 0 ? to_ns(&time) : 0;
}

/* CPU clocks have no vdso path, and libc's function would set errno for a thread that is gone. */
static uint64_t read_kernel(clockid_t id)
{
    struct timespec time;
    return sys_call2(SYS_clock_gettime, id, &time) == 0 ? to_ns(&time) : 0;
}

uint64_t clock_monotonic_ns(void)
{
    return read_vdso(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void)
{
    return read_vdso(CLOCK_REALTIME);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_kernel(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_thread_cpu_of_ns(int tid)
{
    return read_kernel(clock_id_of_thread(tid));
}

int clock_id_of_thread(int tid)
{
    return (int)(~(unsigned)tid << 3 | 6u);
}
