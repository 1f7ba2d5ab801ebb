/* event.c: ticks by the clock on the wall. Their thread waits on the bell, a futex, until each
 * one's time on CLOCK_MONOTONIC: a stop wakes it at once. */
#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

static bool event_wait(uint32_t bell, uint64_t *next_ns)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (*next_ns == 0)
        *next_ns = tick_next(0, now_ns);
    if (now_ns < *next_ns) {
        (void)!sys_futex_wait(&tick_bell, bell, *next_ns);
        now_ns = clock_monotonic_ns();
    }
    if (now_ns < *next_ns)
        return false;
    *next_ns = tick_next(*next_ns, now_ns);
    return true;
}

const struct tick_source event_source = {.wait = event_wait, .may_rest = true};

static int event_start(const struct sched_request *request)
{
    return tick_start(request, &event_source, true);
}

const struct scheduler scheduler_event = {
    .name = "event",
    .gives_wall = true,
    .start = event_start,
    TICK_SCHEDULER,
};
