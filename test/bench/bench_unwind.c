/* What a walk costs, beside libunwind's unw_backtrace: nanoseconds a frame at depth 50 and 200
 * with warm caches, a miss of the rule cache, the first walk of the process, and the start.
 * Links the agent's objects and libunwind:
 *
 *     make bench-unwind
 *
 * Each figure is the median of rounds that alternate between the two unwinders. */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "agent/unwind/modules.h"
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
    double a = median(ours), b = median(theirs);
    printf("warm, depth %d: %.1f ns a frame, libunwind %.1f, ratio %.2f\n", depth, a, b, a / b);
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
    printf("miss: %.0f ns a frame more than found\n", median(missed) - median(found));
}

static void first_walk(int depth)
{
    double ours = timed(walk_ours, 1);
    double theirs = timed(walk_theirs, 1);
    printf("first walk, depth %d: %.0f ns a frame, libunwind %.0f, ratio %.2f\n", depth, ours,
           theirs, ours / theirs);
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

int main(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    uint64_t before = now();
    if (modules_start(dl_iterate_phdr))
        return 1;
    uint64_t modules = now();
    if (unwind_start())
        return 1;
    printf("start: modules %.1f us, rule cache %.1f us\n", (double)(modules - before) / 1000,
           (double)(now() - modules) / 1000);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    home.high = (uintptr_t)low + size;
    home.low = (uintptr_t)__builtin_frame_address(0) & ~4095ul;
    run(first_walk, 50);
    run(compare_warm, 10);
    run(compare_warm, 50);
    run(compare_warm, 200);
    run(compare_misses, 50);
    return 0;
}
