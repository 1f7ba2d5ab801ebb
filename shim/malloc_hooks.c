/* malloc_hooks.c: the allocation functions. Sizes, addresses, errno and failures are those of the
 * next definition. C++'s operators come down to malloc in libstdc++, whose frames so show who
 * called them.
 *
 * malloc and free, which every nanosecond counts for, are a jump to the next definition: malloc
 * counts before it, free looks at the live heap's filter. The others count what they were given:
 * some allocators make calloc or realloc of their own malloc, which is this one. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "agent/agent_hot.h"
#include "agent/base/environment_table.h"
#include "shim/shim.h"

/* A sample is due. */
static COLD void *sampled_malloc(size_t size)
{
    uint64_t saved = agent_nested_begin();
    void *pointer = next.malloc(size);
    agent_nested_end(saved);
    alloc_sample_inside_hook(pointer, size + !size);
    return pointer;
}

/* Each within one line of the instruction cache: half a nanosecond. */
#define HOT __attribute__((aligned(CACHE_LINE)))

EXPORT HOT void *malloc(size_t size)
{
    if (agent_sample_is_due(size))
        return sampled_malloc(size);
    return next.malloc(size);
}

/* The block may be recorded. */
static COLD void recorded_free(void *pointer)
{
    alloc_free_inside_hook(pointer);
    next.free(pointer);
}

EXPORT HOT void free(void *pointer)
{
    if (unlikely(heap_may_be_recorded(pointer)))
        recorded_free(pointer);
    else
        next.free(pointer);
}

EXPORT void *calloc(size_t count, size_t size)
{
    uint64_t saved = agent_nested_begin();
    void *pointer = next.calloc(count, size);
    agent_nested_end(saved);
    /* The product did not overflow, or the call would have failed. */
    agent_allocated(pointer, count * size);
    return pointer;
}

/* Size 0 frees the block where NULL comes back (glibc, tcmalloc); where it does not free it (musl,
 * jemalloc) a block comes back, too. */
static inline __attribute__((always_inline)) void *any_realloc(void *old, size_t size)
{
    struct heap_hold hold = agent_moving(old);
    uint64_t saved = agent_nested_begin();
    void *pointer = next.realloc(old, size);
    agent_nested_end(saved);
    agent_moved(&hold, !pointer && size != 0);
    agent_allocated(pointer, size);
    return pointer;
}

/* A thread of ours may be walking along it: it is not freed. Twice the room, so that all that are
 * left behind take no more than the last one. */
static COLD void *environment_realloc(void *old, size_t size)
{
    if (!old || !size || !next.malloc_usable_size)
        return any_realloc(old, size);
    size_t room = next.malloc_usable_size(old);
    if (size <= room)
        return old;
    void *table = calloc(2, size);
    if (table)
        memcpy(table, old, room);
    full_fence(); /* who sees its address, which libc stores plainly, sees what is in it */
    return table;
}

EXPORT void *realloc(void *old, size_t size)
{
    if (unlikely(environment_is(old)))
        return environment_realloc(old, size);
    return any_realloc(old, size);
}

EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
    size_t total;
    bool too_large = __builtin_mul_overflow(count, size, &total);
    if (!NEXT(reallocarray)) { /* glibc before 2.26 */
        if (too_large) {
            errno = ENOMEM;
            return NULL;
        }
        return realloc(old, total);
    }
    struct heap_hold hold = agent_moving(old);
    uint64_t saved = agent_nested_begin();
    void *pointer = next.reallocarray(old, count, size);
    agent_nested_end(saved);
    agent_moved(&hold, !pointer && (too_large || total != 0));
    agent_allocated(pointer, total);
    return pointer;
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    uint64_t saved = agent_nested_begin();
    int error = NEXT(posix_memalign)(out, alignment, size);
    agent_nested_end(saved);
    if (error == 0)
        agent_allocated(*out, size);
    return error;
}

/* The functions below differ in name and parameters only; an allocator that lacks one says so
 * as for no memory. */
#define ALIGNED_HOOK(name, parameters, arguments)                                                  \
    EXPORT void *name parameters                                                                   \
    {                                                                                              \
        if (!NEXT(name)) {                                                                         \
            errno = ENOMEM;                                                                        \
            return NULL;                                                                           \
        }                                                                                          \
        uint64_t saved = agent_nested_begin();                                                     \
        void *pointer = next.name arguments;                                                       \
        agent_nested_end(saved);                                                                   \
        agent_allocated(pointer, size);                                                            \
        return pointer;                                                                            \
    }

ALIGNED_HOOK(aligned_alloc, (size_t alignment, size_t size), (alignment, size))
ALIGNED_HOOK(memalign, (size_t alignment, size_t size), (alignment, size))
ALIGNED_HOOK(valloc, (size_t size), (size))
ALIGNED_HOOK(pvalloc, (size_t size), (size))

/* As the program's own calls of free: where an allocator stands before us, that one's. */
static void own_free(void *pointer)
{
    if (unlikely(!next_own_free))
        next_lookup();
    next_own_free(pointer);
}

/* free's other name. The allocator below may lack it, and libc's own would be the wrong one. */
EXPORT void cfree(void *pointer)
{
    agent_freeing(pointer);
    own_free(pointer);
}

EXPORT void free_sized(void *pointer, size_t size)
{
    agent_freeing(pointer);
    if (NEXT(free_sized))
        next.free_sized(pointer, size);
    else
        own_free(pointer);
}

EXPORT void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    agent_freeing(pointer);
    if (NEXT(free_aligned_sized))
        next.free_aligned_sized(pointer, alignment, size);
    else
        own_free(pointer);
}
