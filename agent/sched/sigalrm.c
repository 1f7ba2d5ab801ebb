/* sigalrm.c: ticks by ITIMER_REAL, which the clock on the wall drives: SIGALRM
 * ends waits of the app's, also those that the kernel does not start again. */
#include <sys/time.h>

#include "agent/sched/itimer.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

const struct itimer_kind itimer_real = {
    .scheduler = "sigalrm",
    .name = "ITIMER_REAL",
    .which = ITIMER_REAL,
    .signal = SIGALRM,
    .signal_name = "SIGALRM",
};

static int sigalrm_start(const struct sched_request *request)
{
    return itimer_start(&itimer_real, request);
}

const struct scheduler scheduler_sigalrm = {
    .name = "sigalrm",
    .gives_wall = true,
    .start = sigalrm_start,
    .stop = itimer_stop,
    .thread_begin = tick_thread_begin,
    .reset_in_child = itimer_reset_in_child,
    TICK_SCHEDULER_COMMON,
    .set_period = tick_set_period,
};
