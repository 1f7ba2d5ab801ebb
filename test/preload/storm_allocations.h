/* storm_allocations.h: counted allocations of prog_storm, made at the end of a recursion, and
 * handed from thread to thread by a table of blocks: most are freed by another thread.
 *
 * Owns: the table, and the counts of all threads that are over. Context: prog_storm, any thread.
 * Locks: none. */
#ifndef LIBAGENT_TEST_STORM_ALLOCATIONS_H
#define LIBAGENT_TEST_STORM_ALLOCATIONS_H

#include <cerrno>
#include <cstdlib>
#include <malloc.h>
#include <new>

#include "test/preload/program.h"
#include "test/preload/storm.h"

typedef uint64_t storm_counts[STORM_WAYS_COUNT][STORM_SIZES];

static storm_counts storm_counted;
static uint64_t storm_failed;

/* A thread's counts; added to all at the thread's end, also where that is a cancellation. */
struct StormTally {
    storm_counts counts = {};
    uint64_t random;
    explicit StormTally(uint64_t seed) : random(seed) {}
    ~StormTally()
    {
        for (int way = 0; way < STORM_WAYS_COUNT; way++)
            for (int i = 0; i < STORM_SIZES; i++)
                __atomic_fetch_add(&storm_counted[way][i], counts[way][i], __ATOMIC_RELAXED);
    }
};

enum { STORM_BLOCKS = 4096 };
static void *storm_blocks[STORM_BLOCKS];

extern "C" {

SITE void *storm_malloc(void *, size_t size)
{
    void *block = malloc(size);
    keep(block);
    return block;
}

SITE void *storm_calloc(void *, size_t size)
{
    void *block = calloc(2, size / 2);
    keep(block);
    return block;
}

SITE void *storm_realloc(void *old, size_t size)
{
    void *block = realloc(old, size);
    keep(block);
    return block;
}

SITE void *storm_aligned(void *, size_t size)
{
    void *block = nullptr;
    if (size % 200 == 0)
        block = memalign(64, size);
    else if (posix_memalign(&block, 256, size) != 0)
        block = nullptr;
    keep(block);
    return block;
}

/* libstdc++'s operator new is malloc, so that free is allowed. */
SITE void *storm_new(void *, size_t size)
{
    void *block = ::operator new(size, std::nothrow);
    keep(block);
    return block;
}

} // extern "C"

SITE static void *storm_descend(unsigned depth, storm_way way, void *old, size_t size)
{
    static void *(*const functions[])(void *, size_t) = {
#define X(name) storm_##name,
        STORM_WAYS(X)
#undef X
    };
    void *block = depth ? storm_descend(depth - 1, way, old, size) : functions[way](old, size);
    keep(block);
    return block;
}

static void storm_put(StormTally &tally, void *block)
{
    void **place = &storm_blocks[next_random(&tally.random) % STORM_BLOCKS];
    free(__atomic_exchange_n(place, block, __ATOMIC_ACQ_REL));
}

/* One allocation, of a size and in a way drawn at random. */
static void storm_allocate(StormTally &tally)
{
    uint64_t draw = next_random(&tally.random);
    int index = __builtin_ctzll(draw | 1ull << (STORM_SIZES - 1));
    storm_way way = static_cast<storm_way>((draw >> 16) % STORM_WAYS_COUNT);
    unsigned depth = (draw >> 32) % 16;
    void *old = nullptr;
    if (way == STORM_realloc)
        old = __atomic_exchange_n(&storm_blocks[(draw >> 40) % STORM_BLOCKS], nullptr,
                                  __ATOMIC_ACQ_REL);
    void *block = storm_descend(depth, way, old, storm_sizes[index]);
    if (!block) {
        __atomic_fetch_add(&storm_failed, 1, __ATOMIC_RELAXED);
        free(old);
        return;
    }
    tally.counts[way][index]++;
    *static_cast<volatile char *>(block) = 1;
    storm_put(tally, block);
}

#endif
