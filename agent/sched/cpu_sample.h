/* cpu_sample.h: one CPU sample, whoever scheduled it.
 *
 * The value of a sample is measured: the thread's CPU clock since its last sample, less the time
 * that hooks took in between, which is overhead. So late ticks and overruns lose nothing, and a
 * sample that has to be put off (thread inside the agent, no scratch buffer) leaves its time to
 * the next one.
 *
 * Owns: where the main thread began. Context: cpu_sample_start INIT; cpu_sample_inside_handler SIG;
 * the tail THR, INIT, TICK inside no guard. Locks: none. */
#ifndef LIBAGENT_CPU_SAMPLE_H
#define LIBAGENT_CPU_SAMPLE_H

#include <stdbool.h>

#include "agent/record/time_recorder.h"
#include "agent/thread/thread_context.h"

void cpu_sample_start(void);
void cpu_sample_inside_handler(struct thread_slot *slot, void *ucontext);
/* Accounts the CPU time of a thread after its last sample, up to its clock's value `now_ns`. */
void cpu_sample_tail(struct thread_slot *slot, uint64_t now_ns);
/* The same of a thread that ends; of a short one it is kept, for the first samples of others of its
 * kind (agent/sched/thread_tails.h), until the second is called at a flush. THR; TICK, INIT. */
void cpu_sample_end(struct thread_slot *slot, uint64_t now_ns);
void cpu_sample_tell_ends(void);
/* Has the thread's clock gone on without a sample for longer than ticks are late? It then blocks
 * the sampling signal, or is not libc's, and gets none. */
bool cpu_sample_is_unreached(const struct thread_slot *slot, uint64_t now_ns);
/* Accounts what a thread used before it was found, which is its clock then; where that is no more
 * than a sample may stand for its first one will. TICK, INIT; nobody samples it yet. */
void cpu_sample_before_adoption(struct thread_slot *slot);
/* Accounts the CPU time of such a thread; nothing for others. */
void cpu_sample_unreached(struct thread_slot *slot, uint64_t now_ns);
/* Where a thread began; for the main thread the program's entry point; 0: not known. */
uint64_t cpu_sample_root(const struct thread_slot *slot);
/* The same, or the outermost frames of a thread's samples, innermost first; 0: none. */
void cpu_sample_outermost(const struct thread_slot *slot, uint64_t pcs[OUTERMOST]);
/* Moves the overhead that was measured for the slot's thread into the window. */
void cpu_sample_overhead(struct thread_slot *slot);
/* Adds `amount_ns` as overhead of the thread named by `label`, one of the agent's own: `part` is
 * its frame. */
void cpu_sample_add_overhead(const struct thread_label *label, enum pseudo_frame part,
                             uint64_t amount_ns);
/* The same for what threads that began there used after their last samples, and for what threads
 * used that nobody knew. */
void cpu_sample_add_lost_tail(const struct thread_label *label, const uint64_t from[OUTERMOST],
                              uint64_t amount_ns);
void cpu_sample_add_unseen(uint64_t amount_ns);

#endif
