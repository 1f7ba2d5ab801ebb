/* rates.h: how often samples are taken, so that they cost no more than LIBAGENT_OVERHEAD.
 *
 * Protocol:
 *  1. Each sample passes a moment (agent/thread/moment.h), which looks whether a window of one of
 *     the controllers (agent/sched/rate_control.h) has ended: one for samples of time, one for
 *     those of allocations, and where ticks are for wall time alone, one for these (many threads
 *     that wait would else leave the CPU profile without samples). Each has an equal part of the
 *     budget for certain, and what the others leave; what the agent's own threads take is taken
 *     off before.
 *  2. Who finds that a window has ended, and nobody at it, reads the totals and sets the period of
 *     ticks, or the interval of bytes. A sampler that comes meanwhile goes on with the old ones.
 *     Ticks of wall time are not rarer than ten a second: looks in them have a bound of their own
 *     (agent/sched/look_budget.h).
 *  3. A read of the process's CPU clock takes longer the more threads there are: windows are so
 *     long that reading takes 0.05 % of the time at most.
 *
 * A rate that was set by its option is kept, unless LIBAGENT_OVERHEAD is set, too; an interval of 1
 * byte always is.
 *
 * Owns: the controllers. Context: rates_start INIT; the look SIG, HOOK, THR. Locks: none that
 * waits. */
#ifndef LIBAGENT_RATES_H
#define LIBAGENT_RATES_H

#include <stdint.h>

/* `set_period`: takes the CPU (and wall) time between two samples of a thread in nanoseconds; NULL:
 * there are none. `set_tick_period`: that between two looks at all threads, where it is another. */
void rates_start(void (*set_period)(uint64_t period_ns),
                 void (*set_tick_period)(uint64_t period_ns));
/* At a moment. SIG, HOOK, THR. */
void rates_look(uint64_t now_ns);
/* In a fork child: windows begin anew; the rates stay. */
void rates_reset_in_child(void);
/* In force: nanoseconds between two samples of a thread's time, between two looks at all threads,
 * and bytes between two samples of allocations. Any context. */
uint64_t rates_period_ns(void);
uint64_t rates_tick_period_ns(void);
uint64_t rates_alloc_interval(void);

#endif
