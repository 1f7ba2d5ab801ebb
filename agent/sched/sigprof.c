/* sigprof.c: ticks by ITIMER_PROF, which the process's CPU time drives: none while it is idle. */
#include <errno.h>
#include <sys/time.h>

#include "agent/base/log.h"
#include "agent/sched/itimer.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

const struct itimer_kind itimer_prof = {
    .scheduler = "sigprof",
    .name = "ITIMER_PROF",
    .which = ITIMER_PROF,
    .signal = SIGPROF,
    .signal_name = "SIGPROF",
};

static int sigprof_start(const struct sched_request *request)
{
    if (cpu_timers_are_fatal()) {
        log_warn_once("LIBAGENT_SCHEDULER=sigprof is not used, event is: RLIMIT_RTTIME is 0, and "
                      "the kernel would end the program at the first tick");
        return -EBUSY;
    }
    return itimer_start(&itimer_prof, request);
}

const struct scheduler scheduler_sigprof = {
    .name = "sigprof",
    .gives_wall = false,
    .start = sigprof_start,
    .stop = itimer_stop,
    .thread_begin = tick_thread_begin,
    .reset_in_child = itimer_reset_in_child,
    TICK_SCHEDULER_COMMON,
    .set_period = tick_set_period,
};
