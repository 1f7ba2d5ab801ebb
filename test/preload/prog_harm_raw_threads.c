/* CFLAGS: -O2 -fno-stack-protector */
/* LIBS: -ldl */
/* prog_harm_raw_threads [SHORT PAST NS [FIRST]]: threads of another runtime, made by a bare clone:
 * one with a thread pointer of that runtime's, one with none, one that has its creator's. They
 * compute for 4 s, and for 0.8 s of CPU time each, while the main thread allocates. SHORT: so many
 * of the second kind instead, one after another, each for NS of CPU time, while the main thread
 * waits (PAST 1: by a clone that no preload sees). FIRST: so many of another routine before, while
 * the main thread allocates and computes in between. Prints how long SHORT took ("wall"), the CPU
 * time of the process ("process-cpu"), and what became of the runtime's block. */

#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/sys.h"
#include "test/preload/program.h"

enum { THREADS = 3, STACK_SIZE = 1 << 16, BLOCK_SIZE = 4096 };

static uint64_t wall_ns = 4000000000, cpu_ns = 800000000;

/* Around the thread pointer, which is in the middle. */
static _Alignas(64) unsigned char block[BLOCK_SIZE];
static int there[THREADS];

/* libc may not be asked: it would look for its own block. */
static long bare_call(long number, long a, long b, long c)
{
    return sys_raw6(number, a, b, c, 0, 0, 0);
}

static uint64_t bare_clock_ns(clockid_t clock)
{
    struct timespec time;
    bare_call(SYS_clock_gettime, clock, (long)&time, 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

SITE static void work(void)
{
    uint64_t end = bare_clock_ns(CLOCK_MONOTONIC) + wall_ns;
    while (bare_clock_ns(CLOCK_MONOTONIC) < end || bare_clock_ns(CLOCK_THREAD_CPUTIME_ID) < cpu_ns)
        for (int i = 0; i < 100; i++)
            compute();
}

SITE static int run(void *unused)
{
    (void)unused;
    work();
    bare_call(SYS_exit, 0, 0, 0);
    return 0;
}

SITE static int run_first(void *unused)
{
    (void)unused;
    work();
    bare_call(SYS_exit, 0, 0, 0);
    return 1;
}

static int (*routine)(void *) = run;
static int (*make)(int (*)(void *), void *, int, void *, ...) = clone;

static char *start(int *is_there, bool with_pointer, void *pointer)
{
    char *stack =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *is_there = 1;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                CLONE_CHILD_CLEARTID | (with_pointer ? CLONE_SETTLS : 0);
    if (stack == MAP_FAILED ||
        make(routine, stack + STACK_SIZE, flags, NULL, NULL, pointer, is_there) < 0)
        exit(2);
    return stack;
}

static void run_short(uint64_t count)
{
    while (count--) {
        char *stack = start(&there[0], true, NULL);
        while (__atomic_load_n(&there[0], __ATOMIC_ACQUIRE))
            bare_call(SYS_futex, (long)&there[0], FUTEX_WAIT, 1);
        munmap(stack, STACK_SIZE);
    }
}

static void allocate(void)
{
    void *data = malloc(100000);
    keep(data);
    free(data);
}

int main(int argc, char **argv)
{
    if (argc >= 2) {
        if (number_argument(argc, argv, 2, 0))
            *(void **)&make = dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "clone");
        cpu_ns = number_argument(argc, argv, 3, 20000000);
        wall_ns = 0;
        routine = run_first;
        for (uint64_t first = number_argument(argc, argv, 4, 0); first--;) {
            run_short(1);
            allocate();
            spin(5000000);
        }
        routine = run;
        uint64_t begin = clock_ns(CLOCK_MONOTONIC);
        run_short(number_argument(argc, argv, 1, 0));
        printf("wall %lu\n", (unsigned long)(clock_ns(CLOCK_MONOTONIC) - begin));
        printf("process-cpu %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
        return 0;
    }
    unsigned char before[BLOCK_SIZE];
    void *pointer = block + BLOCK_SIZE / 2;
    /* As far as it can be libc's; the rest is 0, as memory that is not in use. */
    memcpy(pointer, &pointer, sizeof(pointer));
    memcpy(before, block, sizeof(before));
    start(&there[0], true, pointer);
    start(&there[1], true, NULL);
    start(&there[2], false, NULL);
    for (int i = 0; i < THREADS; i++)
        while (__atomic_load_n(&there[i], __ATOMIC_ACQUIRE))
            allocate();
    printf("process-cpu %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    printf("block is as it was: %d\n", memcmp(before, block, sizeof(before)) == 0);
    return 0;
}
