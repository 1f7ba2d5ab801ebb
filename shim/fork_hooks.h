/* fork_hooks.h: the agent's handlers of fork.
 *
 * libc calls prepare handlers in the reverse order of their registration, and the others in that
 * order. Ours must be the first that are registered: the loader's list is locked and signals are
 * blocked between the agent's prepare handler and its parent or child handler, and no handler of
 * the app's may come in between. Constructors of libraries run before ours; so what registers
 * handlers for pthread_atfork is hooked, and the first call registers ours before it.
 *
 * Owns: nothing. Context: INIT, THR. Locks: none. */
#ifndef LIBAGENT_FORK_HOOKS_H
#define LIBAGENT_FORK_HOOKS_H

/* Registers them, unless that is done. */
void fork_handlers_register(void);

#endif
