/* flush.h: from the active window to blobs in the uploader's queue.
 *
 * Protocol of a flush (one at a time, LOCK_FLUSH):
 *  1. Overhead measured since the last flush goes into the active window; at the end of the
 *     process also the CPU time of each thread after its last sample.
 *  2. A window without a sample of a timer or an allocation goes on; nothing is written (but for
 *     the live heap, if it has changed since the process wrote it).
 *  3. The windows turn; the old one is read once all samples under way at that time are done.
 *     If one is not done within QUIESCENCE_LIMIT (its thread was stopped in the middle of a
 *     sample), the old window stays pending and the next flush begins with it.
 *  4. A snapshot of the live heap is taken. Each family is encoded and submitted; the window is
 *     cleared.
 *
 * Owns: the sequence number, the pending window. Context: TICK, INIT. Locks: LOCK_FLUSH. */
#ifndef LIBAGENT_FLUSH_H
#define LIBAGENT_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* INIT, before the tables go, or are made anew: a thread of ours that ends adds nothing to them any
 * more, until flush_start. */
void flush_hold(void);
/* INIT. `with_cpu`: there is a CPU profile, and overhead is accounted in it. The agent's figures
 * begin anew. */
void flush_start(bool with_cpu);
/* INIT, TICK, THR: the live heap's marks and peak (agent/heap_watch.h), at a start; what is due; a
 * mark now. */
void flush_heap_start(bool on);
void flush_heap_look(void);
int flush_heap_mark(void) MUST_USE;
/* INIT, before that, and before the tables are made anew: a window that was left pending by a stop
 * goes to the uploader. 0, or a negative errno: it stays. */
int flush_left_over(void) MUST_USE;
/* `final`: the process ends, no sample is taken any more. Returns the number of blobs submitted,
 * or a negative errno (said in the log). */
int flush_window(bool final) MUST_USE;
enum flush_own_thread { FLUSH_OWN_AGENT, FLUSH_OWN_UPLOADER, FLUSH_OWN_TICKS, FLUSH_OWN_THREADS };
/* The calling thread is this one of the agent's: its CPU time is overhead from now on. TICK, UP. */
void flush_own_thread_begins(enum flush_own_thread which);
/* It ends: from now on its time is what it has used. Before it tells so. TICK, UP. */
void flush_own_thread_ends(enum flush_own_thread which);
/* What they have used so far, those of before too. Any context. */
uint64_t flush_own_threads_cpu_ns(void);
/* What the agent's threads took since the last flush goes into the window: they end. They may do so
 * at any time, for a pause, also while a start is under way (flush_hold). TICK. */
void flush_own_threads_end(void);
bool flush_is_own_thread(int tid);
/* And it is not about to end: whose id that is cannot be another's. Any context. */
bool flush_is_own_thread_now(int tid);
/* The CPU clock of the ticks' thread; 0: there is none. Any context. */
uint64_t flush_ticks_cpu_ns(void);
/* How many threads of ours are still there (one may be on its way out). Any context. */
uint32_t flush_own_threads_there(void);
/* Is a window being made into profiles, or waiting for that? Any context. */
bool flush_is_under_way(void);
/* Is there something that a flush at the end would write? Any context. */
bool flush_is_due_at_end(void);
/* In a fork child. */
void flush_reset_in_child(void);

#endif
