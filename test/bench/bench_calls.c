/* bench_calls.c: the cost of one call, measured from the app's side. `bench_calls WHAT` prints
 * nanoseconds a call: pair1, pair2 (malloc and free at once, 1 and 2 threads), ring1k, ring100k
 * (the same with so many blocks live), thread (created and joined), exec (/bin/true, until it has
 * ended), dlopen (of libm, and dlclose), labels (libagent_label_set beside two others; without
 * the agent nothing is called). Each runs about a quarter of a second, however slow a call
 * is.
 *
 * The first four are CPU time of the process, so that what else the machine does stays out of them
 * and a thread of a profiler's does not; the others are time on the wall.
 *
 * BENCH_PRELOAD is the preload for the children of exec: heaptrack takes LD_PRELOAD away. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

enum { BLOCK = 10000, RING_MAX = 100000, THREADS = 10, EXECS = 1, LOADS = 10 };

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

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Keeps the compiler from pairing malloc and free away. */
static void *used(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static void *ring[RING_MAX];
static size_t live;

static void pair_block(void)
{
    for (size_t i = 0; i < BLOCK; i++)
        free(used(malloc(sizes[i & 1023])));
}

static void ring_block(void)
{
    static uint32_t state = 1;
    for (size_t i = 0; i < BLOCK; i++) {
        state = state * 1664525u + 1013904223u;
        void **slot = &ring[(uint64_t)state * live >> 32];
        free(*slot);
        *slot = used(malloc(sizes[i & 1023]));
    }
}

/* Blocks of calls, for a quarter of a second on the wall; gives how many. */
static size_t repeat(void (*block)(void))
{
    size_t blocks = 0;
    double end = now_ns(CLOCK_MONOTONIC) + 0.25e9;
    for (; now_ns(CLOCK_MONOTONIC) < end; blocks++)
        block();
    return blocks;
}

static void *other_pairs(void *count)
{
    *(size_t *)count = repeat(pair_block);
    return NULL;
}

static double bench_pairs(int threads)
{
    pthread_t others[8];
    size_t counts[8];
    pair_block();
    double start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 1; i < threads; i++)
        pthread_create(&others[i], NULL, other_pairs, &counts[i]);
    size_t blocks = repeat(pair_block);
    for (int i = 1; i < threads; i++) {
        pthread_join(others[i], NULL);
        blocks += counts[i];
    }
    return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (double)(blocks * BLOCK);
}

static double bench_ring(size_t count)
{
    live = count;
    for (size_t i = 0; i < live; i++)
        ring[i] = malloc(sizes[i & 1023]);
    /* The blocks get the order that they have in the long run. */
    for (size_t i = 0; i < 2 * live / BLOCK; i++)
        ring_block();
    double start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    size_t blocks = repeat(ring_block);
    return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (double)(blocks * BLOCK);
}

static int (*label_set)(const char *, const char *);

static void label_block(void)
{
    for (size_t i = 0; label_set && i < BLOCK; i++)
        label_set("span", i & 1 ? "checkout" : "delivery");
}

static double bench_labels(void)
{
    label_set = (int (*)(const char *, const char *))dlsym(RTLD_DEFAULT, "libagent_label_set");
    /* A process that is not profiled has the functions, too. */
    int error = label_set ? label_set("user", "alice") : -ENOTCONN;
    if (error != -ENOTCONN && (error || label_set("route", "/api/orders") != 0))
        exit(1);
    double start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    size_t blocks = label_set ? repeat(label_block) : 1;
    return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (double)(blocks * BLOCK);
}

static void *nothing(void *argument)
{
    return argument;
}

static void thread_block(void)
{
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
            exit(1);
    }
}

static void exec_block(void)
{
    char *arguments[] = {"/bin/true", NULL};
    for (int i = 0; i < EXECS; i++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) != 0)
            exit(1);
        if (waitpid(child, &status, 0) != child || status != 0)
            exit(1);
    }
}

static void load_block(void)
{
    for (int i = 0; i < LOADS; i++) {
        void *handle = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        if (!handle || dlclose(handle) != 0)
            exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower quartile of the blocks: on a busy machine, too, those did not wait for a processor. */
static double bench_wall(void (*block)(void), int calls)
{
    static double took[1000];
    size_t blocks = 0;
    block();
    double end = now_ns(CLOCK_MONOTONIC) + 0.25e9;
    for (double start; (start = now_ns(CLOCK_MONOTONIC)) < end && blocks < 1000; blocks++) {
        block();
        took[blocks] = now_ns(CLOCK_MONOTONIC) - start;
    }
    qsort(took, blocks, sizeof(*took), compare);
    return took[blocks / 4] / calls;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    const char *preload = getenv("BENCH_PRELOAD");
    double ns;
    if (preload)
        setenv("LD_PRELOAD", preload, 1);
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
        ns = bench_wall(thread_block, THREADS);
    else if (strcmp(what, "exec") == 0)
        ns = bench_wall(exec_block, EXECS);
    else if (strcmp(what, "dlopen") == 0)
        ns = bench_wall(load_block, LOADS);
    else if (strcmp(what, "labels") == 0)
        ns = bench_labels();
    else
        return 2;
    printf("%.3f\n", ns);
    return 0;
}
