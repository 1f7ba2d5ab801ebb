/* CFLAGS: -O2 -shared -fPIC -ftls-model=global-dynamic */
/* LIBS: -ldl */
/* prog_other_clock: not a program but an object to be preloaded, which puts its own clock_gettime
 * in libc's place: a day ahead, and with thread-local data that libc has to find. */
#include <dlfcn.h>

#include "test/preload/program.h"

/* Not static: its address is asked for at each use. */
__thread uint64_t other_clock_calls;

int clock_gettime(clockid_t id, struct timespec *time)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(id, time);
    if (result == 0 && id == CLOCK_REALTIME)
        time->tv_sec += 86400;
    other_clock_calls++;
    return result;
}
