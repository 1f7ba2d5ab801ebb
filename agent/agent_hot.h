/* agent_hot.h: what the hooks do on every call, inline; everything rare is behind one branch.
 *
 * An allocation counts its bytes down from an exponential gap (agent/alloc); a free looks at the
 * live heap's filter, one load (agent/record/heap_filter.h).
 *
 * Owns: nothing. Context: HOOK. Locks: none. */
#ifndef LIBAGENT_AGENT_HOT_H
#define LIBAGENT_AGENT_HOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/alloc/alloc_sample.h"
#include "agent/base/compiler.h"
#include "agent/record/heap_recorder.h"
#include "agent/thread/thread_context.h"

/* Counts the bytes of an allocation, size 0 as one, before it or after it. True when a sample is
 * due: nothing is counted then, and the caller calls alloc_sample_inside_hook, also where the
 * allocation failed after the look. The bytes of one that fails may stay counted: what is left of
 * an exponential gap is exponential still, so no other allocation's probability changes. Unsigned,
 * for sizes however absurd. */
static inline __attribute__((always_inline)) bool agent_sample_is_due(size_t size)
{
    uint64_t left = thread_tls.bytes_until_sample;
    bool due;
#if defined(__x86_64__)
    /* The borrow of size - 1 is the byte of size 0: three instructions less than compilers make. */
    __asm__("cmpq $1, %[size]\n\t"
            "sbbq %[size], %[left]"
            : [left] "+r"(left), "=@ccc"(due)
            : [size] "r"(size));
#else
    due = __builtin_sub_overflow(left, (uint64_t)(size + !size), &left);
#endif
    if (unlikely(due))
        return true;
    thread_tls.bytes_until_sample = left;
    return false;
}

/* After an allocation: `pointer` NULL (failed) is not counted. */
static inline __attribute__((always_inline)) void agent_allocated(const void *pointer, size_t size)
{
    if (likely(pointer) && agent_sample_is_due(size))
        alloc_sample_inside_hook(pointer, size + !size);
}

/* Around the next definition of a function that may itself call a hook (calloc calling malloc):
 * what the inner call counted is taken back, so that an allocation counts once. */
static inline __attribute__((always_inline)) uint64_t agent_nested_begin(void)
{
    thread_tls.alloc_depth++;
    return thread_tls.bytes_until_sample;
}

static inline __attribute__((always_inline)) void agent_nested_end(uint64_t saved)
{
    thread_tls.alloc_depth--;
    thread_tls.bytes_until_sample = saved;
}

/* Before a block is freed. */
static inline __attribute__((always_inline)) void agent_freeing(const void *pointer)
{
    if (unlikely(heap_may_be_recorded(pointer)))
        alloc_free_inside_hook(pointer);
}

/* Around the next definition of realloc. `failed`: the old block is still there. */
static inline __attribute__((always_inline)) struct heap_hold agent_moving(const void *old)
{
    if (unlikely(heap_may_be_recorded(old)))
        return heap_recorder_hold(old);
    return (struct heap_hold){NULL, 0};
}

static inline __attribute__((always_inline)) void agent_moved(const struct heap_hold *hold,
                                                              bool failed)
{
    if (unlikely(hold->slot))
        heap_recorder_settle(hold, failed);
}

#endif
