/* bench_single.cc: what a second thread in the process costs a program that has one.
 * `bench_single SECONDS [idle]` burns CPU so long first (a profiler may start its thread meanwhile;
 * with `idle` the program itself has one that waits), then prints nanoseconds of CPU time for putc,
 * for a copy of a shared_ptr, for malloc(3000) and malloc(65536) with their free, and the number of
 * threads in the process at its end: all take no locks, or plain instructions, while it is 1. */
/* CFLAGS: -O2 */
#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

static const int block_calls = 10000;
static FILE *sink;
static std::shared_ptr<int> shared = std::make_shared<int>(1);

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void putc_block()
{
    for (int i = 0; i < block_calls; i++)
        putc('x', sink);
}

static void shared_block()
{
    for (int i = 0; i < block_calls; i++) {
        std::shared_ptr<int> copy = shared;
        __asm__ volatile("" : : "r"(copy.get()) : "memory");
    }
}

template <size_t size> static void malloc_block()
{
    for (int i = 0; i < block_calls; i++) {
        void *block = malloc(size);
        __asm__ volatile("" : "+r"(block) : : "memory");
        free(block);
    }
}

static double run(void (*block)(), double seconds)
{
    double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    double end = now_ns(CLOCK_MONOTONIC) + seconds * 1e9;
    long blocks = 0;
    for (; now_ns(CLOCK_MONOTONIC) < end; blocks++)
        block();
    return (now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)blocks / block_calls;
}

static void *wait_for_ever(void *argument)
{
    while (pause() != 0)
        continue;
    return argument;
}

static int threads()
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (struct dirent *entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

int main(int argc, char **argv)
{
    pthread_t idle;
    if (argc < 2)
        return 2;
    sink = fopen("/dev/null", "w");
    if (!sink || (argc > 2 && pthread_create(&idle, NULL, wait_for_ever, NULL) != 0))
        return 1;
    double before = atof(argv[1]);
    if (before > 0)
        run(malloc_block<3000>, before);
    double putc_ns = run(putc_block, 0.2);
    double shared_ns = run(shared_block, 0.2);
    double malloc_ns = run(malloc_block<3000>, 0.2);
    double large_ns = run(malloc_block<65536>, 0.2);
    printf("%.3f %.3f %.3f %.3f %d\n", putc_ns, shared_ns, malloc_ns, large_ns, threads());
    return 0;
}
