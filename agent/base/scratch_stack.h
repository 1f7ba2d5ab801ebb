/* scratch_stack.h: runs a function on another stack, and can end it from any depth.
 *
 * For code of others that recurses and takes its arrays from the stack: the flush may run on the
 * stack of any thread of the app that calls exit, a sample on any at all, and these may be small.
 * Ending from any depth is for functions that would not come back in time; what is left behind must
 * own nothing.
 *
 * Owns: nothing. Context: any. Locks: none. One file a processor: each is a few lines of
 * assembly, in scratch_stack.c. */
#ifndef LIBAGENT_SCRATCH_STACK_H
#define LIBAGENT_SCRATCH_STACK_H

#include "agent/base/compiler.h"

/* Calls function(argument) on the stack that ends (is highest) at `top`, aligned to 16. *mark is
 * set before the call. Returns 0, or 1 when scratch_stack_leave ended it. */
int scratch_stack_call(void (*function)(void *), void *argument, void *top, void **mark);
/* Ends the call whose mark this is: called by what it called. */
void scratch_stack_leave(void *mark) __attribute__((noreturn));

#endif
