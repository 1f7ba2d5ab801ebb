/* alloc_sample.h: which allocation is sampled, and what a sample stands for.
 *
 * Method: a Poisson process over allocated bytes (as in tcmalloc and jemalloc). Each thread
 * counts its bytes down from a gap drawn from the exponential distribution with mean `interval`;
 * the allocation that has more bytes than are left is sampled, and a new gap begins behind it. As
 * the distribution has no memory, an allocation of `size` bytes is sampled with probability p = 1 -
 * exp(-size / interval) whatever came before, so it stands for 1/p allocations and size/p bytes.
 * The weight is computed here, once. Interval 1 is the exception: every allocation is taken, with
 * weight 1.
 *
 * The interval may change at any time: a thread goes on with the gap that it has, whose mean it
 * keeps, since that is what tells the probability; its next gap is drawn with the new one.
 *
 * Owns: the interval. Context: alloc_*_inside_hook HOOK; start and stop INIT. Locks: none. */
#ifndef LIBAGENT_ALLOC_SAMPLE_H
#define LIBAGENT_ALLOC_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* `interval` in bytes, at least 1. */
void alloc_start(uint64_t interval);
/* Of gaps that are drawn from now on. Any context. */
void alloc_set_interval(uint64_t interval);
void alloc_stop(void);
/* Sampling cannot start again in this process: threads need not look any more. */
void alloc_stop_for_good(void);
/* In a fork child, for its only thread: a gap of its own, not that of the parent's. */
void alloc_reset_in_child(void);
/* The out-of-line part of every allocation hook: fewer bytes are left than `size`, at
 * least 1; the block is at `pointer`, NULL where the allocation failed. */
COLD void alloc_sample_inside_hook(const void *pointer, size_t size);
/* The block may be recorded and is about to be freed: heap_recorder_free, with what it costs. */
COLD void alloc_free_inside_hook(const void *pointer);

/* The number of allocations of `size` bytes that one sample at `interval` stands for, in 1/2^16
 * (RECORD_FRACTION_BITS). Pure. */
uint64_t alloc_weight(size_t size, uint64_t interval);

#endif
