/* agent_looks.h: what the agent's thread looks at between two flushes: whether there are threads
 * that nobody told of, and the live heap (agent/heap_watch.h).
 *
 * Owns: what is wanted. Context: as said. Locks: LOCK_FLUSH, in agent_looks_take. */
#ifndef LIBAGENT_AGENT_LOOKS_H
#define LIBAGENT_AGENT_LOOKS_H

#include <stdint.h>

#include "agent/agent_thread.h"
#include "agent/base/compiler.h"

/* See agent_thread_start. INIT; and in a fork child. */
void agent_looks_start(void (*adopted)(struct thread_slot *), void (*gone)(struct thread_slot *));
void agent_looks_reset_in_child(void);
/* Looks that are wanted, enum agent_thread_look. Any context; the first returns those of before. */
uint32_t agent_looks_want(enum agent_thread_look look);
uint32_t agent_looks_wanted(void);
/* CLOCK_MONOTONIC time of the next one; 0: one is wanted; UINT64_MAX: there is none. TICK. */
uint64_t agent_looks_due_ns(void) MUST_USE;
/* TICK: what is due at `now_ns`. TICK, INIT: what is wanted; the threads, whatever is wanted. */
void agent_looks_pass(uint64_t now_ns);
void agent_looks_take(void);
void agent_looks_scan(void);

#endif
