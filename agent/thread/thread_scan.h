/* thread_scan.h: compares the slots with the kernel's list of threads (/proc/self/task).
 *
 * Threads that libc makes inside (timers with SIGEV_THREAD, asynchronous I/O) or that began
 * before the agent are not seen at pthread_create; slots whose thread went without its key
 * destructor (raw exit system call) would stay for ever.
 *
 * Owns: nothing. Context: TICK, and INIT while there is no TICK. Locks: none. */
#ifndef LIBAGENT_THREAD_SCAN_H
#define LIBAGENT_THREAD_SCAN_H

#include <stdbool.h>

#include "agent/thread/thread_context.h"

/* Calls `adopted` for each thread that has a slot from now on; `is_own` tells the agent's own
 * threads, which get none. Slots of threads that are gone are released, after a call of `gone`. */
void thread_scan(bool (*is_own)(int tid), void (*adopted)(struct thread_slot *slot),
                 void (*gone)(struct thread_slot *slot));
/* Calls `each` for every thread of the process; the number of threads, or a negative errno. */
int thread_scan_each(void (*each)(int tid, void *data), void *data) MUST_USE;
/* Does /proc tell of this process? */
bool thread_scan_is_possible(void);
/* INIT, at a start: every thread of the process has a slot then, but for the agent's own. */
void thread_scan_all(bool (*is_own)(int tid));

#endif
