/* scratch.h: buffers to walk a stack into, since 256 frames are too much for the app's stack.
 *
 * A small pool; a buffer is claimed by an atomic exchange and given back by a store. A claim
 * never waits: when all are in use (more than SCRATCH_BUFFERS threads were preempted in the
 * middle of a sample) it fails, and the sample is put off or folded, counted.
 *
 * Owns: the pool. Context: claim and give SIG, HOOK, THR, TICK, INIT; scratch_start INIT.
 * Locks: none. */
#ifndef LIBAGENT_SCRATCH_H
#define LIBAGENT_SCRATCH_H

#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/time_recorder.h"

enum { SCRATCH_BUFFERS = 64 };

/* Room for max_frames and one pseudo frame, in all buffers, which are free then. Nobody has one. 0,
 * or -ENOMEM and all is as it was. */
int scratch_start(uint32_t max_frames) MUST_USE;
struct record_stack *scratch_claim(void) MUST_USE;
void scratch_give(struct record_stack *stack);
/* In a fork child: all free. */
void scratch_reset_in_child(void);

#endif
