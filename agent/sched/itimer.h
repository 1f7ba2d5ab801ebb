/* itimer.h: ticks told by one of the process's two interval timers that have signals of their own,
 * which sigprof and sigalrm share.
 *
 * The handler does no more than to wake the ticks' thread, which has the tick at once, or, where it
 * looks at what threads do (ITIMER_REAL), midway between two signals. An app that has the timer or
 * the signal is left alone, and one that wants either later gets it as if nobody had had it.
 *
 * Protocol:
 *  1. The start looks for a handler, an armed timer and a blocked signal: what it finds is the
 *     app's, and it refuses (-EBUSY, said); so where the signal is to control the agent.
 *  2. Hooks ask itimer_is_ours before the app's call is passed on. A call that arms the timer or
 *     changes the signal's action is preceded by itimer_yield: the timer is disarmed, what of ours
 *     is pending is taken away, the action is put back, all with signals blocked. Others that come
 *     meanwhile wait. Ticks go on by the clock (event.c).
 *  3. The timer is armed while `state` is ITIMER_ARMED, but for an exec, which would carry it, and
 *     its pending signal, over to a program without the handler.
 *  4. A timer that the app sets by a system call of its own is seen at the next tick, a second
 * later at most: it stays, and all else is given back.
 *  5. A signal of this number that no interval timer sent is the app's: its action is the default.
 *
 * Owns: the timer and the signal's action. Context: as said. Locks: LOCK_LOG. */
#ifndef LIBAGENT_ITIMER_H
#define LIBAGENT_ITIMER_H

#include <signal.h>
#include <stdbool.h>

#include "agent/base/compiler.h"
#include "agent/sched/sched.h"

struct itimer_kind {
    const char *scheduler, *name;
    int which;
    int signal;
    const char *signal_name;
};

/* INIT. */
int itimer_start(const struct itimer_kind *chosen, const struct sched_request *request) MUST_USE;
void itimer_stop(void);
void itimer_reset_in_child(struct thread_slot *own);

/* Is it armed by us in this process? THR, SIG; a vfork child. */
bool itimer_is_ours(int which);
bool itimer_has_signal(int signal);
bool itimer_has_signal_of(const sigset_t *set);
/* What the app would see of the signal. */
void itimer_previous_action(struct sigaction *old);
/* The app takes it. THR, SIG. */
void itimer_yield(void);
/* Around exec; does nothing in a vfork child, whose timers are its own. THR, SIG. */
void itimer_before_exec(void);
void itimer_exec_failed(void);

#endif
