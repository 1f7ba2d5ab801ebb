/* sampling_signal.h: the one signal of the agent, and the app's view of it.
 *
 * Protocol:
 *  1. At start a signal whose disposition is the default one is taken: SIGPROF, else the next
 *     free of a short list. The kernel's handler is ours from then on, for good: after a stop it
 *     does nothing, since a late signal with the default action would kill the process.
 *  2. A signal is ours when si_code is SI_TIMER and si_value points into the thread table; every
 *     other one is the app's and is given to the disposition that the app
 *     set (or had: the default action is carried out).
 *  3. sigaction and its kin for this signal change and report that view, never the kernel's
 *     handler. SA_RESTART, SA_ONSTACK, SA_NODEFER and the mask of an app's own handler are taken
 *     over into the kernel's, as they change what the app can see.
 *  4. The view is read by the handler without a lock: writers fill the next of VIEWS places and
 *     publish its index. Race that remains: VIEWS changes of the disposition during one
 *     delivery would mix two of them. No app does that.
 *  5. In a vfork child the table is the parent's: hooks compare the pid and write nothing.
 *
 * Owns: the signal, the view. Context: handler SIG; sampling_signal_action THR and SIG (sigaction
 * is async-signal-safe: signals wait while the lock is held); start INIT. Locks: LOCK_SIGNALS. */
#ifndef LIBAGENT_SAMPLING_SIGNAL_H
#define LIBAGENT_SAMPLING_SIGNAL_H

#include <signal.h>
#include <stdbool.h>

#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

typedef void (*sampling_handler)(struct thread_slot *slot, void *ucontext);

/* Takes a signal. 0, or -EBUSY when none is free, or another negative errno. */
int sampling_signal_start(sampling_handler handler) MUST_USE;
/* From now on our signals do nothing (the handler stays). */
void sampling_signal_stop(void);
/* The signal's number; 0 before the start. */
int sampling_signal_number(void);
/* Has the app a handler of its own for it? Any context. */
bool sampling_signal_is_handled(void);
/* Is this signal information that of one of our timers? */
bool sampling_signal_is_ours(const siginfo_t *info);
/* True when the call was answered here (*result, *old as sigaction has them): `signal` is ours, or
 * its action needs ours in its mask. False: the caller forwards. */
bool sampling_signal_action(int signal, const struct sigaction *action, struct sigaction *old,
                            int *result);
/* In a fork child. */
void sampling_signal_reset_in_child(void);

#endif
