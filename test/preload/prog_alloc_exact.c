/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_alloc_exact: known allocations by each function of libc that allocates, in each phase of a
 * process's and a thread's life. Prints "self FUNCTION OBJECTS BYTES" for what a function
 * allocates by itself, "under ..." for what it and those that it calls allocate. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>

#include "test/preload/program.h"

enum { COUNT = 500, THREADS = 4, THREAD_COUNT = 20000, HUGE_COUNT = 10 };

static void told(const char *kind_and_site, uint64_t objects, uint64_t bytes)
{
    printf("%s %lu %lu\n", kind_and_site, (unsigned long)objects, (unsigned long)bytes);
}

/* A site whose calls allocate `size` each, i counting from 1. */
#define PLAIN_SITE(name, size_, call)                                                              \
    SITE static void name(void)                                                                    \
    {                                                                                              \
        uint64_t bytes = 0;                                                                        \
        for (uint64_t i = 1; i <= COUNT; i++) {                                                    \
            uint64_t size = (size_);                                                               \
            void *block = NULL;                                                                    \
            call;                                                                                  \
            keep(block);                                                                           \
            bytes += size;                                                                         \
            free(block);                                                                           \
        }                                                                                          \
        told("self " #name, COUNT, bytes);                                                         \
    }

/* Blocks that a site starts from are another's. */
SITE static void *other_block(size_t size)
{
    void *block = malloc(size);
    keep(block);
    return block;
}

PLAIN_SITE(site_malloc, i, block = malloc(size))
PLAIN_SITE(site_malloc_large, i * 4096, block = malloc(size))
PLAIN_SITE(site_calloc, 3 * i, block = calloc(3, i))
PLAIN_SITE(site_realloc_null, i, block = realloc(NULL, size))
PLAIN_SITE(site_realloc_grow, 100 + 10 * i, block = realloc(other_block(100), size))
PLAIN_SITE(site_realloc_shrink, i, block = realloc(other_block(COUNT + i), size))
PLAIN_SITE(site_realloc_huge, 300000 + i * 4096, block = realloc(other_block(300000), size))
PLAIN_SITE(site_reallocarray, 5 * i, block = reallocarray(other_block(i), 5, i))
PLAIN_SITE(site_posix_memalign, i, keep(&block); if (posix_memalign(&block, 256, size)) abort())
PLAIN_SITE(site_aligned_alloc, 64 * i, block = aligned_alloc(64, size))
PLAIN_SITE(site_memalign, i, block = memalign(128, size))
PLAIN_SITE(site_valloc, i, block = valloc(size))
PLAIN_SITE(site_pvalloc, i, block = pvalloc(size))

SITE static void site_realloc_move(void)
{
    void *blocks[COUNT], *walls[COUNT];
    uint64_t bytes = 0, moved = 0;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = other_block(200);
        walls[i] = other_block(200);
    }
    for (int i = 0; i < COUNT; i++) {
        uintptr_t before = (uintptr_t)blocks[i];
        blocks[i] = realloc(blocks[i], 2000);
        bytes += 2000;
        moved += (uintptr_t)blocks[i] != before;
    }
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
        free(walls[i]);
    }
    if (moved < COUNT / 2)
        abort();
    told("self site_realloc_move", COUNT, bytes);
}

/* A block of no bytes counts as one of one byte. */
SITE static void site_malloc_zero(void)
{
    for (int i = 0; i < COUNT; i++) {
        void *block = malloc(0);
        keep(block);
        free(block);
    }
    told("self site_malloc_zero", COUNT, COUNT);
}

/* A failed realloc leaves the block; the compiler holds it for freed. */
SITE static void *still(void *block)
{
    return block;
}

/* Nothing is allocated by these. */
SITE static void site_nothing(void)
{
    for (volatile size_t huge = SIZE_MAX / 2 + 10, i = 0; i < HUGE_COUNT; i++) {
        void *block = other_block(10);
        keep(malloc(huge));
        keep(calloc(huge, 4));
        keep(realloc(still(block), huge));
        keep(reallocarray(still(block), huge, 4));
        keep(aligned_alloc(64, huge));
        void *none = NULL;
        if (posix_memalign(&none, 3, 10) != EINVAL)
            abort();
        keep(realloc(still(block), 0));
        free(NULL);
    }
    told("self site_nothing", 0, 0);
}

/* The leaf is libc's. */
SITE static void site_strdup(void)
{
    for (int i = 0; i < COUNT; i++) {
        char *copy = strdup("a text of 24 characters.");
        keep(copy);
        free(copy);
    }
    told("under site_strdup", COUNT, COUNT * 25);
}

SITE static void site_constructor(void)
{
    for (int i = 0; i < COUNT; i++)
        free(other_block(40));
}

SITE static void site_atexit(void)
{
    for (int i = 0; i < COUNT; i++)
        free(other_block(50));
}

SITE static void site_destructor(void)
{
    for (int i = 0; i < COUNT; i++)
        free(other_block(60));
}

__attribute__((constructor)) static void before_main(void)
{
    site_constructor();
    keep(other_block);
}

__attribute__((destructor)) static void after_exit(void)
{
    site_destructor();
    keep(other_block);
}

static void at_exit(void)
{
    site_atexit();
    keep(other_block);
}

SITE static void site_thread(void)
{
    for (uint64_t i = 0; i < THREAD_COUNT; i++) {
        void *block = malloc(i % 100 + 1);
        keep(block);
        free(block);
    }
}

/* Set again, so that libc calls it in each of its rounds (PTHREAD_DESTRUCTOR_ITERATIONS, 4). */
static pthread_key_t key;

SITE static void site_key_destructor(void *value)
{
    for (int i = 0; i < COUNT; i++)
        free(other_block(70));
    if ((uintptr_t)value < 4)
        pthread_setspecific(key, (void *)((uintptr_t)value + 1));
}

SITE static void site_cleanup(void *value)
{
    for (int i = 0; i < COUNT; i++)
        free(other_block(80));
    keep(value);
}

static void *thread(void *data)
{
    pthread_setspecific(key, (void *)1);
    site_thread();
    pthread_cleanup_push(site_cleanup, NULL);
    pthread_exit(data);
    pthread_cleanup_pop(0);
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    pthread_key_create(&key, site_key_destructor);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL) != 0)
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    told("self site_thread", THREADS * THREAD_COUNT, THREADS * (THREAD_COUNT / 100) * 5050);
    told("under site_key_destructor", THREADS * 4 * COUNT, THREADS * 4 * COUNT * 70);
    told("under site_cleanup", THREADS * COUNT, THREADS * COUNT * 80);
}

int main(void)
{
    static void (*const sites[])(void) = {
        site_malloc,       site_malloc_large,   site_calloc,        site_realloc_null,
        site_realloc_grow, site_realloc_shrink, site_realloc_huge,  site_realloc_move,
        site_reallocarray, site_posix_memalign, site_aligned_alloc, site_memalign,
        site_valloc,       site_pvalloc,        site_malloc_zero,   site_nothing,
        site_strdup};
    atexit(at_exit);
    for (size_t i = 0; i < sizeof(sites) / sizeof(sites[0]); i++)
        sites[i]();
    run_threads();
    told("under site_constructor", COUNT, COUNT * 40);
    told("under site_atexit", COUNT, COUNT * 50);
    told("under site_destructor", COUNT, COUNT * 60);
    return 0;
}
