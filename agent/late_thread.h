/* late_thread.h: a thread of the agent that did not end for a pause in time, as it is held up in a
 * file system or a library.
 *
 * Protocol: the program's call is not kept from going on, but the pause stays in force: that thread
 * makes no file when it comes back, and ends; no other pause waits for it, and no thread of ours is
 * made before it is gone, which is looked for at moments and requests.
 *
 * Owns: that pause. Context: THR, SIG. Locks: LOCK_UPLOADER, LOCK_LOG. */
#ifndef LIBAGENT_LATE_THREAD_H
#define LIBAGENT_LATE_THREAD_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* After agent_thread_pause; says so in the log. True: the caller's pause is taken over, and
 * agent_thread_go_on is called here; false: another's was. */
bool late_thread_begins(void) MUST_USE;
/* True: there is none, or it has just ended, and with it the pause. */
bool late_thread_is_gone(void);

#endif
