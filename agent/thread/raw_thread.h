/* raw_thread.h: a thread that libc does not know.
 *
 * libc takes a process with such a thread for single-threaded: its stdio, malloc and libstdc++'s
 * reference counts stay on their cheap paths, and the process ends when the app's last thread
 * does. In return the thread may call no function of libc that locks, allocates or reads
 * thread-local data other than errno: those on test/lint/undefined.txt are such.
 *
 * What it has: a stack with a guard page, zeroed static thread-local data of the size that every
 * thread has, the app's stack and pointer guards. libc's calls that change the user in all threads
 * do not reach it: whoever forwards them ends it first.
 *
 * Owns: the threads' memory, kept for the next one. Context: any. Locks: none. */
#ifndef LIBAGENT_RAW_THREAD_H
#define LIBAGENT_RAW_THREAD_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/compiler.h"

/* Starts it; routine's return ends it. 0 or a negative errno (-EAGAIN: three exist). */
int raw_thread_create(void *(*routine)(void *), size_t stack_size) MUST_USE;
/* Is the calling thread one of them? */
bool raw_thread_is_current(void) MUST_USE;
/* Waits until all have ended and are off their memory (the kernel may count them a little longer).
 * They must be on their way to the end, and nobody may make more meanwhile. */
void raw_threads_wait_ended(void);

#endif
