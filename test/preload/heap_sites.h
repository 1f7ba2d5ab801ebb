/* heap_sites.h: 1,000 places that allocate: stacks of outer_I, middle_J, inner_K; and the sizes
 * that they are asked for. C++, for programs; suites find the place of a stack by heap_site_of.h.
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_HEAP_SITES_H
#define LIBAGENT_TEST_HEAP_SITES_H

#include <math.h>

#include "test/preload/program.h"

enum { WAYS = 10, SITES = WAYS * WAYS * WAYS };

struct site_call {
    int way[3];
    void *old; /* to reallocate */
    size_t size;
};

#define INNER(n)                                                                                   \
    extern "C" SITE void *inner_##n(const site_call *c)                                            \
    {                                                                                              \
        void *block = c->old ? realloc(c->old, c->size) : malloc(c->size);                         \
        keep(block);                                                                               \
        return block;                                                                              \
    }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
EACH(INNER)
#define NAME_INNER(n)  inner_##n,
#define NAME_MIDDLE(n) middle_##n,
#define NAME_OUTER(n)  outer_##n,
typedef void *way_fn(const site_call *);
static way_fn *const inner[] = {EACH(NAME_INNER)};
#define MIDDLE(n)                                                                                  \
    extern "C" SITE void *middle_##n(const site_call *c)                                           \
    {                                                                                              \
        void *block = inner[c->way[2]](c);                                                         \
        keep(block);                                                                               \
        return block;                                                                              \
    }
EACH(MIDDLE)
static way_fn *const middle[] = {EACH(NAME_MIDDLE)};
#define OUTER(n)                                                                                   \
    extern "C" SITE void *outer_##n(const site_call *c)                                            \
    {                                                                                              \
        void *block = middle[c->way[1]](c);                                                        \
        keep(block);                                                                               \
        return block;                                                                              \
    }
EACH(OUTER)
static way_fn *const outer[] = {EACH(NAME_OUTER)};

/* 16 bytes to 64 MiB, small ones by far the most: the n-th doubling with probability 2^-(n+1), and
 * every fiftieth of any size. */
static inline size_t draw_size(uint64_t *random)
{
    uint64_t bits = next_random(random);
    int doubling = __builtin_ctzll(bits | 1ull << 21);
    if (bits >> 40 & 63 ? false : true)
        doubling = (int)(bits >> 50 & 31) % 22;
    return (16ull << doubling) + next_random(random) % (16ull << doubling);
}

/* `old`: to reallocate, or NULL. */
static inline void *allocate_at(int site, void *old, size_t size)
{
    site_call c = {{site / (WAYS * WAYS), site / WAYS % WAYS, site % WAYS}, old, size};
    return outer[c.way[0]](&c);
}

/* Blocks, and what a sampler can tell of them (heap_bound.h has the bound that follows). */
struct site_truth {
    uint64_t objects, bytes;
    double samples;  /* that it has of them, in expectation */
    double variance; /* of its estimate of their bytes */
    double largest;  /* what one sample adds to that at most, of blocks that are not sampled for
                      * certain (but once in e^40) */
    double spread;   /* the variance of its estimate of the objects */

    void add(size_t block, double interval)
    {
        double size = (double)block;
        double p = interval > 1 ? -expm1(-size / interval) : 1;
        objects++;
        bytes += block;
        samples += p;
        variance += size * size * (1 - p) / p;
        spread += (1 - p) / p;
        if (size <= 40 * interval)
            largest = fmax(largest, size / p);
    }
};

#endif
