/* heap_tables.h: what heap_recorder.c, heap_snapshot.c and heap_kept.c share; nobody else includes
 * it.
 *
 * Owns: nothing (heap_recorder.c owns the tables). Context: as heap_recorder.h. Locks: none. */
#ifndef LIBAGENT_HEAP_TABLES_H
#define LIBAGENT_HEAP_TABLES_H

#include "agent/record/counted_table.h"
#include "agent/record/heap_pool.h"
#include "agent/record/heap_slots.h"
#include "agent/record/heap_snapshot.h"

struct heap_tables {
    struct heap_pool pool;
    struct heap_slots slots;
    struct counted_table keys; /* stacks as record_stack_key has them, threads as labels */
    uint64_t one_in;
    uint32_t accepts; /* samples */
    uint32_t changed; /* since the last snapshot began */
    uint32_t pinned;  /* the record that the snapshot looks at, 0: none */
    uint32_t live __attribute__((aligned(CACHE_LINE))); /* records; the hooks' own line */
    uint64_t amount;  /* of all that are live, as record_values has it */
    uint64_t highest; /* that this was */
};

extern HIDDEN struct heap_tables heap;

/* A record that was ended and is the caller's: what it refers to is dropped, it is free again. */
void heap_give_back(uint32_t ref);

/* A row of a snapshot, open or kept. */
struct heap_ref_row {
    uint32_t stack, thread; /* references of the counted table */
    uint32_t age_s;
    uint64_t bytes;
    struct record_values values;
};
/* Of the open snapshot, which has a reference to all that they refer to. */
const struct heap_ref_row *heap_snapshot_rows(size_t *count);
int heap_ref_rows_each(const struct heap_ref_row *rows, size_t count,
                       int (*each)(const struct heap_row *, void *), void *data);

#endif
