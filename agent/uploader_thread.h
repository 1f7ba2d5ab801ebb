/* uploader_thread.h: the thread that writes and sends what is queued. It is made by the agent's
 * thread for the first blob, and ends with it, or for a pause.
 *
 * Owns: that thread. Context: as said. Locks: none of its own. */
#ifndef LIBAGENT_UPLOADER_THREAD_H
#define LIBAGENT_UPLOADER_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* There is something to write. TICK. */
void uploader_thread_need(void);
/* What is queued is written until the deadline: by that thread where there is one, else by the
 * calling one. `finishes`: at a stop, or the end. 0, or what uploader_wait_done and uploader_drain
 * return. TICK, INIT, THR. */
int uploader_thread_write_all(bool finishes, uint64_t deadline_ns) MUST_USE;
/* One line: "WHAT: so many", of files and of backends, and what else there is. THR, TICK, SIG. */
void uploader_thread_say_left(const char *what, const char *besides);
bool uploader_thread_is_starting(void); /* and has not said who it is */
bool uploader_thread_is_there(void);
/* True when there is none, at the CLOCK_MONOTONIC deadline (0: none) at the latest. INIT, TICK. */
bool uploader_thread_wait_none(uint64_t deadline_ns) MUST_USE;
/* Ends it, for good or until it is needed again. True: it has ended; false at the CLOCK_MONOTONIC
 * deadline (0: none). TICK, INIT, THR. */
bool uploader_thread_end(uint64_t deadline_ns);
bool uploader_thread_pause(uint64_t deadline_ns);
/* While own threads are paused, a pause keeps all from writing until this, whose caller knows that
 * none of ours is late for it, or that it is over. THR, SIG, TICK. */
void uploader_thread_go_on(void);
/* In a fork child. */
void uploader_thread_reset_in_child(void);

#endif
