/* bench_latency.c: `bench_latency LIVE SECONDS CLOCK [flush]`: allocates LIVE blocks, and then
 * times malloc (each block freed a thousand later) for so long, by CLOCK: `wall`, or `cpu`, the
 * thread's, which stands while others have the processor, and so tells what malloc itself did. With
 * `flush` another thread asks for one flush after the other, so that one is under way at each
 * malloc that is timed; without, that thread waits. One line: how many flushes, and of the mallocs
 * the 50th, 99th, 99.9th and 99.99th hundredths and the longest, in nanoseconds. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = 1000, BUCKETS = 64 * 16 };

static uint64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Sixteen buckets a doubling: 6 %. */
static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 16)
        return (uint32_t)ns;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(ns);
    return (top - 3) * 16 + (uint32_t)(ns >> (top - 4) & 15);
}

static uint64_t value_of(uint32_t bucket)
{
    return bucket < 16 ? bucket : (16ull + bucket % 16) << (bucket / 16 - 1);
}

static uint64_t counts[BUCKETS], total, longest;

static uint64_t hundredth(double share)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        if ((double)(below += counts[i]) >= share * (double)total)
            return value_of(i);
    return longest;
}

enum { TIMEOUT_MS = 60000 };

static pthread_mutex_t timing = PTHREAD_MUTEX_INITIALIZER; /* held meanwhile */
static uint64_t flushes;

/* NULL: it just waits, so that all have two threads. */
static void *flush_meanwhile(void *flush)
{
    int (*flush_once)(int timeout_ms);
    *(void **)&flush_once = flush;
    while (flush && pthread_mutex_trylock(&timing) != 0) {
        if (flush_once(TIMEOUT_MS) != 0)
            exit(2);
        flushes++;
    }
    if (!flush)
        pthread_mutex_lock(&timing);
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t live = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    bool by_cpu = argc > 3 && strcmp(argv[3], "cpu") == 0;
    clockid_t clock = by_cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    void *flush = argc > 4 ? dlsym(RTLD_DEFAULT, "libagent_flush") : NULL;
    pthread_t other;
    void **blocks = malloc((live + 1) * sizeof(void *));
    void *ring[RING] = {0};
    if (!blocks || (argc > 4 && !flush))
        return 1;
    for (uint64_t i = 0; i < live; i++)
        blocks[i] = malloc(48 + i % 64);
    __asm__ volatile("" : : "r"(blocks) : "memory");
    pthread_mutex_lock(&timing);
    if (pthread_create(&other, NULL, flush_meanwhile, flush) != 0)
        return 1;
    uint64_t end = now_ns(clock) + (uint64_t)(seconds * 1e9);
    for (uint64_t i = 0, last = 0; last < end; i++) {
        free(ring[i % RING]);
        uint64_t begin = now_ns(clock);
        ring[i % RING] = malloc(100);
        last = now_ns(clock);
        uint64_t took = last - begin;
        counts[bucket_of(took)]++;
        total++;
        longest = took > longest ? took : longest;
    }
    pthread_mutex_unlock(&timing);
    pthread_join(other, NULL);
    printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)flushes,
           (unsigned long long)hundredth(0.5), (unsigned long long)hundredth(0.99),
           (unsigned long long)hundredth(0.999), (unsigned long long)hundredth(0.9999),
           (unsigned long long)longest);
    return 0;
}
