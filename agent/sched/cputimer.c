/* cputimer.c: a timer on each thread's CPU clock, the default scheduler.
 *
 * The kernel looks at these clocks at its own tick (250 a second on many kernels), so higher
 * frequencies give fewer samples than asked for; what a sample is worth is measured, so the
 * totals are the same. Such a timer fires only while its thread runs: a blocked thread is never
 * signalled and no system call of the app ends early. Timers are not inherited by fork and end
 * with exec, together with their pending signals. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
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
/* Each timer takes one of RLIMIT_SIGPENDING, which timers and queued signals of all the user's
 * processes share: half of what this one may have is left to the app. */
static uint32_t timers, timers_limit;

static uint32_t half_of_pending_limit(void)
{
    uint64_t soft_and_hard[2];
    if (sys_call4(SYS_prlimit64, 0, RLIMIT_SIGPENDING, NULL, soft_and_hard) != 0)
        return UINT32_MAX;
    return (uint32_t)MIN_OF(soft_and_hard[0] / 2, (uint64_t)UINT32_MAX);
}

static bool take_timer(void)
{
    if (add_relaxed(&timers, 1) < timers_limit)
        return true;
    add_relaxed(&timers, (uint32_t)-1);
    return false;
}

static void delete_timer(int timer)
{
    sys_call1(SYS_timer_delete, timer);
    add_relaxed(&timers, (uint32_t)-1);
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_SEC), (long)(ns % NS_PER_SEC)};
}

static void cputimer_thread_end(struct thread_slot *slot)
{
    /* Once only, whoever comes first: the number may be that of a timer of the app's by then. */
    int timer = exchange_acq_rel(&slot->timer, -1);
    if (timer >= 0)
        delete_timer(timer);
}

static void on_tick(struct thread_slot *slot, void *ucontext)
{
    cpu_sample_inside_handler(slot, ucontext);
    /* Not libc's thread: no signal from now on. Its first one may have come before its timer stood
     * in the slot; the next one finds it there. */
    if (unlikely(load_relaxed(&slot->thread) == SLOT_OF_FOREIGN && slot->tid == sys_tid()))
        cputimer_thread_end(slot);
}

static int cputimer_start(uint64_t period)
{
    period_ns = period;
    timers_limit = half_of_pending_limit();
    return sampling_signal_start(on_tick);
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
    long error = -EAGAIN; /* as the kernel has it for this limit */
    if (take_timer()) {
        error = sys_call3(SYS_timer_create, clock_id_of_thread(slot->tid), &event, &timer);
        if (error)
            add_relaxed(&timers, (uint32_t)-1);
    }
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
            delete_timer(timer);
    }
    if (error) {
        stats_add(STAT_TIMERS_REFUSED, 1);
        if (!exchange_acq_rel(&refused, 1))
            log_warn("no CPU samples of some threads: timers are refused (error %d; half of "
                     "RLIMIT_SIGPENDING is in use, or a seccomp filter)",
                     (int)-error);
        return;
    }
    store_release(&slot->timer, timer);
}

static void set_first(const struct thread_slot *slot, uint64_t first_ns)
{
    struct itimerspec times = {
        .it_interval = to_timespec(period_ns),
        .it_value = to_timespec(first_ns),
    };
    int timer = load_acquire(&slot->timer);
    if (timer >= 0)
        sys_call4(SYS_timer_settime, timer, 0, &times, NULL);
}

static void cputimer_thread_hold(struct thread_slot *slot)
{
    set_first(slot, 0); /* which disarms it */
}

static void cputimer_thread_go_on(struct thread_slot *slot)
{
    set_first(slot, period_ns);
}

static void cputimer_reset_in_child(struct thread_slot *own)
{
    refused = 0;
    timers = 0;
    if (own)
        cputimer_thread_begin(own);
}

const struct scheduler scheduler_cputimer = {
    .name = "cputimer",
    .start = cputimer_start,
    .stop = cputimer_stop,
    .thread_begin = cputimer_thread_begin,
    .thread_end = cputimer_thread_end,
    .thread_hold = cputimer_thread_hold,
    .thread_go_on = cputimer_thread_go_on,
    .reset_in_child = cputimer_reset_in_child,
};
