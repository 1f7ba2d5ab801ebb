/* heap_filter.h: which addresses are certainly not recorded, at the cost of one load.
 *
 * A byte for each page of addresses counts the records of blocks that begin in it; pages that are
 * 4 GiB apart share one. By pages, not by a hash of the address: what a program frees lies in few
 * pages, whose counts then lie in a few lines of the cache, next to each other; and with a sample
 * in 512 KiB one page in a hundred has a record. A count that has reached 255 stays: its page is
 * looked up for nothing from then on, nothing is lost by it.
 *
 * Owns: the counts. Context: any. Locks: none. */
#ifndef LIBAGENT_HEAP_FILTER_H
#define LIBAGENT_HEAP_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

enum { HEAP_FILTER_PAGE_BITS = 12, HEAP_FILTER_STUCK = 255 };
#define HEAP_FILTER_SIZE ((size_t)1 << (32 - HEAP_FILTER_PAGE_BITS))

extern HIDDEN uint8_t heap_filter[HEAP_FILTER_SIZE];

/* The lower half of the address, shifted: two instructions, and it cannot leave the table. */
static inline __attribute__((always_inline)) uint8_t *heap_filter_at(uintptr_t address)
{
    return &heap_filter[(uint32_t)address >> HEAP_FILTER_PAGE_BITS];
}

static inline __attribute__((always_inline)) bool heap_may_be_recorded(const void *pointer)
{
    return load_relaxed(heap_filter_at((uintptr_t)pointer)) != 0;
}

static inline void heap_filter_change(uintptr_t address, int by)
{
    uint8_t *count = heap_filter_at(address);
    uint8_t seen = load_relaxed(count);
    while (seen != HEAP_FILTER_STUCK &&
           !__atomic_compare_exchange_n(count, &seen, (uint8_t)(seen + by), true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
}

#endif
