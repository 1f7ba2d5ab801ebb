/* walkers.h: the stack of a stopped thread by the agent's walk and by libunwind, from the same
 * registers; each reads the thread's memory in its own way. */
#ifndef LIBAGENT_TEST_WALKERS_H
#define LIBAGENT_TEST_WALKERS_H

#include "test/unwind/tracee.h"
#include "test/unwind_reference.h"

/* What libunwind knows of each frame besides its pc. */
struct frame_places {
    uintptr_t sp[REFERENCE_MAX];     /* in that frame: the CFA of the one before */
    bool exact[REFERENCE_MAX];       /* interrupted, by a signal */
    uintptr_t raw_pc[REFERENCE_MAX]; /* not less 1 */
};

void walkers_start(void);
/* The process's modules changed. */
void walkers_forget(void);
void walk_ours(const struct tracee *tracee, struct frames *frames);
void walk_theirs(const struct tracee *tracee, struct frames *frames, struct frame_places *places);
/* Whether the code there is that which signal handlers return to. */
bool is_sigreturn_code(pid_t pid, uintptr_t pc);

#endif
