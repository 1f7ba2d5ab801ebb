/* judge.h: one stop of a thread: both walks, the shadow stack where there is one, and the verdict.
 */
#ifndef LIBAGENT_TEST_JUDGE_H
#define LIBAGENT_TEST_JUDGE_H

#include "test/unwind/tracee.h"

/* The tracee's objects may have changed. */
void judge_modules(pid_t pid);
/* A stop behind one instruction, for which shadow_step was called. */
void judge_step(const struct tracee *tracee);
/* The thread ran on without being stepped. */
void judge_gap(void);
/* A stop at a random moment. */
void judge_sample(const struct tracee *tracee);

#endif
