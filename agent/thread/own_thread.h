/* own_thread.h: the agent's own threads.
 *
 * They block every signal but glibc's internal two (cancellation and the one that carries setuid
 * to all threads), have a small stack, are marked internal (hooks and handler pass them by), and
 * have a descriptor table of their own where the kernel allows it: so they keep nothing of the
 * app's open (the reader of the app's pipe would wait for us), and no number of theirs is ever
 * the app's.
 *
 * Owns: nothing. Context: own_thread_create THR, INIT, TICK, and HOOK or SIG at a moment
 * (agent/thread/moment.h); own_thread_enter in the new thread. Locks: none of ours; pthread_create
 * takes libc's. */
#ifndef LIBAGENT_OWN_THREAD_H
#define LIBAGENT_OWN_THREAD_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* Starts a detached thread. 0 or a negative errno (-ENOSYS: no pthread_create here). */
int own_thread_create(void *(*routine)(void *)) MUST_USE;
/* False: a thread of agent/thread/raw_thread.h. */
bool own_thread_is_known_to_libc(void);
/* First call of the routine. `name`: up to 15 bytes. */
void own_thread_enter(const char *name);

#endif
