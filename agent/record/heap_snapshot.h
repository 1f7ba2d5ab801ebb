/* heap_snapshot.h: the live heap at a flush: rows of blocks that have the same stack, thread, and
 * age and size class where these are asked for.
 *
 * Protocol:
 *  1. prepare goes through all records, one at a time: a LIVE one is pinned, added to its row,
 *     unpinned; hooks go on meanwhile, on that record too (heap_pool.h). What a row refers to gets
 *     a reference of the snapshot's own while the record is pinned, so it cannot go.
 *  2. each gives the rows to the exporter: no record is looked at any more, nothing is locked.
 *  3. finish drops the references. A prepare that fails has done that itself.
 *  In a fork child an open snapshot of the parent's is over: what it held is dropped by the list
 *  through the keys; the memory of its rows, which may have been on the move, is left.
 *
 * What is to last longer is kept by heap_kept.h.
 *
 * Owns: the snapshot, one at a time. Context: TICK, INIT under LOCK_FLUSH. Locks: none. Memory:
 * rows in buffers of its own, given back by finish. */
#ifndef LIBAGENT_HEAP_SNAPSHOT_H
#define LIBAGENT_HEAP_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/heap_recorder.h"
#include "agent/record/time_recorder.h"

struct heap_view {
    uint32_t now_s;     /* CLOCK_MONOTONIC */
    uint32_t min_age_s; /* younger blocks are left out */
    bool by_thread, by_age, by_size;
    bool is_kept; /* no window's: that has still to show what changed */
};

struct heap_row {
    uint32_t generation;
    const uint64_t *pcs;
    uint32_t count;
    const struct thread_label *thread; /* tid 0: not known, or not asked for */
    uint64_t age_s; /* the power of two that the age has reached, 0: below a second */
    uint64_t bytes; /* the size, rounded up to its class */
    struct record_values values;
};

/* 0, -EBUSY: one is open, or -ENOMEM. */
int heap_snapshot_prepare(const struct heap_view *view) MUST_USE;
/* Calls `each` for every row; stops at a negative result and returns it. */
int heap_snapshot_each(int (*each)(const struct heap_row *, void *), void *data);
void heap_snapshot_finish(void);
uint32_t heap_snapshot_records(void);
/* This and what the recorder does there. */
void heap_snapshot_reset_in_child(void);

/* The smallest of 16, 20, 24, 28, 32, 40, ... (four steps a doubling, about what allocators have)
 * that is not below `size`. Pure. */
uint64_t heap_size_class(uint64_t size);

#endif
