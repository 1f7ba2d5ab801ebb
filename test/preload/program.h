/* program.h: what the programs that are profiled in tests share.
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_PROGRAM_H
#define LIBAGENT_TEST_PROGRAM_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A function that stays one function: neither inlined, nor cloned, nor analysed. */
#if defined(__clang__)
#define SITE __attribute__((noinline, used))
#else
#define SITE __attribute__((noipa))
#endif

/* The compiler must take the pointer (and what it points to) for used: no allocation is optimised
 * away, no call made a jump. */
static inline void keep(const void *pointer)
{
    __asm__ volatile("" : : "r"(pointer) : "memory");
}

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Computes for about 2 us, in the caller's own code. */
static inline void compute(void)
{
    uint64_t value = 1;
    for (int i = 0; i < 1000; i++) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(value));
    }
}

/* Computes for `ns` of the thread's CPU time. */
static inline void spin(uint64_t ns)
{
    for (uint64_t end = thread_cpu_ns() + ns; thread_cpu_ns() < end;)
        for (int i = 0; i < 10; i++)
            compute();
}

/* Eight blocks, and computes for `ns`. */
static inline void allocate_and_spin(uint64_t ns)
{
    for (int i = 0; i < 8; i++) {
        void *block = malloc(1000);
        keep(block);
        free(block);
    }
    spin(ns);
}

/* Blocks all signals but those of `mask` in the calling thread, even those that libc keeps. */
static inline void block_all_but(uint64_t mask)
{
    mask = ~mask;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* splitmix64: programs are the same in each run, unless they want otherwise. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t number_argument(int argc, char **argv, int index, uint64_t otherwise)
{
    return index < argc ? strtoull(argv[index], NULL, 0) : otherwise;
}

#endif
