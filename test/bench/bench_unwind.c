/* bench_unwind.c: what a walk costs, beside libunwind's unw_backtrace. Prints, a line each,
 * "WHAT ours theirs": warm10, warm50, warm200 (nanoseconds a frame at that depth, all caches warm),
 * first (the first walk of the process, depth 50), thread (that of a thread, and the second one),
 * and of ours alone miss (nanoseconds that a frame takes more whose rule is not in the cache),
 * start (microseconds). With the argument `touched` only a first walk of ours, when what it reads
 * and writes is in memory, and memory (KiB that have become the process's own since the start).
 * Links the agent's objects and libunwind.
 *
 * Each figure is the median of rounds that alternate between the two. */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "agent/unwind/modules.h"
#include "agent/unwind/rule_cache.h"
#include "agent/unwind/unwind.h"

enum { MAX = 256, ROUNDS = 31, REPEAT = 200 };

static struct unwind_stack home;
static uint64_t pcs[MAX];
static void *pointers[MAX];
static uint32_t frames;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

static void walk_ours(void)
{
    struct unwind_regs regs;
    uint32_t flags, generation;
    unwind_regs_here(&regs);
    frames = unwind_walk(&regs, true, &home, pcs, MAX, &flags, &generation);
}

static void walk_theirs(void)
{
    frames = (uint32_t)unw_backtrace(pointers, MAX);
}

/* Nanoseconds a frame. */
static double timed(void (*walk)(void), int repeat)
{
    uint64_t before = now();
    for (int i = 0; i < repeat; i++)
        walk();
    return (double)(now() - before) / repeat / frames;
}

static void compare_warm(int depth)
{
    double ours[ROUNDS], theirs[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = timed(walk_ours, REPEAT);
        theirs[i] = timed(walk_theirs, REPEAT);
    }
    printf("warm%d %.2f %.2f\n", depth, median(ours), median(theirs));
}

static void compare_misses(int unused)
{
    (void)unused;
    double missed[ROUNDS], found[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        modules_list->publication++; /* outdates all rules */
        missed[i] = timed(walk_ours, 1);
        found[i] = timed(walk_ours, REPEAT);
    }
    printf("miss %.1f\n", median(missed) - median(found));
}

static void first_walk(int unused)
{
    (void)unused;
    double ours = timed(walk_ours, 1);
    printf("first %.1f %.1f\n", ours, timed(walk_theirs, 1));
}

/* As first_walk, after what the walk reads and writes came to memory. */
static void first_walk_touched(int unused)
{
    (void)unused;
    uint64_t sum = 0;
    rule_cache_prefault();
    for (uint32_t i = 0; i < modules_list->count; i++) {
        const struct object *object = modules_list->modules[i].object;
        const struct object_table *tables[] = {&object->eh_frame_hdr, &object->eh_frame};
        for (int k = 0; k < 2; k++)
            for (size_t at = 0; at < tables[k]->size; at += 4096)
                sum += tables[k]->data[at];
    }
    __asm__ volatile("" : : "r"(sum));
    printf("touched %.1f\n", timed(walk_ours, 1));
}

/* Of the whole process. Not what is dirty: pages of a file that was just built are, too. */
static long dirty_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Anonymous: %ld", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

static double first_in_thread, later_in_thread;

static void walk_in_thread(int unused)
{
    (void)unused;
    first_in_thread = timed(walk_ours, 1);
    later_in_thread = timed(walk_ours, 1);
}

/* 16 functions, so that the frames are not all one rule. */
static void (*at_bottom)(int depth);
static int whole_depth;
#define RECURSE(n, next)                                                                           \
    static __attribute__((noinline)) void recurse_##n(int depth)                                   \
    {                                                                                              \
        char pad[16 + 24 * n];                                                                     \
        __asm__ volatile("" : : "r"(pad) : "memory");                                              \
        if (depth <= 0)                                                                            \
            at_bottom(whole_depth);                                                                \
        else                                                                                       \
            recurse_##next(depth - 1);                                                             \
        __asm__ volatile("" : : "r"(pad) : "memory");                                              \
    }
static void recurse_0(int depth);
RECURSE(1, 0)
RECURSE(2, 1)
RECURSE(3, 2)
RECURSE(4, 3)
RECURSE(5, 4)
RECURSE(6, 5)
RECURSE(7, 6)
RECURSE(8, 7)
RECURSE(9, 8)
RECURSE(10, 9)
RECURSE(11, 10)
RECURSE(12, 11)
RECURSE(13, 12)
RECURSE(14, 13)
RECURSE(15, 14)
RECURSE(0, 15)

static void run(void (*function)(int), int depth)
{
    at_bottom = function;
    whole_depth = depth;
    recurse_0(depth - 7);
}

static void *in_thread(void *end_of_stack)
{
    home.low = home.high = *(const uintptr_t *)end_of_stack;
    run(walk_in_thread, 50);
    return NULL;
}

/* The first walk of a thread, and the one after it. */
static void compare_threads(void)
{
    enum { STACK = 1 << 20 };
    double first[ROUNDS], later[ROUNDS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        void *stack = aligned_alloc(4096, STACK);
        uintptr_t end = (uintptr_t)stack + STACK;
        if (!stack || pthread_attr_setstack(&attributes, stack, STACK) ||
            pthread_create(&thread, &attributes, in_thread, &end) || pthread_join(thread, NULL))
            exit(1);
        free(stack);
        first[i] = first_in_thread;
        later[i] = later_in_thread;
    }
    printf("thread %.1f %.1f\n", median(first), median(later));
}

int main(int argc, char **argv)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    bool touched = argc == 2 && strcmp(argv[1], "touched") == 0;
    long before_kib = dirty_kib();
    uint64_t before = now();
    if (modules_start(dl_iterate_phdr) || unwind_start())
        return 1;
    double start = (double)(now() - before) / 1000;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    home.high = (uintptr_t)low + size;
    home.low = (uintptr_t)__builtin_frame_address(0) & ~4095ul;
    if (touched) {
        run(first_walk_touched, 50);
        printf("memory %ld\n", dirty_kib() - before_kib);
        return 0;
    }
    printf("start %.1f\n", start);
    run(first_walk, 50);
    run(compare_warm, 10);
    run(compare_warm, 50);
    run(compare_warm, 200);
    run(compare_misses, 50);
    compare_threads();
    return 0;
}
