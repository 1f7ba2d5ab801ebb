/* calling_stack.h: may a thread be made here?
 *
 * Owns: nothing. Context: stack_has_room any; stack_allows_thread INIT, THR, inside the agent
 * (agent/thread/presence.h) or where no start can come. Locks: none. */
#ifndef LIBAGENT_CALLING_STACK_H
#define LIBAGENT_CALLING_STACK_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* Room below the stack pointer. */
bool stack_has_room(void) MUST_USE;
/* The same, and no frame of libc, the loader or the allocator lies under the call that led to us
 * (exit, exec) but the outermost ones: pthread_create may be called. */
bool stack_allows_thread(void) MUST_USE;

#endif
