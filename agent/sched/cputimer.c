/* cputimer.c: a timer on each thread's CPU clock, the default scheduler.
 *
 * The kernel looks at these clocks at its own tick (250 a second on many kernels), so higher
 * frequencies give fewer samples than asked for; what a sample is worth is measured, so the
 * totals are the same. Such a timer fires only while its thread runs: a blocked thread is never
 * signalled and no system call of the app ends early. Timers are not inherited by fork and end
 * with exec, together with their pending signals. */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/sched.h"

/* Member of struct sigevent for SIGEV_THREAD_ID; glibc names it only so. */
#define SIGEVENT_TID _sigev_un._tid

static uint64_t period_ns;
static uint32_t refused;

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_SEC), (long)(ns % NS_PER_SEC)};
}

static int cputimer_start(uint64_t period)
{
    period_ns = period;
    return sampling_signal_start(cpu_sample_inside_handler);
}

static void cputimer_stop(void)
{
    sampling_signal_stop();
}

static void cputimer_thread_begin(struct thread_slot *slot)
{
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD_ID,
        .sigev_signo = SAMPLING_SIGNAL,
        .sigev_value.sival_ptr = slot,
    };
    event.SIGEVENT_TID = slot->tid;
    int timer;
    long error = sys_call3(SYS_timer_create, clock_id_of_thread(slot->tid), &event, &timer);
    if (error == 0) {
        /* A random phase: threads that live for less than a period are sampled too, in
         * proportion to their time. */
        struct rng rng;
        rng_split(&rng);
        struct itimerspec times = {
            .it_interval = to_timespec(period_ns),
            .it_value = to_timespec(1 + rng_next(&rng) % period_ns),
        };
        error = sys_call4(SYS_timer_settime, timer, 0, &times, NULL);
        if (error)
            sys_call1(SYS_timer_delete, timer);
    }
    if (error) {
        stats_add(STAT_TIMERS_REFUSED, 1);
        if (!exchange_acq_rel(&refused, 1))
            log_warn("no CPU samples of some threads: the kernel refuses timers (error %d; "
                     "RLIMIT_SIGPENDING or a seccomp filter)",
                     (int)-error);
        return;
    }
    slot->timer = timer;
}

static void cputimer_thread_end(struct thread_slot *slot)
{
    if (slot->timer >= 0)
        sys_call1(SYS_timer_delete, slot->timer);
    slot->timer = -1;
}

static void cputimer_reset_in_child(struct thread_slot *own)
{
    refused = 0;
    if (own)
        cputimer_thread_begin(own);
}

const struct scheduler scheduler_cputimer = {
    .name = "cputimer",
    .start = cputimer_start,
    .stop = cputimer_stop,
    .thread_begin = cputimer_thread_begin,
    .thread_end = cputimer_thread_end,
    .reset_in_child = cputimer_reset_in_child,
};
