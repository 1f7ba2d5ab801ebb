/* unseen_threads.h: threads that nobody told of: made by libc itself (timers with SIGEV_THREAD,
 * asynchronous I/O), by a system call of the program's own, or by an object that is bound to libc
 * before us.
 *
 * Looks: the agent's thread finds them by a scan at each period's end. So that they are sampled
 * before, the number of the process's threads is held against the slots each tenth of a second in a
 * thread of the app: where there are more, the agent's thread is made at once. Those that have left
 * their slots, but that the kernel may still count, are left out.
 *
 * Watch: those that end within hundredths of a second are found where the looks come as often as
 * the kernel's ticks. The agent's thread takes them, sleeping in between, whoever else sleeps: for
 * a second from where one was found, or the clocks tell that unseen threads have an eighth of the
 * process's time (which is checked about as often as looks are taken, and at a flush). Where such a
 * watch finds nobody, the next one may begin twice as late. Where there are no such threads there
 * is none, and so no thread that wakes up.
 *
 * Time: some end before a look. What the process has used, of which the kernel keeps the sum, less
 *  1. the clocks of all threads that are known now, the agent's too,
 *  2. what those had used that are known no more (`past`),
 * is theirs, together with what known threads take at their very end. A thread that is found by
 * itself (a hook in it) counts from there on: what it had used before is taken off `past`. The same
 * difference at the start (`before`), and what is in a window already (`told`), are taken off.
 * Since all are sums from the start on, what one look misses, as clocks go on during it, the next
 * one has.
 *
 * Owns: the times of the next looks, these sums. Context: unseen_threads_look SIG, HOOK, THR; start
 * INIT; the rest as said. Locks: none; the caller of unseen_threads_take_time has LOCK_FLUSH. */
#ifndef LIBAGENT_UNSEEN_THREADS_H
#define LIBAGENT_UNSEEN_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* Every thread that is there has a slot. One that leaves meanwhile hides as much of others' time as
 * it had used. */
void unseen_threads_start(uint64_t now_ns);
/* At a moment. */
void unseen_threads_look(uint64_t now_ns);
/* Before a flush: those that are there still, whatever was found before, and those that are gone.
 * INIT, TICK. */
void unseen_threads_look_now(void);
/* A scan has found one. TICK. */
void unseen_threads_found(void);
/* At a flush: have they had a share of the time since the last one? A watch begins, if so. TICK. */
bool unseen_threads_check(void);
/* The watch: CLOCK_MONOTONIC time of its next look, UINT64_MAX: there is none. That look, if it is
 * due: `scan` looks for each thread. TICK. */
uint64_t unseen_threads_due_ns(void);
void unseen_threads_watch(uint64_t now_ns, void (*scan)(void));
/* A thread came by itself, at that value of its clock; one was accounted up to it, and its slot is
 * about to go. Any context. */
void unseen_threads_one_known(uint64_t cpu_ns);
void unseen_threads_one_left(uint64_t cpu_ns);
/* Is there time to be told of? Any context. */
bool unseen_threads_have_time(void);
/* That time, which counts as told from now on; 0: none. TICK, INIT. */
uint64_t unseen_threads_take_time(void) MUST_USE;

#endif
