/* shadow_stack.h: the true stack of a thread that is stepped, kept without any table: a call that
 * is executed puts down its return address, and what the stack pointer leaves behind is dropped.
 * It judges between two walks, and finds what both have wrong.
 *
 * It begins empty at a program's first instruction, else with a stack that two walks agree on. A
 * change of stacks (swapcontext) loses it, until they agree again. */
#ifndef LIBAGENT_TEST_SHADOW_STACK_H
#define LIBAGENT_TEST_SHADOW_STACK_H

#include "test/unwind/walkers.h"

void shadow_begin_empty(void);
void shadow_begin_from(const struct frames *frames, const struct frame_places *places);
void shadow_lose(void);
bool shadow_is_known(void);
/* `before` executed one instruction, whose bytes are `code`, or was sent to a handler of `signal`
 * (0: none was delivered), and became `now`. */
void shadow_step(const struct tracee *before, const uint8_t code[16], int signal,
                 const struct tracee *now);
/* Whether memory still has the return addresses that were put down (the innermost ones). */
bool shadow_is_intact(const struct tracee *tracee);
/* The true frames. */
void shadow_frames(const struct tracee *tracee, struct frames *frames);

#endif
