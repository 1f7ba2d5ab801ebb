/* signal_sets.h: sets of signals as the kernel has them, a bit each.
 *
 * Owns: nothing. Context: any (constants). Locks: none. */
#ifndef LIBAGENT_SIGNAL_SETS_H
#define LIBAGENT_SIGNAL_SETS_H

#include <signal.h>
#include <stdint.h>

#define SIGNAL_BIT(number) ((uint64_t)1 << ((number)-1))

/* By 33 glibc changes the user id in every thread, and waits for all of them. */
#define ALL_SIGNALS_BUT_LIBCS (~SIGNAL_BIT(33))

/* What waits in a sample: all signals, or a handler of the app's that leaves ours by a jump would
 * leave the thread inside the agent for good. Not those that the agent's own code would raise, as
 * the app's handler of crashes is to see them. */
#define SIGNALS_THAT_WAIT                                                                          \
    (ALL_SIGNALS_BUT_LIBCS & ~(SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGBUS) |     \
                               SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGSYS)))

#endif
