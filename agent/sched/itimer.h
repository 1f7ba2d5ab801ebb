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
 *  2. A hook counts the app's call in `calls` from before it looks at `state` until after the call
 *     (agent/sched/itimer_hold.h). Where it is ours, one that asks is answered as if nobody had it;
 *     one that takes is preceded by itimer_yield: the timer is disarmed, what of ours is pending is
 *     taken away, the action is put back. Ticks go on by the clock (event.c).
 *  3. All changes are made in ITIMER_CHANGES, with signals blocked; calls that come meanwhile wait,
 *     for microseconds. The start goes there first, waits until `calls` is 0, and looks (step 1),
 *     installs and arms only then: so each call of the app's comes before all of it, and is found,
 *     or after it, and finds it. Where a call does not end (a handler on top of it starts us, or
 *     has left it by a jump), it refuses as in step 1.
 *  4. The timer is armed while `state` is ITIMER_ARMED, but for an exec, which would carry it, and
 *     its pending signal, over to a program without the handler. Execs are counted likewise.
 *  5. What waits for signals (sigwait) is not counted, as it may take for ever: from the first call
 *     on the signal is the app's.
 *  6. A timer that the app sets by a system call of its own is seen at the next tick, a second
 * later at most: it stays, and all else is given back.
 *  7. A signal of this number that no interval timer sent is the app's: its action is the default,
 *     or, where another thread has yielded since it was sent, what the app has set.
 *
 * Owns: the timer and the signal's action. Context: as said. Locks: LOCK_LOG. */
#ifndef LIBAGENT_ITIMER_H
#define LIBAGENT_ITIMER_H

#include <signal.h>
#include <stdbool.h>

#include "agent/base/compiler.h"
#include "agent/sched/itimer_hold.h"
#include "agent/sched/sched.h"

struct itimer_kind {
    const char *scheduler, *name;
    int which;
    int signal;
    const char *signal_name;
};

extern const struct itimer_kind itimer_prof, itimer_real;

/* INIT. */
int itimer_start(const struct itimer_kind *chosen, const struct sched_request *request) MUST_USE;
void itimer_stop(void);
void itimer_reset_in_child(struct thread_slot *own);
/* In each child, whether we are on there or not. */
void itimer_forget_calls_in_child(void);

/* What the app would see of the signal; within a hold that says it is ours. */
void itimer_previous_action(struct sigaction *old);
/* The app is about to wait for signals of that set. THR, SIG. */
void itimer_signals_awaited(const sigset_t *set);
/* The app takes it. THR, SIG. */
void itimer_yield(void);
/* Around exec; does nothing in a vfork child, whose timers are its own. THR, SIG. */
void itimer_before_exec(void);
void itimer_exec_failed(void);

#endif
