/* thread_tails.h: what threads used after their last samples, by where they began and by name.
 *
 * A thread's first sample comes at a random instant of its first interval: only so is a thread
 * that lives for less than that sampled at all, and its begin seen as often as all else. Such a
 * sample has to stand for a whole interval then, as others do, but its thread has used only a part
 * of one. The rest, as far as there is as much, is taken from here: what earlier threads of the
 * same kind used after their last samples is as much on average. So functions have the shares that
 * they have in the threads, where a thread takes a few intervals, and each kind's sum is still that
 * of its clocks. What is left is told as `[thread end]` at the window's end. (Without it a function
 * that has the first 0.3 of threads of 20 ms was shown with 0.1 of what was sampled, at 101 Hz.)
 *
 * Owns: the sums. Context: as said. Locks: none; who comes at the same instant as another goes
 * without. */
#ifndef LIBAGENT_THREAD_TAILS_H
#define LIBAGENT_THREAD_TAILS_H

#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

/* INIT; in a fork child, too. */
void thread_tails_start(void);
/* A thread ends, and used `amount_ns` after its last sample. False: there is no place for it, and
 * the caller is to tell of it. THR. */
bool thread_tails_add(const struct thread_slot *slot, uint64_t amount_ns) MUST_USE;
/* Up to `most_ns` of what threads of this one's kind used. It is the caller's. SIG. */
uint64_t thread_tails_take(const struct thread_slot *slot, uint64_t most_ns) MUST_USE;
/* What is left, and then nothing is. TICK, INIT. */
void thread_tails_tell(void (*tell)(const struct thread_label *label, uint64_t routine,
                                    uint64_t amount_ns));

#endif
