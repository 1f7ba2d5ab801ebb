/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_heap_churn churn PAIRS: threads allocate and free so many small blocks, some of which
 * another thread frees, and now and then replace one of a set of large ones, which alone is left.
 * prog_heap_churn race SECONDS: threads hand a few addresses on to each other as fast as they can:
 * what one frees another allocates, or reallocates; for a single arena without caches of threads.
 *
 * Told at the end: which site has how many objects and bytes left, a line each: SITE_objects N,
 * SITE_bytes N; in churn resident memory after a fifth and at the end, in KiB. */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "test/preload/program.h"

enum { THREADS = 4, KEPT = 100, RING = 1024, SHARED = 4096, RACERS = 8, HANDED = 16 };

SITE static void *site_small(size_t size)
{
    void *block = malloc(size);
    keep(block);
    return block;
}

SITE static void *site_large(size_t size)
{
    void *block = malloc(size);
    keep(block);
    return block;
}

SITE static void *site_moved(void *old, size_t size)
{
    void *block = realloc(old, size);
    keep(block);
    return block;
}

static void tell(const char *site, uint64_t objects, uint64_t bytes)
{
    printf("%s_objects %llu\n%s_bytes %llu\n", site, (unsigned long long)objects, site,
           (unsigned long long)bytes);
}

/* ---- churn ---- */

/* 73 intervals of 4 KiB and more: recorded for certain, with weight 1. */
static const size_t large = 300000;

static uint64_t pairs;
static void *kept[THREADS][KEPT], *shared[SHARED];
static size_t kept_sizes[THREADS][KEPT];
static pthread_barrier_t barrier;

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(3);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void replace_kept(uint64_t thread, uint64_t random)
{
    uint32_t which = random % KEPT;
    free(kept[thread][which]);
    kept_sizes[thread][which] = large + (random >> 32) % 100000;
    kept[thread][which] = site_large(kept_sizes[thread][which]);
}

static void churn(uint64_t thread, uint64_t *random, uint64_t count)
{
    static __thread void *ring[RING];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = next_random(random);
        void *block = site_small(16 + (bits & 127));
        if (bits >> 58 == 0) /* one in 64 goes to others */
            block = __atomic_exchange_n(&shared[bits >> 8 & (SHARED - 1)], block, __ATOMIC_ACQ_REL);
        uint32_t place = bits >> 32 & (RING - 1);
        free(ring[place]);
        ring[place] = block;
        if (i % 65536 == 0)
            replace_kept(thread, bits);
    }
    for (int i = 0; i < RING; i++) {
        free(ring[i]);
        ring[i] = NULL;
    }
}

static void *churn_thread(void *argument)
{
    uint64_t thread = (uintptr_t)argument, random = thread;
    for (int i = 0; i < KEPT; i++)
        replace_kept(thread, (uint64_t)i);
    churn(thread, &random, pairs / THREADS / 5);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* memory is looked at */
    churn(thread, &random, pairs / THREADS / 5 * 4);
    return NULL;
}

static void run_churn(void)
{
    pthread_t ids[THREADS];
    uint64_t bytes = 0;
    /* Large ones apart, as else small ones settle in what they leave, and the heap grows by that.
     */
    mallopt(M_MMAP_THRESHOLD, 1 << 18);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, churn_thread, (void *)i);
    pthread_barrier_wait(&barrier);
    printf("early %ld\n", resident_kib());
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    printf("late %ld\n", resident_kib());
    for (int i = 0; i < SHARED; i++)
        free(shared[i]);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < KEPT; k++)
            bytes += kept_sizes[i][k];
    tell("site_small", 0, 0);
    tell("site_large", THREADS * KEPT, bytes);
}

/* ---- race ---- */

struct racing {
    uint64_t size;
    bool moved;
};

static struct racing *handed[HANDED];
static uint64_t end_ns;

/* Of one class of the allocator (112 bytes), so that an address freed is the next one given. */
static size_t racing_size(uint64_t random)
{
    return 97 + (random & 7);
}

static void *race_thread(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
        for (int i = 0; i < 1000; i++) {
            uint64_t bits = next_random(&random);
            struct racing **place = &handed[bits >> 8 & (HANDED - 1)];
            struct racing *block = __atomic_exchange_n(place, NULL, __ATOMIC_ACQ_REL);
            if (block && (bits >> 16 & 3) == 0) {
                /* In place, or out of the class and later back into it. */
                size_t size = racing_size(bits) + ((bits >> 20 & 3) == 0 ? 400 : 0);
                block = site_moved(block, size);
                *block = (struct racing){size, true};
            } else {
                free(block);
                block = site_small(racing_size(bits));
                *block = (struct racing){racing_size(bits), false};
            }
            free(__atomic_exchange_n(place, block, __ATOMIC_ACQ_REL));
        }
    }
    return NULL;
}

static void run_race(uint64_t seconds)
{
    pthread_t ids[RACERS];
    uint64_t objects[2] = {0}, bytes[2] = {0};
    mallopt(M_ARENA_MAX, 1);
    end_ns = clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000;
    for (uintptr_t i = 0; i < RACERS; i++)
        pthread_create(&ids[i], NULL, race_thread, (void *)i);
    for (int i = 0; i < RACERS; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < HANDED; i++) {
        if (!handed[i])
            continue;
        objects[handed[i]->moved]++;
        bytes[handed[i]->moved] += handed[i]->size;
    }
    tell("site_small", objects[0], bytes[0]);
    tell("site_moved", objects[1], bytes[1]);
}

int main(int argc, char **argv)
{
    uint64_t number = number_argument(argc, argv, 2, 1);
    pairs = number;
    if (argc > 1 && strcmp(argv[1], "race") == 0)
        run_race(number);
    else
        run_churn();
    return 0;
}
