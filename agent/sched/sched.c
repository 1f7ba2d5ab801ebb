#include "agent/sched/sched.h"

#include <errno.h>

#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

/* Each thread's timer for CPU time, and ticks for wall time beside it. */
static void both_stop(void)
{
    tick_stop();
    thread_timers_stop();
}

static int both_start(const struct sched_request *request)
{
    int error = scheduler_cputimer.start(request);
    if (!error)
        error = tick_start(request, &event_source, false);
    if (error)
        scheduler_cputimer.stop();
    return error;
}

static void both_thread_begin(struct thread_slot *slot)
{
    thread_timer_begin(slot, true);
}

static void both_reset_in_child(struct thread_slot *own)
{
    tick_reset_in_child(NULL);
    scheduler_cputimer.reset_in_child(own);
}

static const struct scheduler scheduler_both = {
    TICK_SCHEDULER_COMMON,
    .set_period = thread_timers_set_interval,
    .set_tick_period = tick_set_period,
    .name = "cputimer, event for wall time",
    .gives_wall = true,
    .start = both_start,
    .stop = both_stop,
    .thread_begin = both_thread_begin,
    .reset_in_child = both_reset_in_child,
};

static const struct scheduler *choose(const struct sched_request *request)
{
    switch (options.scheduler) {
    case SCHEDULER_CPUTIMER:
        return &scheduler_cputimer;
    case SCHEDULER_SIGPROF:
        return &scheduler_sigprof;
    case SCHEDULER_SIGALRM:
        return &scheduler_sigalrm;
    case SCHEDULER_SLEEP:
        return &scheduler_sleep;
    case SCHEDULER_EVENT:
        return &scheduler_event;
    case SCHEDULER_AUTO:
        break;
    }
    if (!options.signals)
        return &scheduler_event;
    return request->wall ? &scheduler_both : &scheduler_cputimer;
}

const struct scheduler *scheduler_start(struct sched_request *request)
{
    const struct scheduler *scheduler = choose(request);
    if (!options.signals && scheduler != &scheduler_sleep && scheduler != &scheduler_event) {
        log_error_once(
            "LIBAGENT_SCHEDULER=%s needs a signal, and LIBAGENT_SIGNALS=0 allows none: no time "
            "is profiled",
            scheduler->name);
        return NULL;
    }
    if (request->wall && !scheduler->gives_wall) {
        log_warn_once("no wall profile: LIBAGENT_SCHEDULER=%s samples CPU time alone",
                      scheduler->name);
        request->wall = NULL;
    }
    if (!request->cpu && !request->wall)
        return NULL;
    cpu_sample_start();
    int error = scheduler->start(request);
    if (error == -EBUSY) { /* said there */
        scheduler = &scheduler_event;
        error = scheduler->start(request);
    }
    if (!error)
        return scheduler;
    log_warn_once("no CPU profile: the kernel refuses the signal: %s (errno %d)", error_text(error),
                  -error);
    return NULL;
}
