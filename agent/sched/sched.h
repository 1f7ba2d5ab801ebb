/* sched.h: what all schedulers of samples have in common, as one table of functions.
 *
 * A scheduler decides when a thread's time is sampled. agent.c chooses one by name and calls it
 * through this table; each is one file.
 *
 * Owns: nothing. Context: start and stop INIT; thread_begin and thread_end in the thread itself
 * (THR, HOOK) or, for an adopted thread, TICK. Locks: none. */
#ifndef LIBAGENT_SCHED_H
#define LIBAGENT_SCHED_H

#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

struct scheduler {
    const char *name;
    /* `period_ns` of CPU time between samples. 0 or a negative errno. */
    int (*start)(uint64_t period_ns);
    void (*stop)(void);
    void (*thread_begin)(struct thread_slot *slot);
    void (*thread_end)(struct thread_slot *slot);
    /* In the thread itself (THR, SIG): from now on no sample is due; from now on the next one is
     * due after a whole period. */
    void (*thread_hold)(struct thread_slot *slot);
    void (*thread_go_on)(struct thread_slot *slot);
    /* In a fork child, for its only thread. */
    void (*reset_in_child)(struct thread_slot *own);
};

extern const struct scheduler scheduler_cputimer;

#endif
