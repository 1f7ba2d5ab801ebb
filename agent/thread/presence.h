/* presence.h: how many threads of the app are inside the agent at this instant, in a handler or in
 * the rare part of a hook.
 *
 * Protocol: who comes in counts itself and then looks at the switch (agent.c's state, the handler
 * of the sampling signal, alloc's state); who ends something turns the switch off and then waits
 * for the count. One of the two sees the other, whatever processor they are on: after the wait
 * nobody holds a context, a scratch buffer or a table, or makes a system call for us. The count is
 * spread over some cache lines, since every sample adds to it.
 *
 * A thread that leaves the agent by a jump (an app's handler that came in the middle of an
 * allocation, and left malloc, too) stays counted: the wait then ends at its deadline.
 *
 * Owns: the count. Context: enter and leave SIG, HOOK, THR; the waits INIT, TICK. Locks: none. */
#ifndef LIBAGENT_PRESENCE_H
#define LIBAGENT_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* In a hook. */
void presence_enter(void);
void presence_leave(void);
/* In a handler, whose thread may have no TLS of ours: `key` is anything that stays the same. */
void presence_enter_inside_handler(const void *key);
void presence_leave_inside_handler(const void *key);
/* Waits until no thread is inside but as often as the calling one is, or until the CLOCK_MONOTONIC
 * deadline; 0: looks once. */
bool presence_wait_others_left(uint64_t deadline_ns);
/* In a fork child: only the calling thread is left. */
void presence_reset_in_child(void);

#endif
