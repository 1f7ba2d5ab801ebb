/* agent_hot.h: what the hooks do on every call, inline; everything rare is behind one branch.
 *
 * An allocation counts its bytes down from an exponential gap (agent/alloc); a free costs nothing
 * yet (the live heap puts its pre-filter here).
 *
 * Owns: nothing. Context: HOOK. Locks: none. */
#ifndef LIBAGENT_AGENT_HOT_H
#define LIBAGENT_AGENT_HOT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/alloc/alloc_sample.h"
#include "agent/base/compiler.h"
#include "agent/thread/thread_context.h"

/* After an allocation: `pointer` NULL (failed) is not counted; size 0 counts as one byte. */
static inline __attribute__((always_inline)) void agent_allocated(const void *pointer, size_t size)
{
    if (unlikely(!pointer))
        return;
    struct thread_tls *tls = &thread_tls;
    tls->bytes_until_sample -= (int64_t)(size + !size);
    if (unlikely(tls->bytes_until_sample < 0))
        alloc_sample_inside_hook(size + !size);
}

/* Around the next definition of a function that may itself call a hook (calloc calling malloc):
 * what the inner call counted is taken back, so that an allocation counts once. */
static inline __attribute__((always_inline)) int64_t agent_nested_begin(void)
{
    thread_tls.alloc_depth++;
    return thread_tls.bytes_until_sample;
}

static inline __attribute__((always_inline)) void agent_nested_end(int64_t saved)
{
    thread_tls.alloc_depth--;
    thread_tls.bytes_until_sample = saved;
}

#endif
