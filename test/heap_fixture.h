/* heap_fixture.h: the live heap, started for a suite, and what a snapshot of it holds. */
#ifndef LIBAGENT_TEST_HEAP_FIXTURE_H
#define LIBAGENT_TEST_HEAP_FIXTURE_H

#include <stdint.h>

#include "agent/record/heap_recorder.h"
#include "agent/record/heap_snapshot.h"

/* Tables of `bytes`, each sample kept. */
void heap_fixture_start(size_t bytes);
void heap_fixture_start_one_in(size_t bytes, uint64_t one_in);
/* A block at `address` that stands for one, by a stack of one frame, `site`; no thread. */
void heap_fixture_add(uintptr_t address, size_t size, uint64_t site);
/* As the hook of free does it. */
void heap_fixture_free(uintptr_t address);

struct heap_sum {
    uint64_t objects, bytes, rows;
};
/* By a snapshot: rows whose innermost frame is `site`, 0: all. */
struct heap_sum heap_fixture_sum(uint64_t site);
/* Of the snapshot that is open. */
struct heap_sum heap_fixture_sum_of_open(uint64_t site);

/* That all tables agree: each slot leads to a live record of its address, each record is live or in
 * one list of free ones, each key has as many references as records have to it, and none waits to
 * be freed. Nobody else uses them. Returns the live records. */
uint32_t heap_fixture_audit(void);
/* That the filter counts what is there, and nothing else. */
void heap_fixture_audit_filter(void);

#endif
