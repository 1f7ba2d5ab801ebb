/* heap_recorder.h: the live heap: which sampled blocks are still allocated, and where from.
 *
 * Protocol. Every step is lock-free: no hook waits for another thread, ours or the program's, so a
 * free is done when its hook returns, and there is nothing that it could be lost in.
 *  1. Allocation: behind the real call, before the program has the address. The stack and the
 *     thread get a reference each (counted_table.h), a record is filled and made LIVE
 *     (heap_pool.h), the address's page is counted (heap_filter.h), the record's reference put
 *     into a slot (heap_slots.h). What finds no room is dropped and counted.
 *  2. Free: before the real call. The filter, inline in the hook, knows nearly all addresses that
 *     have no record. Else the slot is looked for and taken out, and who took it ends the record:
 *     FREE at once, its stack dropped, or, if the snapshot looks at it, left to the snapshot.
 *  3. realloc: the slot is held before the real call (no search finds it; the block still counts).
 *     Where the call fails, it is put back, by one store: the record is what it was. Else the
 *     record is ended, and the new block is an allocation like any other. While the call runs the
 *     allocator may give the old address to another thread, whose record then has a slot of its
 *     own.
 *  4. A record's number is never used again. An allocation whose address still has a record shows
 *     a free that was not seen (made past the hooks): that record is ended, and counted.
 *
 * Why no order of events loses a free or brings a block back: events of one address are ordered by
 * the program and its allocator, as the address is handed on through them; each leaves the slot,
 * the record and the filter's count as the next one needs them before it hands it on. Events of
 * different addresses meet at a slot's word, a record's state, a key's count and the lists of free
 * ones, each changed by one compare-and-swap, whose winner alone goes on. A record is used again
 * only after its slot is empty, so what a slot refers to is its own. The snapshot moves a record
 * from LIVE to PINNED and back to LIVE, never from any other condition, so it cannot revive one.
 * test/check_heap_model.c runs all orders of these steps.
 *
 * Races that remain: a snapshot sees a block that is allocated or freed meanwhile or does not, and
 * a realloc to a new address between its two records not at all.
 *
 * Near the end of its memory new samples are thinned: one in 2, 4, 8 ... is kept, with as much more
 * weight, so that the sums stay right as long as there is room at all. Where the room for stacks is
 * used up, what comes with a new one counts as libagent truncated.
 *
 * Frees are followed in every state of the agent. A stop that ends sampling calls
 * heap_recorder_stop, waits until no sample is under way, and then calls heap_recorder_clear:
 * nothing is left that a later start could take for live.
 *
 * Owns: the tables. Context: add HOOK inside a thread guard; free, hold, settle HOOK, in any
 * process and on any thread (they use neither TLS nor system calls); the rest INIT. Locks: none
 * that are waited for. */
#ifndef LIBAGENT_HEAP_RECORDER_H
#define LIBAGENT_HEAP_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/rng.h"
#include "agent/record/heap_filter.h"
#include "agent/record/time_recorder.h"

/* An allocation that was sampled. */
struct heap_sample {
    const void *pointer;
    size_t size;
    uint64_t weight; /* allocations that it stands for, in 1/2^16 */
    const struct record_stack *stack;
    uint32_t frames;
    const struct thread_label *thread; /* NULL: not to be kept */
    uint32_t now_s;                    /* CLOCK_MONOTONIC, seconds */
};

/* Tables of five sixteenths of the memory, or what the windows and the other tables leave where
 * that is less. Of all samples one in `one_in` is kept. A second start goes on with the tables of
 * the first. 0 or -ENOMEM, which the log has. */
int heap_recorder_start(uint64_t one_in) MUST_USE;
/* Before any sample was added. */
void heap_recorder_destroy(void);
bool heap_recorder_is_on(void);
void heap_recorder_add(const struct heap_sample *sample, struct rng *rng);
/* The block is about to be freed. */
COLD void heap_recorder_free(const void *pointer);

/* A record between the two sides of a realloc. */
struct heap_hold {
    uint64_t *slot; /* NULL: nothing is held */
    uint64_t word;
};
COLD struct heap_hold heap_recorder_hold(const void *pointer);
/* `failed`: the block is still there. */
COLD void heap_recorder_settle(const struct heap_hold *hold, bool failed);

/* No more samples are added. */
void heap_recorder_stop(void);
/* Ends all records. */
void heap_recorder_clear(void);
/* In a fork child: the records stay, as the memory does; what was under way in threads that are
 * not there is put right. */
void heap_recorder_reset_in_child(void);

/* Has the live heap changed since a window's snapshot began? Any context. */
bool heap_recorder_has_changed(void);
/* The estimated inuse_space in bytes, a sum that each record is added to and taken from; in a fork
 * child off by what hooks of other threads had in hand. Any context. */
uint64_t heap_recorder_inuse(void);
/* The highest value of that since heap_recorder_forget_highest. Any context. */
uint64_t heap_recorder_highest(void);
void heap_recorder_forget_highest(void);

#endif
