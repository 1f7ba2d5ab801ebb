/* Profiled for a while, not for another, and then again into another folder: what each thread took
 * of the processor between just before the second start and just after the second stop. Arguments:
 * milliseconds of each. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#define LIBAGENT_WEAK
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

enum kind { RUNNING, BLOCKED, DEAD, BORN, TWICE, KINDS };
static const char *const names[KINDS] = {"running", "blocked", "dead", "born", "main"};

static struct worker {
    pthread_t thread;
    clockid_t clock;
    volatile int tid;
    uint64_t before;
} workers[KINDS];
static volatile bool ends[KINDS];
static int pipes[2];

static void need(bool good, const char *what)
{
    if (good)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

SITE void spin_until_end(int kind)
{
    while (!ends[kind]) {
        compute();
        keep(malloc(1000));
    }
}

static void *work(void *data)
{
    int kind = (int)(intptr_t)data;
    char byte;
    workers[kind].tid = (int)syscall(SYS_gettid);
    if (kind == BLOCKED) {
        spin(200000000); /* it has something to be remembered by */
        need(read(pipes[0], &byte, 1) == 1, "read");
        return NULL;
    }
    spin_until_end(kind);
    return NULL;
}

static void begin(int kind)
{
    need(pthread_create(&workers[kind].thread, NULL, work, (void *)(intptr_t)kind) == 0, "thread");
    while (!workers[kind].tid)
        sched_yield();
    need(pthread_getcpuclockid(workers[kind].thread, &workers[kind].clock) == 0, "clock");
}

static void end(int kind)
{
    ends[kind] = true;
    need(pthread_join(workers[kind].thread, NULL) == 0, "join");
}

static void nap(uint64_t ms)
{
    const struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    nanosleep(&time, NULL);
}

static bool is_alive(int kind)
{
    return kind != DEAD;
}

int main(int argc, char **argv)
{
    uint64_t first = number_argument(argc, argv, 1, 1000);
    uint64_t pause = number_argument(argc, argv, 2, 1000);
    uint64_t second = number_argument(argc, argv, 3, 500);
    need(pipe(pipes) == 0, "pipe");
    workers[TWICE].tid = (int)syscall(SYS_gettid);
    workers[TWICE].clock = CLOCK_THREAD_CPUTIME_ID;
    begin(RUNNING);
    begin(BLOCKED);
    begin(DEAD);
    nap(first);
    spin(100000000);
    need(libagent_stop() == 0, "stop");
    end(DEAD);
    begin(BORN);
    nap(pause);
    spin(100000000);
    uint64_t before = clock_ns(CLOCK_MONOTONIC);
    for (int kind = 0; kind < KINDS; kind++)
        if (is_alive(kind))
            workers[kind].before = clock_ns(workers[kind].clock);
    need(libagent_start("output=second") == 0, "start");
    nap(second);
    spin(100000000);
    need(libagent_stop() == 0, "second stop");
    printf("wall-ns %llu\n", (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - before));
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t after = is_alive(kind) ? clock_ns(workers[kind].clock) : 0;
        printf("%s-tid %d\n%s-ns %llu\n", names[kind], workers[kind].tid, names[kind],
               (unsigned long long)(after - workers[kind].before));
    }
    end(RUNNING);
    end(BORN);
    need(write(pipes[1], "x", 1) == 1, "write");
    end(BLOCKED);
    return 0;
}
