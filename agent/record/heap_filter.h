/* heap_filter.h: which addresses are certainly not recorded, at the cost of one load.
 *
 * A word for each page of addresses tells the records of blocks that begin in it: how many there
 * are, and the sum of their places in it, so that a page with one record knows which block that is;
 * pages that are 4 GiB apart share a word. By pages, not by a hash of the address: what a program
 * frees lies in few pages, whose words then lie in a few lines of the cache, next to each other;
 * and with a sample in 512 KiB one page in 64 has a record, hardly any two. A page of 8 KiB, so
 * that places, of 32 bytes, are a byte. A count that has reached 255 stays: its page is looked up
 * for nothing from then on, nothing is lost by it.
 *
 * A hook's own look is at the whole word; which block it is, is looked at where that is not 0. What
 * a record adds to its word is there from before the program has the address until the block is
 * being freed, by one compare-and-swap each, so a word is always the sum of some records, with that
 * of the block that is freed among them if it has one.
 *
 * Owns: the words. Context: any. Locks: none. */
#ifndef LIBAGENT_HEAP_FILTER_H
#define LIBAGENT_HEAP_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/model_step.h"

enum { HEAP_FILTER_PAGE_BITS = 13, HEAP_FILTER_PLACE_BITS = 5, HEAP_FILTER_STUCK = 255 };
#define HEAP_FILTER_SIZE ((size_t)1 << (32 - HEAP_FILTER_PAGE_BITS))

extern HIDDEN uint16_t heap_filter[HEAP_FILTER_SIZE];

/* The lower half of the address, shifted: two instructions, and it cannot leave the table. */
static inline __attribute__((always_inline)) uint16_t *heap_filter_at(uintptr_t address)
{
    return &heap_filter[(uint32_t)address >> HEAP_FILTER_PAGE_BITS];
}

static inline __attribute__((always_inline)) bool heap_may_be_recorded(const void *pointer)
{
    return load_relaxed(heap_filter_at((uintptr_t)pointer)) != 0;
}

static inline uint8_t heap_filter_count(uint16_t word)
{
    return (uint8_t)word;
}

static inline uint8_t heap_filter_place(uintptr_t address)
{
    return (uint8_t)(address >> HEAP_FILTER_PLACE_BITS);
}

/* Of one for which heap_may_be_recorded is true: false where its page has one record, of another
 * block. */
static inline bool heap_filter_has(uintptr_t address)
{
    step(heap_filter_at(address));
    uint16_t word = load_relaxed(heap_filter_at(address));
    return heap_filter_count(word) != 1 || word >> 8 == heap_filter_place(address);
}

/* `by`: 1 or -1. */
static inline void heap_filter_change(uintptr_t address, int by)
{
    uint16_t *word = heap_filter_at(address);
    step(word);
    uint16_t seen = load_relaxed(word);
    uint16_t wanted;
    do {
        if (heap_filter_count(seen) == HEAP_FILTER_STUCK)
            return;
        uint8_t sum = (uint8_t)((seen >> 8) + by * heap_filter_place(address));
        wanted = (uint16_t)(sum << 8 | (uint8_t)(heap_filter_count(seen) + by));
        step(word);
    } while (!__atomic_compare_exchange_n(word, &seen, wanted, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
}

#endif
