/* sampling_signal.h: the one signal of the agent, which no app can use.
 *
 * Method: real-time signal 32 is libc's own: glibc sends it to carry out pthread_cancel (there it
 * is SIGCANCEL), refuses it in sigaction, leaves it out of every set that sigfillset makes and of
 * every mask that sigprocmask sets, and installs its handler when a thread is first cancelled. So
 * it is never blocked (a thread that blocks all signals is sampled like any other), never
 * pending for long, never waited for, and no disposition, mask or timer of the app's has to be
 * shown other than it is. The kernel's real-time signals carry what timers give them.
 *
 * Protocol:
 *  1. At start our handler is installed by system call, since libc refuses; what was there before
 *     is kept as `previous`. It stays for good: after a stop it does nothing, since a late signal
 *     with the default action would kill the process.
 *  2. A signal is ours when si_code is SI_TIMER and si_value points into the thread table. Every
 *     other one (libc's come by tgkill) goes to `previous`, in the same handler's frame: a
 *     cancelled thread is unwound through it. No handler of the app's comes on top of ours: it
 *     could leave it by a jump.
 *  3. pthread_cancel may have put libc's handler in place of ours: it is followed by
 *     sampling_signal_renew. Ticks that come in between are ignored by libc's handler. Race that
 *     remains: a first pthread_cancel that ends its caller before it returns; the process is not
 *     sampled from then on until the next one, its CPU time is shown as `[not sampled]`.
 *  4. A handler of the app's on a small alternate stack has our signal in its kernel mask
 *     (sampling_signal_action), or there would be no room for our frame. Where such a handler is
 *     left by a jump that does not restore the mask, the jump's hook unblocks the signal, after
 *     what of ours is pending was taken away (sampling_signal_unblock). After a stop it does not.
 *  5. A Go runtime adds SA_ONSTACK to our handler's flags (its table of signals has 32 for that),
 * as goroutines' stacks have no room. It does so behind our back: each renewal looks for the flag
 * and keeps it. One comes before pthread_cancel, too, by which it would be lost.
 *  6. A tick may come together with a signal that ends a wait of the app's (sigsuspend, ppoll), and
 *     the kernel gives the tick first. The app's handler must still run before that wait returns:
 *     so ours is entered with no signal masked, which lets the kernel put the app's handler on top
 *     at ours' first instruction, and masks them then, before anything is held. An app's handler
 *     that jumps leaves nothing of ours behind; that sample is lost, and its time is in the next
 *     one. (ThreadSanitizer has its own way.)
 *  7. But for SIGPROF and SIGVTALRM, where the program has handlers for them: these are masked from
 *     the first instruction on, as interval timers of CPU time go off at the same tick of the
 *     kernel's as ours, and a profiler in their handlers wants to see where the thread was, not
 * ours (two of five of its ticks were there). Each change of such a handler through libc is
 * followed by a renewal. Races that remain: a program with such a handler that also jumps out of
 * another one, by a jump that leaves the mask alone, from ours' first instruction, has them masked
 * from there on; one that waits for them in sigsuspend may see it end before its handler has run.
 *
 * Owns: the signal. Context: handler SIG; sampling_signal_action THR and SIG; renew THR; start
 * INIT. Locks: none. */
#ifndef LIBAGENT_SAMPLING_SIGNAL_H
#define LIBAGENT_SAMPLING_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer puts a handler off to a moment when its own state is whole; it knows only those
 * that its sigaction was told. */
enum { SAMPLING_SIGNAL = SIGPROF };
#else
enum { SAMPLING_SIGNAL = 32 };
#endif

typedef void (*sampling_handler)(struct thread_slot *slot, void *ucontext);

/* Installs the handler and unblocks the signal in the calling thread (who started the process may
 * have blocked it). 0, or a negative errno where the kernel refuses. */
int sampling_signal_start(sampling_handler handler) MUST_USE;
/* What a signal takes beside its handler, measured at the start: the way to it and back. */
extern HIDDEN uint64_t sampling_signal_cost_ns;
/* From now on our signals do nothing (the handler stays). */
void sampling_signal_stop(void);
/* Sends it to a thread, as a timer of ours does. False: the kernel refuses. TICK. */
bool sampling_signal_send(struct thread_slot *slot, int tid);
/* Puts our handler back in place. Before and after pthread_cancel, and after a change of the
 * program's handlers of SIGPROF and SIGVTALRM. */
void sampling_signal_renew(void);
/* True when the call was answered here (*result, *old as sigaction has them): the action of
 * `signal` needs ours in its mask. False: the caller forwards. */
bool sampling_signal_action(int signal, const struct sigaction *action, struct sigaction *old,
                            int *result);
/* Is our signal in the mask of a handler of the app's? Any context. */
extern HIDDEN uint64_t sampling_signal_widened;
static inline bool sampling_signal_is_in_masks(void)
{
    return load_relaxed(&sampling_signal_widened) != 0;
}
/* Before longjmp to `environment`, a jmp_buf: is the signal blocked in the calling thread, and left
 * is the alternate stack? THR, SIG. */
bool sampling_signal_would_stay_blocked(const void *environment);
/* Unblocks the signal in the calling thread. Of pending ones, ours are dropped; libc's come. The
 * caller sees to it that none of ours follows. THR, SIG. */
void sampling_signal_unblock(void);

#endif
