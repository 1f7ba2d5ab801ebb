/* thread_reset.h: every context of every thread made anew, at each start of the agent.
 *
 * Called while no hook, timer or handler can run: the state is not ON, presence.h's wait has found
 * nobody inside, the scheduler has stopped, and the agent's threads have ended (or are the
 * caller). That is checked here, and nothing is touched where it does not hold: a thread that saw
 * the state before it changed, and comes in late, is inside until it has seen it again.
 *
 * What is made anew: the slot of each thread that lives, whether it had one or not (those born
 * while the agent was off are found by a scan), with its CPU clock of now as the time up to which
 * all is accounted, no overhead, no name, no timer. Slots of threads that died go. Slots of threads
 * that are made at this moment stay, since they hold where the thread begins; the thread sees that
 * its slot is of an earlier start. What lies in TLS is the thread's own to renew: its slot and its
 * countdown of bytes are of a generation that is over, and so count as none (`internal` and `left`
 * survive).
 *
 * Owns: thread_generation. Context: INIT, TICK. Locks: the caller holds LOCK_LIFE. */
#ifndef LIBAGENT_THREAD_RESET_H
#define LIBAGENT_THREAD_RESET_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* `is_own`: the agent's threads, which get no slot. Who is inside is waited for until the
 * CLOCK_MONOTONIC deadline; 0: looks once. 0, or -EBUSY and all is as it was. */
int thread_reset_all(bool (*is_own)(int tid), uint64_t deadline_ns) MUST_USE;

#endif
