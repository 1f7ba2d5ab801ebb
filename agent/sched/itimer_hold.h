/* itimer_hold.h: around a call of the app's that concerns the interval timer, or the signal, which
 * the agent may take meanwhile (agent/sched/itimer.h, steps 2 and 3).
 *
 * Owns: nothing. Context: THR, SIG. Locks: LOCK_LOG. */
#ifndef LIBAGENT_ITIMER_HOLD_H
#define LIBAGENT_ITIMER_HOLD_H

#include <stdbool.h>

#include "agent/base/compiler.h"

struct itimer_hold {
    bool is_held;
};

/* Until the release the agent takes nothing. True: it is the agent's, and the call is to be
 * answered as if nobody had it; never where the app `takes` it, as it is given back then. */
bool itimer_hold(struct itimer_hold *hold, int which, bool takes) MUST_USE;
bool itimer_hold_signal(struct itimer_hold *hold, int signal, bool takes) MUST_USE;
void itimer_release(const struct itimer_hold *hold);

#endif
