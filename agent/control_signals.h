/* control_signals.h: signals by which the agent is controlled from outside: LIBAGENT_TOGGLE_SIGNAL,
 * LIBAGENT_FLUSH_SIGNAL, and SIGTERM with LIBAGENT_TERM_FLUSH=1.
 *
 * Protocol:
 *  1. In the constructor ours are installed where the program has the default action; where it
 *     ignores the signal, or has a handler, one line says that it cannot be used.
 *  2. The program does not see them: after each sigaction or signal of its own what it had is shown
 *     as the default action, which ours stands for (control_signals_acted). A handler of its own
 *     takes the signal away from us, with one line; SIGTERM comes back to us when the program goes
 *     back to the default action.
 *  3. A handler of ours only tells the agent's thread, which it makes where there is none
 *     (agent/agent_thread.h). That of SIGTERM waits until the last window is written, one second at
 *     most, and then takes the default action, so that whoever waits for the process sees what it
 *     would have seen. A second SIGTERM waits with the first.
 *
 * Owns: these signals. Context: start INIT; the rest THR, SIG. Locks: none; SIGTERM's handler
 * LOCK_LIFE. */
#ifndef LIBAGENT_CONTROL_SIGNALS_H
#define LIBAGENT_CONTROL_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* `at_term` writes what there is until the CLOCK_MONOTONIC deadline. */
void control_signals_start(void (*at_term)(uint64_t deadline_ns));
/* The program's toggles since the last call: true: an odd number. TICK. */
bool control_signals_toggled(void);
/* The same of flushes that came while there was nothing to write: true: one at least. TICK. */
bool control_signals_unwritten(void);
/* sigaction has done that, successfully; `old` becomes what the program is to see. */
void control_signals_acted(int number, const struct sigaction *action, struct sigaction *old);
/* signal and its kin: `old` as libc gave it; what the program is to see. */
uintptr_t control_signals_set(int number, uintptr_t handler, uintptr_t old);

#endif
