#include "agent/base/clock.h"

#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <time.h>

#include "agent/base/compiler.h"
#include "agent/base/dynamic_symbols.h"
#include "agent/base/sys.h"

static uint64_t to_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * NS_PER_SEC + (uint64_t)time->tv_nsec;
}

typedef int clock_fn(clockid_t id, struct timespec *time);

static int kernel_clock(clockid_t id, struct timespec *time)
{
    return (int)sys_call2(SYS_clock_gettime, id, time);
}

static const char *const vdso_clock_name =
#if defined(__aarch64__)
    "__kernel_clock_gettime";
#else
    "__vdso_clock_gettime";
#endif

static void *find_in_vdso(const char *name)
{
    const ElfW(Ehdr) *file = (const void *)sys_auxv(AT_SYSINFO_EHDR);
    if (!file)
        return NULL;
    const ElfW(Phdr) *headers = (const void *)((uintptr_t)file + file->e_phoff);
    const ElfW(Phdr) *dynamic = NULL, *load = NULL;
    for (int i = 0; i < file->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && !load)
            load = &headers[i];
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = &headers[i];
    }
    if (!load || !dynamic)
        return NULL;
    uintptr_t bias = (uintptr_t)file + load->p_offset - load->p_vaddr;
    struct dynamic_symbols symbols;
    dynamic_symbols_read(bias, (const void *)(bias + dynamic->p_vaddr), &symbols);
    return dynamic_symbols_find(&symbols, name);
}

static clock_fn first_clock;

static clock_fn *best_clock = first_clock;

/* Threads that come here at once find the same. */
static int first_clock(clockid_t id, struct timespec *time)
{
    clock_fn *found = (clock_fn *)find_in_vdso(vdso_clock_name);
    if (!found)
        found = kernel_clock;
    store_relaxed(&best_clock, found);
    return found(id, time);
}

/* What libc's clock_gettime calls. Its name may be another preload's (libfaketime), which tells
 * another time, or takes locks and thread-local data that handlers and our threads do not have. */
static uint64_t read_best(clockid_t id)
{
    struct timespec time;
    return load_relaxed(&best_clock)(id, &time) == 0 ? to_ns(&time) : 0;
}

/* CPU clocks are system calls in any case. */
static uint64_t read_kernel(clockid_t id)
{
    struct timespec time;
    return kernel_clock(id, &time) == 0 ? to_ns(&time) : 0;
}

uint64_t clock_monotonic_ns(void)
{
    return read_best(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void)
{
    return read_best(CLOCK_REALTIME);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_kernel(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_process_cpu_ns(void)
{
    return read_kernel(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t clock_thread_cpu_of_ns(int tid)
{
    return read_kernel(clock_id_of_thread(tid));
}

uint64_t clock_tick_ns(void)
{
    struct timespec tick;
    return sys_call2(SYS_clock_getres, CLOCK_MONOTONIC_COARSE, &tick) == 0 ? to_ns(&tick) : 0;
}

int clock_id_of_thread(int tid)
{
    return (int)(~(unsigned)tid << 3 | 6u);
}
