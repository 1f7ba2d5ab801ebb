/* app_threads.h: the program's threads as they begin, get a name and end; the hooks of these are in
 * agent.h.
 *
 * Owns: nothing. Context: as said at each function. Locks: none. */
#ifndef LIBAGENT_APP_THREADS_H
#define LIBAGENT_APP_THREADS_H

#include "agent/thread/thread_context.h"

/* The scheduler, if there is one, takes the thread on, or lets it go. `slot` may be NULL. THR,
 * TICK, INIT. */
void app_thread_begins(struct thread_slot *slot);
void app_thread_gone(struct thread_slot *slot);
/* The same for one that was found, and is not known from its birth on. TICK, INIT. */
void app_thread_adopted(struct thread_slot *slot);
/* The same for the calling one, which nobody told of until it came by itself. THR, HOOK, INIT. */
void app_thread_late(struct thread_slot *slot);
/* The calling thread ends: its last CPU time is accounted, its timer goes, its slot is free. THR.
 */
void app_thread_leaving(void);

#endif
