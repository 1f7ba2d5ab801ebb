/* life.h: the life cycle: which state the agent is in, who may act in it, and how it changes.
 *
 *            ┌──────────────── start fails ───────────────┐
 *   OFF ◄────┘                                             │
 *    │ ▲                                                   │
 *    │ └───── threads ended, window written ── STOPPING ◄──│── ON ◄──┐
 *    └─► STARTING ─────────────────────────────────────────┴─────────┘
 *
 * Protocol:
 *  1. Who acts for the agent in a thread of the app (a hook) is between life_enter and life_leave,
 *     and does nothing unless life_enter is true; samples are counted the same way
 *     (agent/thread/presence.h).
 *  2. Whether it is to be on: the count of starts is not 0, and it is not switched off from outside
 *     (a signal, LIBAGENT_CONFIG). Each of these calls changes that under LOCK_LIFE, and then
 * brings the state after it.
 *  3. A start holds LOCK_LIFE throughout (milliseconds): a fork waits for it, so that no child has
 *     half of one. First it makes sure that nobody is inside, that no thread of ours works on what
 *     it makes anew (agent/agent_work.h; one that ends adds nothing, flush_hold), and that nothing
 *     of an earlier one is still being written (a second at most, then it fails). Then every table
 *     and context is made anew; then things are switched on, the state last.
 *  4. A stop holds LOCK_LIFE while it switches things off and waits, STOP_WAIT at most, until
 * nobody is inside; not while the last window is written, as that may take as long as a disk. So
 *     forks, exits and other starts may come in between: a child is OFF, the others wait for it.
 *     Not so the agent's thread (life_switch, life_change), which writes that window: it leaves
 *     word, which the next start follows.
 *  5. life_end is for ever: exit, or a filter of system calls.
 *
 * Owns: the state, the count. Context: as said at each function. Locks: LOCK_LIFE. */
#ifndef LIBAGENT_LIFE_H
#define LIBAGENT_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/sched/sched.h"

/* The one that runs; NULL: no CPU profile. */
extern HIDDEN const struct scheduler *life_scheduler;

/* INIT: this process may be profiled from now on; `on`: it is not switched off from outside. */
void life_begin(bool on);
/* False before that, in processes that are not to be profiled, and after life_end. Any context. */
bool life_is_possible(void);
bool life_is_on(void);
/* In hooks: false: do nothing, and no system call; else life_leave follows. */
bool life_enter(void) MUST_USE;
void life_leave(void);

/* Around a public function: false: it is to do nothing, and no system call. THR. */
bool life_call_begins(void) MUST_USE;
void life_call_ends(void);
/* After life_end: until all that were under way are over, or the deadline. THR. */
void life_wait_calls_over(uint64_t deadline_ns);

/* Each says whether the agent is to be on, and makes it so.
 * life_count_start: 0: it is on, or will be when it is switched on; 1: it was started before.
 * `before`, which may be NULL, is called first, with `options` and whether this start starts; its
 * error is returned. Negative: the start failed and is not counted: -EDEADLK from a handler that
 * interrupted the agent, -ESHUTDOWN after life_end, -EBUSY when a stop does not end, its files are
 * still being written, or a thread is stuck in a sample, or what start.h says. */
int life_count_start(int (*before)(const char *, bool), const char *options) MUST_USE;
/* 0, 1: others still want it; -EALREADY: it is not counted at all; -ETIMEDOUT: it is off, but its
 * last window is not written yet, or a thread is still in a sample. */
int life_count_stop(uint64_t deadline_ns) MUST_USE;
/* From outside. TICK. */
int life_switch(bool on) MUST_USE;
/* The same, the other way round than it is: `on` tells. Where nobody has started it, or all have
 * stopped, this is a start, and counted as one. */
int life_toggle(bool *on) MUST_USE;
bool life_is_switched_on(void);
/* With other options: stops and starts if it is on; `change` is called in between, or at once if it
 * is off, or about to be. TICK. */
int life_change(void (*change)(void)) MUST_USE;

/* Until a stop that another thread has begun is done, or the deadline. THR. */
void life_wait_stopped(uint64_t deadline_ns);

/* For ever. True: it was on, and the caller has ended it and is to write the last window. Waits
 * until the deadline where another thread is just stopping it. `waits_for_others`: nobody is inside
 * afterwards. INIT, THR, SIG. */
bool life_end(uint64_t deadline_ns, bool waits_for_others) MUST_USE;

/* Around fork; the child is ON or OFF. */
void life_fork_prepare(void);
void life_fork_parent(void);
/* True: on. */
bool life_fork_child(void);

#endif
