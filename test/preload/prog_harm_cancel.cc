/* CFLAGS: -O1 */
/* LIBS: -lpthread */
/* prog_harm_cancel: threads that are cancelled in a wait, while they burn CPU, and at a test point,
 * half of them while all signals are blocked; each unwinds through frames with destructors, twice
 * as many as there are threads. Then CPU is burnt that must be sampled. */
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

static volatile unsigned long sink;
static int destroyed, cleaned;

struct Guard {
    ~Guard() { __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED); }
};

static double cpu_seconds()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void burn_a_little()
{
    for (unsigned i = 0; i < 1000; i++)
        sink = sink + i;
}

static void clean(void *)
{
    __atomic_fetch_add(&cleaned, 1, __ATOMIC_RELAXED);
}

enum Way { WAIT, BURN, TEST_POINT, WAYS };

static int pipe_ends[2];
static int ready;

__attribute__((noinline)) static void be_cancelled(Way way)
{
    Guard guard;
    char byte;
    int old;
    __atomic_fetch_add(&ready, 1, __ATOMIC_RELEASE);
    if (way == BURN)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    for (;;) {
        if (way == WAIT)
            (void)!read(pipe_ends[0], &byte, 1);
        else
            burn_a_little();
        if (way == TEST_POINT)
            pthread_testcancel();
    }
}

static void *thread_main(void *argument)
{
    unsigned long number = (unsigned long)argument;
    if (number % 2) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
    }
    Guard guard;
    pthread_cleanup_push(clean, nullptr);
    be_cancelled((Way)(number % WAYS));
    pthread_cleanup_pop(0);
    return nullptr;
}

__attribute__((noinline)) static void burn_after_all()
{
    double end = cpu_seconds() + 1;
    while (cpu_seconds() < end)
        burn_a_little();
}

int main()
{
    enum { ROUNDS = 20, THREADS = 6 };
    int cancelled = 0;
    if (pipe(pipe_ends))
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        ready = 0;
        for (unsigned long i = 0; i < THREADS; i++)
            pthread_create(&threads[i], nullptr, thread_main, (void *)i);
        while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < THREADS)
            burn_a_little();
        double end = cpu_seconds() + 0.02; /* a few ticks for each */
        while (cpu_seconds() < end)
            burn_a_little();
        for (int i = 0; i < THREADS; i++)
            pthread_cancel(threads[i]);
        for (int i = 0; i < THREADS; i++) {
            void *result;
            pthread_join(threads[i], &result);
            cancelled += result == PTHREAD_CANCELED;
        }
    }
    burn_after_all();
    printf("cancelled %d, destroyed %d, cleaned %d\n", cancelled, destroyed, cleaned);
    return 0;
}
