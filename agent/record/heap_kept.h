/* heap_kept.h: live heaps of earlier that are kept, to be compared with or shown: as it was at a
 * mark, and at its peak.
 *
 * Protocol:
 *  1. heap_kept_take makes a snapshot (heap_snapshot.h) and copies its rows into memory of their
 *     own; each row takes references of its own to its stack and thread, so that both stay after
 *     their blocks are gone. `count` grows behind the references of a row, and shrinks before they
 *     are dropped.
 *  2. When all is there, one store of a pointer puts it in the place of the earlier one, which is
 *     then dropped. What fails leaves the earlier one.
 *  3. A fork may come at any of these steps. The child keeps what is in place, and drops what is
 *     in neither place but under way: `making` or `going`. A reference that the copy of memory fell
 *     behind of stays in the child: its stack is not freed there, which costs its room.
 *
 * Memory counts for LIBAGENT_MEMORY: 40 bytes a row, of which there is one a stack and thread (and
 * size class); their stacks are in the live heap's table.
 *
 * Owns: what is kept. Context: TICK, INIT, THR under LOCK_FLUSH. Locks: none. */
#ifndef LIBAGENT_HEAP_KEPT_H
#define LIBAGENT_HEAP_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/heap_snapshot.h"

enum heap_kept_which { HEAP_MARK, HEAP_PEAK, HEAP_KEPT_COUNT };

struct heap_kept_facts {
    uint64_t monotonic_ns, realtime_ns; /* when it was taken */
    uint64_t bytes;                     /* inuse_space of all */
    uint32_t records;
};

/* The live heap as it is now. 0; -EAGAIN: it has less than `least` bytes, and the earlier one
 * stays; -EBUSY, -ENOMEM: so it does. */
int heap_kept_take(enum heap_kept_which which, const struct heap_view *view,
                   uint64_t least) MUST_USE;
/* False: there is none. */
bool heap_kept_facts(enum heap_kept_which which, struct heap_kept_facts *facts);
/* As heap_snapshot_each. */
int heap_kept_each(enum heap_kept_which which, int (*each)(const struct heap_row *, void *),
                   void *data);
void heap_kept_drop(enum heap_kept_which which);
/* Behind heap_snapshot_reset_in_child. */
void heap_kept_reset_in_child(void);

#endif
