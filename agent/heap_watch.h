/* heap_watch.h: when the live heap is kept (agent/record/heap_kept.h): at marks, which heap-growth
 * counts from, and at its peak, which heap-peak shows.
 *
 * A mark is LIBAGENT_HEAP_MARK after the start, or a call of libagent_heap_mark; each takes the
 * place of the one before. Without one growth counts from the start.
 *
 * The peak: hooks keep the estimated inuse_space as a running sum, and nothing else. At each sample
 * it is compared with the peak that is kept; where it is a twentieth higher the agent's thread is
 * rung for (and made, at a moment that is safe), and takes a snapshot, if the live heap is still
 * higher by as much. So what is kept is within 5 % of the highest where that lasted until the
 * agent's thread came: some milliseconds; and, as a snapshot takes 1/50 of a processor at most,
 * 50 times as long as the last one took (with 1,000,000 records some seconds). A flush looks
 * without that limit. The comments tell the highest estimate there was beside the one that is kept.
 *
 * Owns: what is wanted, and when. Context: heap_watch_due_ns any; the rest TICK, INIT, THR under
 * LOCK_FLUSH. Locks: none. */
#ifndef LIBAGENT_HEAP_WATCH_H
#define LIBAGENT_HEAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* At a start: as options has it; what was kept goes. `on`: a live heap is recorded. */
void heap_watch_start(bool on);
/* CLOCK_MONOTONIC time from which on heap_watch_look has something to do; UINT64_MAX: nothing. */
uint64_t heap_watch_due_ns(void);
/* Does what is due; at a flush, before its window ends, also a peak that came too soon. */
void heap_watch_look(bool at_flush);
/* A mark now. 0; -ENODATA: no live heap is recorded; -ENOMEM: the mark before stays. */
int heap_watch_mark(void) MUST_USE;
/* Is there something to write? */
bool heap_watch_has_growth(void);
bool heap_watch_has_peak(void);
/* What to say of them in a window that ends now: lines of `size` bytes. Returns how many. */
enum { HEAP_WATCH_COMMENTS = 4 };
size_t heap_watch_comments(char *texts, size_t size);

#endif
