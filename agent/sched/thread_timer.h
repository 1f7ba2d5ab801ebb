/* thread_timer.h: a timer on the CPU clock of each thread, which brings it the sampling signal.
 *
 * It fires only while its thread runs: a blocked thread is never signalled and no system call of
 * the app ends early. The kernel looks at these clocks at its own tick (250 a second on many
 * kernels). Timers are not inherited by fork and end with exec, together with their signals.
 *
 * Protocol:
 *  1. The slot's `timer` is the kernel's number, or one of enum no_timer. Only who exchanges the
 *     number for another value deletes it.
 *  2. A tick sets timers of other threads. It says in `asked` whose, and then looks at the slot's
 *     `timer` and `held`; the thread changes these first and then waits while `asked` is its slot:
 *     so no number is used that may be another timer's, and none is armed in a thread on hold.
 *  3. After thread_timers_stop none is made: who makes one stores it and then looks at `stopped`,
 *     who stops sets that and then looks at all slots.
 *
 * Owns: the timers. Context: as said. Locks: none. */
#ifndef LIBAGENT_THREAD_TIMER_H
#define LIBAGENT_THREAD_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/sched/sampling_signal.h"
#include "agent/thread/thread_context.h"

/* Of a slot without a timer: there is none; it had one until the stop, and is to be accounted as
 * one that was sampled; it was refused one, and no sample will tell what the thread does. */
enum no_timer { TIMER_NONE = -1, TIMER_STOPPED = -2, TIMER_REFUSED = -3 };

/* Where RLIMIT_RTTIME is 0 the kernel ends the process when any timer of CPU time goes off (it
 * compares the limit with the realtime of a thread that has none, 0, only then). INIT. */
bool cpu_timers_are_fatal(void);
/* Timers go off every `interval_ns` of CPU time once armed, and `handler` is called then. INIT. */
int thread_timers_start(uint64_t interval_ns, sampling_handler handler) MUST_USE;
/* Another interval: each thread takes it over at its next sample, by thread_timer_follow. At least
 * 1 us. Any context. */
void thread_timers_set_interval(uint64_t interval_ns);
/* Deletes all. INIT. */
void thread_timers_stop(void);
/* Makes the timer; `armed`: it first goes off at a random instant of the first interval, so that
 * threads that live for less are sampled too, in proportion to their time; at once in one that was
 * found lately (cpu_sample_before_adoption). THR, HOOK; TICK. */
void thread_timer_begin(struct thread_slot *slot, bool armed);
void thread_timer_end(struct thread_slot *slot);
/* Goes off after a whole interval and at each one that follows. In the thread itself, THR, SIG. */
void thread_timer_repeat(struct thread_slot *slot);
/* After a sample of the calling thread: takes over what the interval is now, or a longer one where
 * samples keep the thread from making progress (agent/sched/restarts.h). SIG. */
void thread_timer_follow(struct thread_slot *slot, const void *ucontext);
/* Goes off once, as soon as the thread runs, whose CPU clock is `cpu_ns`. While it is to go off
 * already nothing is done: where the kernel has just found it due, and the ticks' thread comes
 * before the signal, it would be put off by being set again, time after time where ticks are as
 * frequent as the kernel's. TICK. */
void thread_timer_ask(struct thread_slot *slot, uint64_t cpu_ns);
/* Arms those of all slots as thread_timer_begin does. TICK, THR. */
void thread_timers_arm_all(void);
/* None is due from now on, whoever asks; the next one is due after an interval. In the thread
 * itself, THR, SIG. */
void thread_timer_hold(struct thread_slot *slot);
void thread_timer_go_on(struct thread_slot *slot);
/* In a fork child. */
void thread_timers_reset_in_child(void);

#endif
