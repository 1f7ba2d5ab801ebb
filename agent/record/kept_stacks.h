/* kept_stacks.h: stacks of threads that stand still, kept over windows by a small number.
 *
 * Protocol:
 *  1. Who keeps a stack, or holds the number of one, is inside a thread guard.
 *  2. When many were kept, a flush (kept_stacks_close) lets no more in, waits for the guards that
 *     were open, makes everybody forget the numbers, and clears (kept_stacks_open).
 *
 * Owns: the table. Context: keeping and reading SIG, TICK, THR; the rest INIT, TICK. Locks: none of
 * its own; closing and opening under LOCK_FLUSH. */
#ifndef LIBAGENT_KEPT_STACKS_H
#define LIBAGENT_KEPT_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/time_recorder.h"

/* An empty table; nobody uses that of an earlier start any more. 0 or -ENOMEM. */
int kept_stacks_start(void) MUST_USE;
void kept_stacks_destroy(void);
/* The number of a stack; 0: there is no room. */
uint32_t kept_stack(const struct record_stack *stack, uint32_t count);
const struct record_stack *kept_stack_at(uint32_t number, uint32_t *count);
bool kept_stacks_are_many(void);
void kept_stacks_close(void);
void kept_stacks_open(void);

#endif
