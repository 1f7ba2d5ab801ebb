/* tick.h: ticks, by which all schedulers but cputimer sample: one visits the process's threads.
 *
 * Ticks come in a thread of the agent's own, whatever tells their time (struct tick_source): a
 * flush, which takes long, delays none, and no thread of the app does their work. Those that are
 * missed are skipped, never made up.
 *
 * Protocol:
 *  1. One read of the process's CPU clock, less that of the ticks' own thread, tells whether any
 *     thread moved since the last visits; if not, the tick is over. (Not where a visitor asked
 *     for one more, nor where threads are so many that this one read would take longer than all
 *     visits of a tick.)
 *  2. Else the slots are visited: first those that moved at their last visit, then the others in
 *     rotation, until the tick has read as many CPU clocks as it may (a share of the period, since
 *     each read takes 0.3 us). A thread that is visited less often is sampled less often, and what
 *     a sample is worth is measured: totals are the same.
 *  3. A thread whose clock moved since its last visit is sampled by its own timer, at the next
 *     instant that it runs (agent/sched/thread_timer.h), never by a directed signal: a blocked
 *     thread is not touched. Where wall time is asked for the visitor is told of each thread.
 *  4. At a stop, where wall time is asked for, one more tick visits all threads but the one that
 *     stops: the visitor has the last word of each.
 *  5. When nothing has moved for a while, and no wall time is asked for, the threads' timers are
 *     armed for a whole period and the ticks' thread ends: the process is left alone. A sample of
 *     such a timer passes a moment, which makes that thread again; where none can be made, the
 *     timers go on by themselves, as those of cputimer.
 *
 * Owns: the rotation, `tick` and `tick_cpu_ns` of the slots. Context: as said. Locks: none. */
#ifndef LIBAGENT_TICK_H
#define LIBAGENT_TICK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/sched/sched.h"
#include "agent/thread/thread_context.h"

/* What is told of threads at a tick, all TICK; `now_ns` is CLOCK_MONOTONIC, `cpu_ns` the thread's
 * CPU clock as just read. The slot may be given back at any time; its thread may end. */
struct tick_visitor {
    /* The clock stands as at the last visit. */
    void (*still)(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns);
    /* It moved; a sample comes as soon as it runs (or, beside cputimer, when that one's is due). */
    void (*moved)(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns);
    /* All visits of this tick are done; the process may have been idle (`visits` 0). NULL: none. */
    void (*done)(uint64_t now_ns, uint32_t visits);
    /* The last tick before a stop begins. NULL: none. */
    void (*last)(void);
};

/* What tells the ticks' time. TICK. */
struct tick_source {
    /* Waits for the next tick, or until `ring` made the bell differ from `bell`, and may return
     * early. `*next_ns`: CLOCK_MONOTONIC of the next one; 0 at the first call. True: it is due. */
    bool (*wait)(uint32_t bell, uint64_t *next_ns);
    /* The process may be left alone while it is idle. */
    bool may_rest;
};

/* Ticks are to come each `request->period_ns`, but no more often than they are good for, told by
 * `source`. `arms`: threads are sampled by them; else another scheduler does. INIT. */
int tick_start(const struct sched_request *request, const struct tick_source *source,
               bool arms) MUST_USE;
void tick_stop(void);
void tick_set_period(uint64_t period_ns);
/* For the table of functions of each scheduler. */
void tick_thread_begin(struct thread_slot *slot);
void tick_reset_in_child(struct thread_slot *own);
void tick_run(bool (*goes_on)(void));
void tick_run_ends(int stopper);
bool tick_runs_at_once(void);
void tick_rest(void);
/* Any context. */
void tick_ring(void);
/* The bell, a futex word, and the time of the tick that follows one at `next_ns` when it is
 * `now_ns`. For sources. */
extern HIDDEN uint32_t tick_bell;
uint64_t tick_period_ns(void);
uint64_t tick_next(uint64_t next_ns, uint64_t now_ns);
/* The one of event.c. */
extern const struct tick_source event_source;
/* Around what is recorded in ticks (record/time_recorder.h): false where no guard could be had, and
 * nothing may be. TICK. */
bool tick_guard_enter(void) MUST_USE;
void tick_guard_leave(void);
/* For visitors: the next tick visits threads even where none moves. TICK. */
void tick_visit_again(void);
/* One tick. False: the process was idle. TICK. */
bool tick_visit(uint64_t now_ns);

/* What the tables of all schedulers with ticks have in common, and what is that of most. */
#define TICK_SCHEDULER_COMMON                                                                      \
    .thread_end = thread_timer_end, .thread_hold = thread_timer_hold,                              \
    .thread_go_on = thread_timer_go_on, .run = tick_run, .run_ends = tick_run_ends,                \
    .ring = tick_ring, .runs_at_once = tick_runs_at_once, .rest = tick_rest
#define TICK_SCHEDULER                                                                             \
    TICK_SCHEDULER_COMMON, .set_period = tick_set_period, .stop = tick_stop,                       \
                           .thread_begin = tick_thread_begin,                                      \
                           .reset_in_child = tick_reset_in_child

#endif
