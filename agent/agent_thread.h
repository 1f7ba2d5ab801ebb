/* agent_thread.h: the agent's thread: when it is born, and what is asked of it. It makes and ends
 * the uploader's (agent/uploader_thread.h).
 *
 * Protocol:
 *  1. Nobody is born before there is work: `moment_due_ns` is the end of the period; the first
 *     thread of the app that passes a moment then makes the agent's thread (agent/thread/moment.h).
 *  2. The agent's thread flushes each period, sleeping on `bell` until the next deadline. The
 *     first blob makes the uploader's thread. After a period with nothing to write both end, and
 *     it is as before the first.
 *  3. Others put requests: they add to `wanted` (a flush before exec, the end), and wait with a
 *     deadline for `served` to reach it. Where no thread of ours exists and none may be made here
 * (the calling stack has frames of libc in the middle: exit from a handler that interrupted malloc,
 * say), the calling thread does the work itself: nothing in it needs a lock of libc or memory of
 *     malloc.
 *  4. Around a call that the kernel refuses to a process with several threads (unshare, setns), or
 *     that libc makes in all threads that it knows (setuid and its kin), agent_thread_pause ends
 *     both; they are born again when there is work (agent/birth.h).
 *  5. A stop is the last request, after which both end; where something is watched
 * (LIBAGENT_CONFIG) the agent's thread stays, or leaves one that libc does not know behind, which
 * asks `control` once a period whether to start again. Others make it for that (a signal). Race
 * that remains: a flush that is asked for while the periodic one runs is served by a second one
 * right after. Harmless.
 *
 * Owns: both threads. Context: as said. Locks: none of its own. */
#ifndef LIBAGENT_AGENT_THREAD_H
#define LIBAGENT_AGENT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/thread/thread_context.h"

/* INIT. `adopted` is called (TICK) for threads that a scan finds, `gone` for those that ended
 * unseen. `early`: the agent's thread is
 * born with the app's first one, since no sample will be a moment for it. */
void agent_thread_start(void (*adopted)(struct thread_slot *), void (*gone)(struct thread_slot *),
                        bool early);
/* A flush now, and what is queued written. Returns at the CLOCK_MONOTONIC deadline at the latest
 * where a thread of ours does it. 0 or -ETIMEDOUT. INIT, THR. */
int agent_thread_flush(uint64_t deadline_ns) MUST_USE;
/* The same where the program may end behind it: says in the log that it was late. INIT, THR. */
void agent_thread_flush_last(uint64_t deadline_ns);
/* A flush soon. SIG. */
void agent_thread_want_flush(void);
/* The last flush; says in the log what could not be done. INIT. */
void agent_thread_finish(uint64_t deadline_ns);
/* The same at a stop, after which our threads have ended, and a start may come. 0, or -ETIMEDOUT:
 * not all is written, or a thread is not at its end. INIT, TICK. */
int agent_thread_stop(uint64_t deadline_ns) MUST_USE;
/* Nothing of an earlier start is under way any more: no last window is being made or written, after
 * a stop that did not wait for it to the end. False at the CLOCK_MONOTONIC deadline. INIT, TICK. */
bool agent_thread_is_over(uint64_t deadline_ns) MUST_USE;
/* INIT, once. `work` is called by the agent's thread after agent_thread_want_control; `always`:
 * also once a period, on or off, for which the thread stays from the first period on. */
void agent_thread_control(void (*work)(void), bool always);
/* Soon: for threads that nobody told of, at the live heap (agent/heap_watch.h). SIG, HOOK, THR. */
enum agent_thread_look { LOOK_FOR_THREADS = 1, LOOK_AT_HEAP = 2 };
void agent_thread_want_look(enum agent_thread_look look);
/* Any context but the agent's threads. */
void agent_thread_want_control(void);
/* Rings for the agent's thread, which is made where there is none. False: it cannot be made here,
 * on a stack of which nothing is known. SIG. */
bool agent_thread_call(void) MUST_USE;
/* Ends our threads, which they have done when this returns, or the CLOCK_MONOTONIC deadline (0:
 * none) is reached; none is born until agent_thread_go_on. What is recorded and queued stays; the
 * app's first moment after the period makes them again. May be called by several threads. False:
 * one has not ended. THR, SIG. */
bool agent_thread_pause(uint64_t deadline_ns);
void agent_thread_go_on(void);
bool agent_thread_are_gone(void);
/* It is made, and has not said who it is: a scan may see it. Any context. */
bool agent_thread_is_starting(void);
/* Waits until the kernel knows none of our threads any more, or the deadline. THR. */
void agent_thread_wait_gone(uint64_t deadline_ns);
/* In a fork child. */
void agent_thread_reset_in_child(void);

#endif
