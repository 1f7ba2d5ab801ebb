/* agent_work.h: who works on what a start makes anew (the window's tables, the threads' slots),
 * outside of the program's samples and hooks: the agent's thread, which may live through stops and
 * starts (LIBAGENT_CONFIG), and who does its work.
 *
 * Protocol: who works counts itself and then looks at the switch; a stop turns the switch off, and
 * the next start waits for the count, before it makes anything anew. One of the two sees the other.
 * The switch is on again when all is made.
 *
 * Owns: the switch, the count. Context: INIT, TICK, THR. Locks: none. */
#ifndef LIBAGENT_AGENT_WORK_H
#define LIBAGENT_AGENT_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* The switch. */
void agent_work_begins(void);
void agent_work_ends(void);
/* As it was a moment ago. */
bool agent_work_is_on(void);
/* False: it is off, and nothing is to be done; else agent_work_leave follows. */
bool agent_work_enter(void) MUST_USE;
void agent_work_leave(void);
/* Waits until nobody works. False at the CLOCK_MONOTONIC deadline. */
bool agent_work_wait_left(uint64_t deadline_ns) MUST_USE;
/* In a fork child: nobody does. */
void agent_work_reset_in_child(void);

#endif
