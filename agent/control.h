/* control.h: the agent is switched and changed from outside: by signals (control_signals.h) and by
 * LIBAGENT_CONFIG, a file that is looked at once a window.
 *
 * The file has lines KEY=value, which go before the environment and what libagent_start was given
 * (agent/base/option_pairs.h). When its bytes have changed and all of them are understood the agent
 * stops and starts with the new options; LIBAGENT_ENABLED in it is the switch. A file that is not
 * understood, or not there, changes nothing, and is told once. Whoever switched last (the file when
 * it changed, or the signal) is followed.
 *
 * The agent's thread does all this. With a file it stays from the first window on, on or off; else
 * the signal's handler makes it.
 *
 * Owns: the file's options. Context: control_begin INIT; else TICK. Locks: LOCK_LIFE. */
#ifndef LIBAGENT_CONTROL_H
#define LIBAGENT_CONTROL_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* INIT, behind options_load: looks at the file for the first time. True: it has options. */
bool control_begin(void) MUST_USE;
/* As the file has it. */
bool control_is_enabled(void);
/* Is there anything by which the agent is controlled? */
bool control_is_asked_for(void);
/* INIT, when the start is done, or is not to be yet. */
void control_start(void);

#endif
