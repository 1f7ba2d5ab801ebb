/* in_place.c: what a walk costs in the midst of a real program, whose caches hold other things.
 * Preloaded: a timer interrupts the main thread 2,000 times a second; at each interrupt all walkers
 * walk, and the first of them, another one each time, is timed. At the end
 * "PROGRAM NAME NANOSECONDS-A-FRAME SAMPLES" of each is appended to the file that BENCH_OUTPUT
 * names.
 *
 * Links the agent's objects, and libunwind as the one to compare with. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"

enum { MAX = 512, PERIOD_NS = 500000, SIGNAL = 40 };
#define SIGEVENT_TID _sigev_un._tid

static struct unwind_stack home;
static timer_t timer;

static uint32_t walk_ours(void *context)
{
    static uint64_t pcs[MAX];
    struct unwind_regs regs;
    uint32_t flags, generation;
    unwind_regs_from_context(&regs, context);
    return unwind_walk(&regs, true, &home, pcs, MAX, &flags, &generation);
}

static uint32_t walk_theirs(void *context)
{
    static void *pointers[MAX];
    (void)context;
    return (uint32_t)unw_backtrace(pointers, MAX);
}

static struct walker {
    const char *name;
    uint32_t (*walk)(void *context);
    uint64_t ns, frames, samples;
} walkers[] = {{"ours", walk_ours, 0, 0, 0}, {"libunwind", walk_theirs, 0, 0, 0}};
enum { WALKERS = sizeof(walkers) / sizeof(walkers[0]) };

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    static unsigned turn;
    (void)signal;
    (void)info;
    struct walker *first = &walkers[++turn % WALKERS];
    uint64_t before = now();
    uint32_t frames = first->walk(context);
    uint64_t took = now() - before;
    for (unsigned i = 1; i < WALKERS; i++)
        walkers[(turn + i) % WALKERS].walk(context);
    first->ns += took;
    first->frames += frames;
    first->samples++;
}

/* What the program loads later has rules too. */
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    void *handle = next(name, flags);
    if (modules_rescan() != 0)
        abort();
    return handle;
}

static void stop(void)
{
    const char *path = getenv("BENCH_OUTPUT");
    timer_delete(timer);
    FILE *file = path ? fopen(path, "a") : NULL;
    for (unsigned i = 0; file && i < WALKERS; i++)
        fprintf(file, "%s %s %.2f %llu\n", program_invocation_short_name, walkers[i].name,
                (double)walkers[i].ns / (double)walkers[i].frames,
                (unsigned long long)walkers[i].samples);
    if (file)
        fclose(file);
}

__attribute__((constructor)) static void start(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (modules_start(dl_iterate_phdr) || unwind_start())
        abort();
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    home.low = home.high = (uintptr_t)low + size;
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_PER_THREAD);
    walk_theirs(NULL); /* its first call sets things up, with malloc */
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL};
    event.SIGEVENT_TID = (pid_t)syscall(SYS_gettid);
    struct itimerspec times = {{0, PERIOD_NS}, {0, PERIOD_NS}};
    if (sigaction(SIGNAL, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
        timer_settime(timer, 0, &times, NULL))
        abort();
    atexit(stop);
}
