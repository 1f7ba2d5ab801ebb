/* wall.h: wall-clock time of every thread, told by ticks, without touching a thread that waits.
 *
 * Each thread has an account: up to when its time is in a window, when it was last seen, and the
 * stack that it stood at then.
 *
 * Protocol:
 *  1. A tick (TICK) tells of a thread and its CPU clock (wall_visitor). Where the clock stands as
 *     it did when the thread's stack was taken, that stack holds still: the account notes the time,
 *     no more. A tick that finds the whole process idle notes that once for all; but while it is
 *     not known of a thread where it stands, each tick visits them.
 *  2. Else the thread has moved. Its old stack gets the time until it was last seen there, as one
 *     sample, with the labels that it had when it was seen there first. What it does now is asked
 * (agent/sched/blocked.h). Of the time since, what it ran (agent/sched/run_balance.h) is put by
 * (`running_ns`) for its next CPU sample, whose stack it gets; the rest it waited: a. It waits: its
 * stack is read from outside, and is the one that it stands at. b. It runs: it waited where it did
 * before, and where that is not known it ran all the time. c. It went on while it was read: the
 * next tick looks again, and has all of the time to give. d. That is refused: it stands at the
 * stack that its last CPU sample had, marked approximate; or, with LIBAGENT_WALL_SIGNAL, is sampled
 * by a signal, once each time that it comes to rest. Where more threads move than can be asked at a
 * fiftieth of a processor, each is asked less often: as c. The last tick before a stop asks all
 * that are left, up to a thousand or so.
 *  3. A flush moves what stands to the window that ends, and so does the thread's end, which also
 *     gives what is left to `[thread end]`. So each thread's samples sum up to its life.
 *  4. An account is written by who has claimed it (`claimed`): the ticks' thread, a flush, the
 *     thread at its begin and end. Who finds it claimed does without (a tick) or waits a little.
 *     Only `running_ns`, `sampled` and `answered` are written by the thread's handler, too.
 *
 * Owns: the accounts. Context: as said. Locks: none. */
#ifndef LIBAGENT_WALL_H
#define LIBAGENT_WALL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/tick.h"
#include "agent/thread/thread_context.h"

/* What ticks tell of threads. */
extern const struct tick_visitor wall_visitor;

/* Where there is no memory for it that is said in the log, and wall_is_on tells. `signals`:
 * LIBAGENT_WALL_SIGNAL. INIT. */
void wall_start(bool signals);
/* After the last flush, and before a start, whether that has wall time or not; nobody samples.
 * INIT, TICK. */
void wall_stop(void);
/* The slot is a thread's from `now_ns` (CLOCK_MONOTONIC) on; is not any more. In the thread itself,
 * inside its guard at the end, or TICK. */
void wall_thread_begin(struct thread_slot *slot, uint64_t now_ns);
void wall_thread_end(struct thread_slot *slot, uint64_t now_ns);
/* Before a window ends: the thread's time so far; `cpu_ns` its CPU clock. `final`: the process
 * ends. TICK, INIT under LOCK_FLUSH. */
void wall_flush(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns, bool final);
/* Behind the last of them, before the windows turn: threads that are gone, too. */
void wall_flushed(void);
bool wall_is_on(void);
/* In a fork child. */
void wall_reset_in_child(struct thread_slot *own, uint64_t now_ns);

/* A CPU sample of the calling thread, in its handler: the stack, which may be changed, and the
 * number of its frames. */
extern HIDDEN bool wall_on;
void wall_sample_inside_handler(struct thread_slot *slot, struct record_stack *stack,
                                uint32_t count);
static inline void wall_sample(struct thread_slot *slot, struct record_stack *stack, uint32_t count)
{
    if (unlikely(load_relaxed(&wall_on)))
        wall_sample_inside_handler(slot, stack, count);
}

#endif
