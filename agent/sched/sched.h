/* sched.h: what all schedulers of samples have in common, as one table of functions.
 *
 * A scheduler decides when a thread's time is sampled. scheduler_start chooses one by the options
 * and agent.c calls it through this table; each is one file. `cputimer` needs nothing but a timer
 * in each thread. The others have ticks (agent/sched/tick.h), which come in a thread of the
 * agent's: agent_thread.c makes it where `run` is set, and ends it where none may be.
 *
 * Owns: nothing. Context: start and stop INIT; run and ring as said; thread_begin and thread_end in
 * the thread itself (THR, HOOK) or, for an adopted thread, TICK. Locks: none. */
#ifndef LIBAGENT_SCHED_H
#define LIBAGENT_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

struct tick_visitor;

/* What is asked of a scheduler. */
struct sched_request {
    uint64_t period_ns;              /* between samples of a thread that runs */
    bool cpu;                        /* CPU time is profiled */
    const struct tick_visitor *wall; /* who accounts wall time at ticks; NULL: it is not asked */
};

struct scheduler {
    const char *name;
    bool gives_wall;
    /* 0 or a negative errno; nothing is armed then. */
    int (*start)(const struct sched_request *request);
    /* No sample is taken and no timer armed from now on, whatever thread_begin is called for. Asked
     * for by the thread of `run`, which has ended, or by nobody. */
    void (*stop)(void);
    /* Another period, from now on. Any context. */
    void (*set_period)(uint64_t period_ns);
    /* Where ticks are for wall time alone, theirs; else NULL. */
    void (*set_tick_period)(uint64_t period_ns);
    void (*thread_begin)(struct thread_slot *slot);
    void (*thread_end)(struct thread_slot *slot);
    /* In the thread itself (THR, SIG): from now on no sample is due; from now on the next one is
     * due after a whole period. */
    void (*thread_hold)(struct thread_slot *slot);
    void (*thread_go_on)(struct thread_slot *slot);
    /* In a fork child, for its only thread. */
    void (*reset_in_child)(struct thread_slot *own);
    /* NULL where no thread is needed. TICK, in a thread of its own: ticks until `goes_on` says no,
     * which it asks after each `ring` (any context), or until the process is at rest: a thread of
     * the app's that runs again then calls for it by a moment (agent/thread/moment.h). */
    void (*run)(bool (*goes_on)(void));
    void (*ring)(void);
    /* When `run` returns next it is for good: the thread `stopper`, which calls this, stops it all,
     * and then rings. */
    void (*run_ends)(int stopper);
    /* Must `run` begin before a thread of the app was sampled? */
    bool (*runs_at_once)(void);
    /* `run` cannot be called any more or for a while: threads are sampled without. TICK, THR. */
    void (*rest)(void);
};

/* Starts the scheduler that the options name, or that fits best to what is asked: what it cannot
 * give is taken out of the request, and said. NULL, said as well: no time is sampled. INIT. */
const struct scheduler *scheduler_start(struct sched_request *request);

extern const struct scheduler scheduler_cputimer;
extern const struct scheduler scheduler_sigprof;
extern const struct scheduler scheduler_sigalrm;
extern const struct scheduler scheduler_sleep;
extern const struct scheduler scheduler_event;

#endif
