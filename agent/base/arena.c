#include "agent/base/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/sys.h"

/* Clearing less than this by hand is cheaper than losing the pages and faulting them in again. */
#define CLEAR_BY_HAND ((size_t)64 << 10)

static size_t budget = SIZE_MAX;
static size_t reserved;

void arena_set_budget(size_t bytes)
{
    store_relaxed(&budget, bytes);
}

size_t arena_budget(void)
{
    return load_relaxed(&budget);
}

#ifdef LIBAGENT_TEST
size_t arena_reserved(void)
{
    return load_relaxed(&reserved);
}
#endif

static size_t whole_pages(size_t size)
{
    return ALIGN_UP(size, (size_t)PAGE_SIZE_MIN);
}

void *arena_reserve(size_t size)
{
    size_t need = whole_pages(size);
    if (need == 0) /* also what wraps around */
        return NULL;
    size_t before = load_relaxed(&reserved);
    size_t limit = arena_budget();
    do {
        if (before > limit || need > limit - before)
            return NULL;
    } while (!__atomic_compare_exchange_n(&reserved, &before, before + need, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    void *data = sys_map(need);
    if (!data)
        add_relaxed(&reserved, -need);
    return data;
}

void arena_release(void *data, size_t size)
{
    if (!data)
        return;
    sys_unmap(data, whole_pages(size));
    add_relaxed(&reserved, -whole_pages(size));
}

int arena_create(struct arena *arena, size_t size)
{
    uint8_t *base = arena_reserve(size);
    if (!base)
        return -ENOMEM;
    *arena = (struct arena){.base = base, .size = size};
    return 0;
}

void arena_destroy(struct arena *arena)
{
    arena_release(arena->base, arena->size);
    *arena = (struct arena){0};
}

void *arena_take(struct arena *arena, size_t size)
{
    /* The first look keeps `used` from growing without end once the arena is full. */
    if (size > arena->size || load_relaxed(&arena->used) >= arena->size)
        return NULL;
    size_t need = ALIGN_UP(size, (size_t)8);
    size_t start = add_relaxed(&arena->used, need);
    if (start > arena->size || need > arena->size - start)
        return NULL;
    return arena->base + start;
}

void arena_clear(struct arena *arena)
{
    size_t used = MIN_OF(load_relaxed(&arena->used), arena->size);
    /* The kernel refuses to drop pages of a process that locked its memory (mlockall). */
    if (used < CLEAR_BY_HAND ||
        sys_call3(SYS_madvise, (uintptr_t)arena->base, whole_pages(used), MADV_DONTNEED) != 0)
        memset(arena->base, 0, used);
    store_relaxed(&arena->used, 0);
}
