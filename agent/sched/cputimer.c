/* cputimer.c: a timer on each thread's CPU clock, the default scheduler (agent/sched/
 * thread_timer.h).
 *
 * The kernel's tick bounds what it gives: higher frequencies give fewer samples than asked for;
 * what a sample is worth is measured, so the totals are the same. */
#include "agent/sched/cpu_sample.h"
#include "agent/sched/sched.h"
#include "agent/sched/thread_timer.h"

static void on_tick(struct thread_slot *slot, void *ucontext)
{
    cpu_sample_inside_handler(slot, ucontext);
    thread_timer_follow(slot, ucontext);
}

static int cputimer_start(const struct sched_request *request)
{
    return thread_timers_start(request->period_ns, on_tick);
}

static void cputimer_thread_begin(struct thread_slot *slot)
{
    thread_timer_begin(slot, true);
}

static void cputimer_reset_in_child(struct thread_slot *own)
{
    thread_timers_reset_in_child();
    if (own)
        thread_timer_begin(own, true);
}

const struct scheduler scheduler_cputimer = {
    .name = "cputimer",
    .start = cputimer_start,
    .stop = thread_timers_stop,
    .set_period = thread_timers_set_interval,
    .thread_begin = cputimer_thread_begin,
    .thread_end = thread_timer_end,
    .thread_hold = thread_timer_hold,
    .thread_go_on = thread_timer_go_on,
    .reset_in_child = cputimer_reset_in_child,
};
