/* sleep.c: ticks by the clock on the wall. Their thread sleeps until each one's time, which is
 * absolute on CLOCK_MONOTONIC: lateness of one moves no other. */
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

/* Nobody wakes it: a stop, and a fork or setuid, wait for so long at most. */
static const uint64_t longest_ns = 20 * NS_PER_MS;

static bool sleep_wait(uint32_t bell, uint64_t *next_ns)
{
    (void)bell;
    uint64_t now_ns = clock_monotonic_ns();
    if (*next_ns == 0)
        *next_ns = tick_next(0, now_ns);
    if (now_ns < *next_ns) {
        uint64_t until_ns = MIN_OF(*next_ns, now_ns + longest_ns);
        struct timespec until = {(time_t)(until_ns / NS_PER_SEC), (long)(until_ns % NS_PER_SEC)};
        sys_call4(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        now_ns = clock_monotonic_ns();
    }
    if (now_ns < *next_ns)
        return false;
    *next_ns = tick_next(*next_ns, now_ns);
    return true;
}

static const struct tick_source source = {.wait = sleep_wait, .may_rest = true};

static int sleep_start(const struct sched_request *request)
{
    return tick_start(request, &source, true);
}

const struct scheduler scheduler_sleep = {
    .name = "sleep",
    .gives_wall = true,
    .start = sleep_start,
    TICK_SCHEDULER,
};
