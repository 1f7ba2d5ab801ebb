/* left_alone.h: the end of a process whose threads have all ended one by one, the last one by the
 * system call exit, past libc: what the kernel has of it are the agent's threads, and these would
 * keep it.
 *
 * Owns: that end. Context: TICK, THR. Locks: those of a last window. */
#ifndef LIBAGENT_LEFT_ALONE_H
#define LIBAGENT_LEFT_ALONE_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* `write_last` writes the last window, in the thread that finds it so. INIT. */
void left_alone_start(void (*write_last)(void));
/* Are the agent's threads the only ones? Some 20 us. TICK. */
bool left_alone_look(void) MUST_USE;
/* The calling thread, one of the program's, leaves: is it the last one but for these? THR. */
bool left_alone_by_this_thread(void) MUST_USE;
/* If so writes the last window, and ends the process with the status of its first thread. */
void left_alone_end(void);

#endif
