/* CFLAGS: -O2 -fno-builtin */
/* LIBS: -lpthread */
/* prog_heap_calls: 60 blocks by each function of libc that allocates; of each ten are freed by each
 * function that frees, so that ten are left. What a failed call leaves is its first site's. Ten by
 * site_thread are left by a destructor of thread-specific data that frees the others, and
 * allocates one by site_destructor each time that it is called. Prints SITE OBJECTS BYTES of what
 * is left, a line each. */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "test/preload/program.h"

/* libc 2.36 has none of these; the agent has. */
extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
extern void cfree(void *block) __attribute__((weak));

enum { BLOCKS = 60, EACH = 10, ALIGNMENT = 64 };

/* Blocks that a site starts from are another's. */
SITE static void *other_block(size_t size)
{
    void *block = malloc(size);
    keep(block);
    return block;
}

#define ALLOCATING(name, call)                                                                     \
    SITE static void *name(size_t size)                                                            \
    {                                                                                              \
        void *block = NULL;                                                                        \
        call;                                                                                      \
        keep(block);                                                                               \
        return block;                                                                              \
    }

ALLOCATING(site_malloc, block = malloc(size))
ALLOCATING(site_calloc, block = calloc(size / 8, 8))
ALLOCATING(site_realloc_none, block = realloc(NULL, size))
ALLOCATING(site_realloc_up, block = realloc(other_block(16), size))
ALLOCATING(site_realloc_down, block = realloc(other_block(5000), size))
ALLOCATING(site_reallocarray, block = reallocarray(other_block(24), size / 8, 8))
ALLOCATING(site_posix_memalign, keep(&block); if (posix_memalign(&block, ALIGNMENT, size)) abort())
ALLOCATING(site_aligned_alloc, block = aligned_alloc(ALIGNMENT, size))
ALLOCATING(site_memalign, block = memalign(ALIGNMENT, size))
ALLOCATING(site_valloc, block = valloc(size))
ALLOCATING(site_thread, block = malloc(size))
ALLOCATING(site_destructor, block = malloc(size))

/* A failed realloc leaves the block; the compiler holds it for freed. */
SITE static void *still(void *block)
{
    return block;
}

SITE static void *site_failed(size_t size)
{
    void *block = malloc(size);
    volatile size_t huge = SIZE_MAX / 2 + 10;
    keep(block);
    if (realloc(still(block), huge) || reallocarray(still(block), huge, 4))
        abort();
    return block;
}

static void free_by(int way, void *block, size_t size)
{
    switch (way) {
    case 0:
        free(block);
        break;
    case 1:
        keep(realloc(block, 0));
        break;
    case 2:
        free_sized(block, size);
        break;
    case 3:
        free_aligned_sized(block, ALIGNMENT, size);
        break;
    case 4:
        cfree(block);
        break;
    default:
        break; /* it is left */
    }
}

static void run(const char *name, void *(*site)(size_t))
{
    void *blocks[BLOCKS];
    size_t sizes[BLOCKS], left = 0;
    for (int i = 0; i < BLOCKS; i++) {
        sizes[i] = ALIGNMENT * (1 + (size_t)i);
        blocks[i] = site(sizes[i]);
        if (!blocks[i])
            abort();
    }
    for (int i = 0; i < BLOCKS; i++) {
        free_by(i / EACH, blocks[i], sizes[i]);
        left += i / EACH == BLOCKS / EACH - 1 ? sizes[i] : 0;
    }
    printf("%s %d %zu\n", name, EACH, left);
}

/* ---- at the end of a thread ---- */

enum { TIMES = 3 };
static pthread_key_t key;
static void *of_thread[BLOCKS];
static int destroyed;

static void destroy(void *value)
{
    for (int i = destroyed; i < BLOCKS - EACH; i += TIMES)
        free(of_thread[i]);
    site_destructor(ALIGNMENT);
    free(site_destructor(2 * ALIGNMENT));
    if (++destroyed < TIMES)
        pthread_setspecific(key, value); /* libc calls it once more */
}

static void *thread(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        of_thread[i] = site_thread(ALIGNMENT);
    pthread_setspecific(key, of_thread);
    return unused;
}

static void run_thread(void)
{
    pthread_t id;
    if (pthread_key_create(&key, destroy) || pthread_create(&id, NULL, thread, NULL) ||
        pthread_join(id, NULL))
        abort();
    printf("site_thread %d %d\n", EACH, EACH * ALIGNMENT);
    printf("site_destructor %d %d\n", TIMES, TIMES * ALIGNMENT);
}

int main(void)
{
    if (!free_sized || !free_aligned_sized || !cfree)
        return 2;
#define RUN(name) run(#name, name)
    RUN(site_malloc);
    RUN(site_calloc);
    RUN(site_realloc_none);
    RUN(site_realloc_up);
    RUN(site_realloc_down);
    RUN(site_reallocarray);
    RUN(site_posix_memalign);
    RUN(site_aligned_alloc);
    RUN(site_memalign);
    RUN(site_valloc);
    RUN(site_failed);
    run_thread();
    return 0;
}
