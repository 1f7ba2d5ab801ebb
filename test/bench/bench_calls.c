/* bench_calls.c: the cost of one call, measured from the app's side. `bench_calls WHAT` prints
 * nanoseconds a call: pair1, pair2 (malloc and free at once, 1 and 2 threads), ring1k, ring100k
 * (the same with so many blocks live), thread (created and joined), exec (/bin/true, until it has
 * ended). Each runs about a quarter of a second. */
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

enum { PAIRS = 5000000, RING_STEPS = 2000000, RING_MAX = 100000, THREADS = 5000, EXECS = 200 };

/* Sizes 16 to 512 B, the same ones in each run. */
static size_t sizes[1024];

static void fill_sizes(void)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < 1024; i++) {
        state = state * 1664525u + 1013904223u;
        sizes[i] = 16 + (state >> 8) % 497;
    }
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Keeps the compiler from pairing malloc and free away. */
static void *used(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static void *pairs(void *argument)
{
    for (size_t i = 0; i < PAIRS; i++)
        free(used(malloc(sizes[i & 1023])));
    return argument;
}

static double bench_pairs(int threads)
{
    pthread_t others[8];
    double start = now_ns();
    for (int i = 1; i < threads; i++)
        pthread_create(&others[i], NULL, pairs, NULL);
    pairs(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(others[i], NULL);
    return (now_ns() - start) / PAIRS;
}

static double bench_ring(size_t live)
{
    static void *ring[RING_MAX];
    for (size_t i = 0; i < live; i++)
        ring[i] = malloc(sizes[i & 1023]);
    uint32_t state = 1;
    double start = now_ns();
    for (size_t i = 0; i < RING_STEPS; i++) {
        state = state * 1664525u + 1013904223u;
        void **slot = &ring[(uint64_t)state * live >> 32];
        free(*slot);
        *slot = used(malloc(sizes[i & 1023]));
    }
    return (now_ns() - start) / RING_STEPS;
}

static void *nothing(void *argument)
{
    return argument;
}

static double bench_thread(void)
{
    double start = now_ns();
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, nothing, NULL);
        pthread_join(thread, NULL);
    }
    return (now_ns() - start) / THREADS;
}

static double bench_exec(void)
{
    char *arguments[] = {"/bin/true", NULL};
    double start = now_ns();
    for (int i = 0; i < EXECS; i++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) != 0)
            exit(1);
        if (waitpid(child, &status, 0) != child || status != 0)
            exit(1);
    }
    return (now_ns() - start) / EXECS;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    double ns;
    fill_sizes();
    if (strcmp(what, "pair1") == 0)
        ns = bench_pairs(1);
    else if (strcmp(what, "pair2") == 0)
        ns = bench_pairs(2);
    else if (strcmp(what, "ring1k") == 0)
        ns = bench_ring(1000);
    else if (strcmp(what, "ring100k") == 0)
        ns = bench_ring(RING_MAX);
    else if (strcmp(what, "thread") == 0)
        ns = bench_thread();
    else if (strcmp(what, "exec") == 0)
        ns = bench_exec();
    else
        return 2;
    printf("%.3f\n", ns);
    return 0;
}
