/* counted_table.h: keys of 64-bit words that live as long as somebody refers to them: the stacks
 * and threads of the live heap's records.
 *
 * Protocol:
 *  1. The table is COUNTED_SHARDS parts, each with its own memory and a lock that is only ever
 *     tried. A key is looked for in the shard of its hash; where that is busy in the next one that
 *     is not: the key then may be there twice, which costs room and nothing else (an export adds
 *     up what looks alike). So as long as fewer threads than shards are in the table at once,
 *     counted_hold finds one, and it never waits in any case.
 *  2. Whoever holds a reference may take another one, and read the key, without the lock.
 *  3. The drop that takes the count from 1 to 0 sets QUEUED in the same step, and so takes it upon
 *     itself to put the entry on the shard's list of the dead (a stack of references through the
 *     entries themselves: it needs no memory and cannot be full). Until a drain takes the entry
 *     off that list nobody else queues it, whatever its count does.
 *  4. A holder of the lock drains the list: QUEUED with no reference is freed; with references
 *     (counted_hold found the key again meanwhile) QUEUED is taken away, by the compare-and-swap
 *     that saw the count. It looks at the list once more after it released the lock, so what was
 *     queued while it was on its way out is not left; a drop that finds the lock taken can leave.
 *  5. The count rises from 0 under the lock only (counted_hold), where no drain runs.
 *  6. A thread that is gone with the lock (fork: it is not in the child; a jump out of a handler
 *     that came in between) leaves that shard busy: its keys go to others, its dead stay.
 *
 * Owns: nothing; the table is its user's. Context: hold, share, drop and key HOOK and all others;
 * the rest INIT. Locks: the shards', tried, never waited for. */
#ifndef LIBAGENT_COUNTED_TABLE_H
#define LIBAGENT_COUNTED_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* Sizes of entries are multiples of COUNTED_ROOM; the largest key is one of COUNTED_WORDS_MAX, a
 * stack of 1024 frames. */
enum { COUNTED_SHARDS = 16, COUNTED_ROOM = 32, COUNTED_WORDS_MAX = 1032 };
enum { COUNTED_CLASSES = (24 + 8 * COUNTED_WORDS_MAX) / COUNTED_ROOM + 2 };

struct counted_entry {
    uint32_t count; /* of references; COUNTED_QUEUED */
    uint32_t hash;
    uint32_t next;            /* in the list of the dead, or of free entries */
    uint32_t mark, mark_next; /* its user's, who holds a reference */
    uint16_t words, rooms;
    uint64_t key[];
};
#define COUNTED_QUEUED (UINT32_C(1) << 31)

struct counted_shard {
    uint32_t lock;
    uint32_t dead;   /* head of the list; 0: empty */
    uint32_t bump;   /* rooms ever given, from the shard's first one */
    uint32_t in_use; /* rooms in entries that are not free */
    uint32_t entries;
    uint32_t *index;                /* references, linear probes */
    uint32_t free[COUNTED_CLASSES]; /* by rooms */
} __attribute__((aligned(CACHE_LINE)));

struct counted_table {
    uint8_t *memory;
    uint32_t rooms;      /* of a shard */
    uint32_t index_mask; /* of a shard */
    struct counted_shard shards[COUNTED_SHARDS];
};

/* Within `bytes`. 0 or -ENOMEM. */
int counted_create(struct counted_table *table, size_t bytes) MUST_USE;
void counted_destroy(struct counted_table *table);
/* A reference (never 0) to the key; 0: no room, or every shard was busy. */
uint32_t counted_hold(struct counted_table *table, const uint64_t *key, uint32_t words) MUST_USE;
/* One more, for a holder of one; one less. Of 0: nothing. */
void counted_share(struct counted_table *table, uint32_t ref);
void counted_drop(struct counted_table *table, uint32_t ref);
struct counted_entry *counted_at(const struct counted_table *table, uint32_t ref);
/* Frees the dead of shards that are not busy. Returns the number of keys. */
uint32_t counted_drain(struct counted_table *table);
/* In a fork child: shards that a thread of the parent was in begin anew; what is held there stays
 * readable. */
void counted_reset_in_child(struct counted_table *table);

#endif
