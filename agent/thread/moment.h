/* moment.h: work that an app thread may start for the agent, at a moment when it is safe.
 *
 * No thread of ours exists before one is needed, so "the period is over" has to be noticed by a
 * thread of the app: at the agent's start, the begin of a new thread, and at each sample. Some work
 * needs a clean stack (unwind.h's UNWIND_CLEAN): no frame of libc, loader or allocator but the
 * outermost ones, so that this thread cannot hold a lock of theirs, and pthread_create or the
 * loader is as safe as if the app had called it at that instruction.
 *
 * Owns: the time when something is due and what is then called. Context: moment_pass SIG, HOOK,
 * THR, INIT. Locks: none. */
#ifndef LIBAGENT_MOMENT_H
#define LIBAGENT_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* CLOCK_MONOTONIC time from which on `work` is to be called; UINT64_MAX: never. */
extern HIDDEN uint64_t moment_due_ns;
extern HIDDEN void (*moment_work)(bool clean);
/* Called at each moment, whatever is due; NULL: nothing. For what is cheap to ask. */
extern HIDDEN void (*moment_look)(uint64_t now_ns);

/* Calls the work if it is due. `clean`: the calling stack is, or nothing of libc is under way. */
void moment_pass(bool clean);
/* The same for who has just read the clock. */
void moment_pass_at(uint64_t now_ns, bool clean);
/* The work is due now. Any context. */
void moment_set_due_now(void);

#endif
