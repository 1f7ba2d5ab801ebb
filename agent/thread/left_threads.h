/* left_threads.h: threads that have given their slots back, and are accounted, but that the kernel
 * may still know: from there to a thread's end it takes microseconds, or a little longer where it
 * calls exit. A scan is not to take them for threads that nobody told of. The agent's own threads
 * are among them.
 *
 * Owns: the last numbers. Context: any. Locks: none. */
#ifndef LIBAGENT_LEFT_THREADS_H
#define LIBAGENT_LEFT_THREADS_H

#include <stdbool.h>
#include <stdint.h>

void left_threads_add(int tid);
/* How many so far. */
uint32_t left_threads_count(void);
enum { LEFT_THREADS_NAMED = 64 };
/* Is it one of the last LEFT_THREADS_NAMED? */
bool left_threads_has(int tid);
/* Of these so many are still there. A system call each. */
uint32_t left_threads_there(int pid);

#endif
