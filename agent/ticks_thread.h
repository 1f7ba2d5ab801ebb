/* ticks_thread.h: the thread in which a scheduler ticks (agent/sched/tick.h), beside the agent's
 * thread, whose flushes take long: when it is born, and when it ends.
 *
 * Protocol: as that of the agent's thread (agent/agent_thread.h, 1 and 4), by the same moments and
 * pauses. It is born with the start where the scheduler cannot do without it, else at the first
 * moment, and again by a moment after it went to rest. After a pause it is there again at once.
 *
 * Owns: that thread. Context: as said. Locks: LOCK_FLUSH, in the thread at its end. */
#ifndef LIBAGENT_TICKS_THREAD_H
#define LIBAGENT_TICKS_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/sched/sched.h"

/* `chosen` may be one that needs no thread; NULL: there is none. Behind agent_thread_start, and
 * agent_thread_reset_in_child. INIT. */
void ticks_thread_start(const struct scheduler *chosen);
/* For good; waits until the deadline. INIT. */
void ticks_thread_stop(uint64_t deadline_ns);
/* A stop may not have waited for it to the end. False at the CLOCK_MONOTONIC deadline. INIT. */
bool ticks_thread_is_over(uint64_t deadline_ns) MUST_USE;
/* In a fork child: it is not there. */
void ticks_thread_reset_in_child(void);
/* A moment: makes it where it is missing. CLOCK_MONOTONIC of the next try; UINT64_MAX: no need.
 * THR, SIG, HOOK. */
uint64_t ticks_thread_moment(uint64_t now_ns);
/* Is it to be made at the next moment? Any context. */
bool ticks_thread_is_missing(void);
/* Own threads are paused: waits until it is gone (0: without a deadline). True: it is. And they are
 * no more. THR, SIG. */
bool ticks_thread_pause(uint64_t deadline_ns);
void ticks_thread_go_on(void);
/* Between its birth and its being known to flush.h. */
bool ticks_thread_is_starting(void);

#endif
