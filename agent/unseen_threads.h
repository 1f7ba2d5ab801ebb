/* unseen_threads.h: threads that nobody told of: made by libc itself (timers with SIGEV_THREAD,
 * asynchronous I/O), by a bare clone, or by an object that is bound to libc before us.
 *
 * The agent's thread finds them by a scan at each period's end. So that they are sampled before,
 * the number of the process's threads is held against the slots some times in its first minute, in
 * a thread of the app: where there are more, the agent's thread is made at once. As many as have
 * left their slots since the last look are left out: the kernel may still count them.
 *
 * Owns: the time of the next look. Context: unseen_threads_look SIG, HOOK, THR; start INIT. Locks:
 * none. */
#ifndef LIBAGENT_UNSEEN_THREADS_H
#define LIBAGENT_UNSEEN_THREADS_H

#include <stdint.h>

void unseen_threads_start(uint64_t now_ns);
/* At the end of the process: those that are there still, whatever was found before. INIT. */
void unseen_threads_last_look(void);
/* At a moment. */
void unseen_threads_look(uint64_t now_ns);

#endif
