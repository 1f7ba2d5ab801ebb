/* heap_trace.h: what prog_trace_heap.c writes, and check_heap_programs.c reads: how many bytes were
 * live in each tick of a process, all allocations counted.
 *
 * A file is the header and TRACE_TICKS ticks. Where a tick was not written nothing changed in it.
 *
 * Owns: nothing. Context: programs and suites. Locks: none. */
#ifndef LIBAGENT_TEST_HEAP_TRACE_H
#define LIBAGENT_TEST_HEAP_TRACE_H

#include <stdint.h>

enum { TRACE_TICK_BITS = 22, TRACE_TICKS = 1 << 16 }; /* of 4 ms, the coarse clock's: 4.5 minutes */
/* A block of so many intervals is sampled for certain: but once in e^40. */
enum { TRACE_CERTAIN = 40 };

struct trace_tick {
    uint64_t least, most; /* bytes live, at any time in it */
    uint64_t last;        /* at its end */
    uint64_t written;
    double samples;  /* that a sampler has of them, in expectation, and */
    double variance; /* of its estimate of their bytes: the most of the tick */
};

struct trace_file {
    uint64_t start_ns; /* CLOCK_REALTIME */
    uint64_t lost;     /* allocations that found the tracer's table full */
    double
        largest; /* what one sample adds to the estimate at most, of blocks that are not certain */
    struct trace_tick ticks[TRACE_TICKS];
};

#endif
