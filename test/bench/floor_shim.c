/* floor_shim.c: a preload that forwards and does nothing else: what interposing itself costs, the
 * floor against which libagent.so is measured.
 *
 * The next definitions are looked up in the constructor, or by the first call before it. dlsym
 * may call calloc meanwhile; those few bytes come from a small arena that is never given back. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int (*pthread_create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static pthread_create_fn next_pthread_create;

static _Alignas(16) char arena[4096];
static size_t arena_used;
static int looking_up;

static void *arena_take(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > sizeof(arena) - arena_used)
        return NULL;
    arena_used += size;
    return arena + arena_used - size;
}

static int in_arena(const void *block)
{
    return (uintptr_t)block - (uintptr_t)arena < sizeof(arena);
}

__attribute__((constructor)) static void look_up(void)
{
    if (looking_up || next_pthread_create)
        return;
    looking_up = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_aligned_alloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
    next_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    next_pthread_create = (pthread_create_fn)dlsym(RTLD_NEXT, "pthread_create");
    looking_up = 0;
}

void *malloc(size_t size)
{
    if (__builtin_expect(!next_malloc, 0)) {
        look_up();
        if (!next_malloc)
            return arena_take(size);
    }
    return next_malloc(size);
}

void free(void *block)
{
    if (__builtin_expect(in_arena(block), 0))
        return;
    if (__builtin_expect(!next_free, 0)) {
        look_up();
        if (!next_free)
            return;
    }
    next_free(block);
}

void *calloc(size_t count, size_t size)
{
    if (__builtin_expect(!next_calloc, 0)) {
        look_up();
        if (!next_calloc)
            return arena_take(count * size);
    }
    return next_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    if (!next_realloc)
        look_up();
    return next_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (!next_aligned_alloc)
        look_up();
    return next_aligned_alloc(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    if (!next_posix_memalign)
        look_up();
    return next_posix_memalign(block, alignment, size);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument)
{
    if (!next_pthread_create)
        look_up();
    return next_pthread_create(thread, attributes, start, argument);
}
