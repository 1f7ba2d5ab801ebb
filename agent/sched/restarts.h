/* restarts.h: whether samples keep a thread from making progress.
 *
 * A signal that comes during some system calls (fork of a large process, above all) makes the
 * kernel give up what it has done and begin the call anew. Where the call takes longer than the
 * time between two samples it never ends. Seen in a sample: the pc is at the system call itself, as
 * at the one before, and the thread has not waited in between. Such a thread is sampled less and
 * less often, until its call comes to an end.
 *
 * Owns: `last_pc`, `last_waits` and `restarts` of slots. Context: SIG, in the slot's thread. Locks:
 * none. */
#ifndef LIBAGENT_RESTARTS_H
#define LIBAGENT_RESTARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/thread/thread_context.h"

/* Notes where this sample came. */
void restarts_at_sample(struct thread_slot *slot, const void *ucontext);
/* May the tick of that number sample it? TICK. */
bool restarts_allow(const struct thread_slot *slot, uint32_t number);
/* The time between samples of such a thread. */
uint64_t restarts_interval_ns(const struct thread_slot *slot, uint64_t interval_ns);

#endif
