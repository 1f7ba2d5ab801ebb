/* lost_tails.h: what threads used after their last sample that ended without a word (those of a
 * bare clone, and those that were found; others by the system call exit).
 *
 * Nobody has seen the clock of one at its end, but the process's tells what all have used together
 * (agent/unseen_threads.h). Each can have used an interval between samples, and some ticks of the
 * kernel's, at which it looks at timers. So of the unseen time so much goes to the routines of
 * those that are gone, in proportion to what can be theirs, as `[thread end]`; what is beyond was
 * not theirs. Sums are those of the clock in any case. (Also tried, by simulation: the first sample
 * of each, at a random phase, stands for a whole interval. Such sums are as true on average, but
 * those of 200 threads of 5 ms at 101 Hz were off by up to 8 %.)
 *
 * Owns: the sums by routine and name. Context: as said. Locks: none; who comes at the same instant
 * as another goes without. */
#ifndef LIBAGENT_LOST_TAILS_H
#define LIBAGENT_LOST_TAILS_H

#include "agent/thread/thread_context.h"

/* INIT; in a fork child, too. */
void lost_tails_start(void);
/* This thread is gone; its slot is about to go. TICK, INIT. */
void lost_tails_add(const struct thread_slot *slot);
/* Tells of `unseen_ns` what can be that of those threads; returns the rest. Those threads are done
 * with. TICK, INIT. */
uint64_t lost_tails_tell(uint64_t unseen_ns) MUST_USE;

#endif
