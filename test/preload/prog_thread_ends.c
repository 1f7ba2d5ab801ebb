/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_thread_ends: threads made and ended in each way; prints what the program can see of it. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include "test/preload/program.h"

static void work(void)
{
    for (size_t i = 0; i < 200; i++) {
        void *block = malloc(1000 + i);
        keep(block);
        free(block);
    }
    spin(3000000);
}

static void *by_return(void *data)
{
    work();
    return (char *)data + 1;
}

static void *by_exit(void *data)
{
    work();
    pthread_exit((char *)data + 2);
}

static __thread int cleanups;
static int seen_cleanups;

static void cleanup(void *data)
{
    work();
    cleanups += *(int *)data;
    seen_cleanups = cleanups;
}

static void *until_cancelled(void *data)
{
    int amount = 3;
    pthread_cleanup_push(cleanup, &amount);
    pthread_cleanup_push(cleanup, &amount);
    work();
    *(volatile bool *)data = true;
    for (;;)
        pause();
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(1);
    return NULL;
}

/* Cancelled anywhere, in the agent's handler too. */
static void *until_cancelled_anywhere(void *data)
{
    int amount = 4;
    pthread_cleanup_push(cleanup, &amount);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    *(volatile bool *)data = true;
    for (;;)
        compute();
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancel(void *(*routine)(void *), const char *what)
{
    int wrong = 0;
    for (int i = 0; i < 20; i++) {
        volatile bool ready = false;
        void *result = NULL;
        pthread_t thread;
        seen_cleanups = 0;
        pthread_create(&thread, NULL, routine, (void *)&ready);
        while (!ready)
            sched_yield();
        spin(1000000 + (uint64_t)i * 300000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        wrong += result != PTHREAD_CANCELED;
    }
    printf("%s: cleanups %d, wrong %d\n", what, seen_cleanups, wrong);
}

static int by_c11(void *data)
{
    work();
    if (data)
        thrd_exit(-5);
    return INT_MIN + 3;
}

static void c11_threads(void)
{
    int results[2] = {0, 0};
    thrd_t threads[2];
    printf("thrd_create %d\n", thrd_create(&threads[0], by_c11, NULL) == thrd_success);
    printf("thrd_create %d\n", thrd_create(&threads[1], by_c11, results) == thrd_success);
    for (int i = 0; i < 2; i++) {
        int joined = thrd_join(threads[i], &results[i]);
        printf("thrd_join %d %d\n", joined == thrd_success, results[i]);
    }
    thrd_t detached;
    thrd_create(&detached, by_c11, NULL);
    printf("thrd_detach %d\n", thrd_detach(detached) == thrd_success);
}

static volatile int detached_done;

static void *detached(void *data)
{
    work();
    pthread_detach(pthread_self());
    __atomic_fetch_add(&detached_done, 1, __ATOMIC_SEQ_CST);
    return data;
}

static pthread_t watched;

static void *look_around(void *data)
{
    pthread_attr_t attributes;
    size_t size = 0, guard = 0;
    void *address = NULL;
    int detach_state = 0;
    char name[16] = "";
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &address, &size);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_getdetachstate(&attributes, &detach_state);
    pthread_attr_destroy(&attributes);
    pthread_getname_np(pthread_self(), name, sizeof(name));
    char here;
    printf("stack %zu, guard %zu, detached %d, name %s, on it %d, self %d\n", size, guard,
           detach_state, name, &here >= (char *)address && &here < (char *)address + size,
           pthread_equal(pthread_self(), watched));
    sigset_t blocked;
    int count = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    for (int signal = 1; signal < NSIG; signal++)
        count += sigismember(&blocked, signal) == 1;
    cpu_set_t processors;
    sched_getaffinity(0, sizeof(processors), &processors);
    printf("blocked %d, processors %d\n", count, CPU_COUNT(&processors));
    return data;
}

static void attributes(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t one;
    sigset_t some, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_attr_setguardsize(&attributes, 8192);
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    pthread_attr_setaffinity_np(&attributes, sizeof(one), &one);
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &some, &before);
    pthread_create(&watched, &attributes, look_around, NULL);
    pthread_join(watched, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 46);
    printf("no room for a stack: %d\n", pthread_create(&thread, &attributes, by_return, NULL));
    pthread_attr_destroy(&attributes);
}

static pthread_key_t key;

static void *start_another(void *data)
{
    work();
    return data;
}

/* A thread is made while one is torn down. */
static void at_thread_end(void *value)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, start_another, value) == 0)
        pthread_join(thread, NULL);
    printf("made at a thread's end\n");
}

static void *with_key(void *data)
{
    pthread_setspecific(key, data);
    return data;
}

static void *one_of_many(void *data)
{
    return data;
}

static void many(void)
{
    enum { MANY = 3000 };
    int wrong = 0;
    for (uintptr_t i = 0; i < MANY; i++) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, one_of_many, (void *)i) || pthread_join(thread, &result))
            wrong++;
        wrong += result != (void *)i;
    }
    printf("of many, wrong: %d\n", wrong);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, by_return, (void *)10);
    pthread_join(thread, &result);
    printf("returned %p\n", result);
    pthread_create(&thread, NULL, by_exit, (void *)10);
    pthread_join(thread, &result);
    printf("exited %p\n", result);
    cancel(until_cancelled, "cancelled");
    cancel(until_cancelled_anywhere, "cancelled anywhere");
    c11_threads();
    for (int i = 0; i < 5; i++)
        pthread_create(&thread, NULL, detached, NULL);
    while (detached_done < 5)
        sched_yield();
    attributes();
    pthread_key_create(&key, at_thread_end);
    pthread_create(&thread, NULL, with_key, &key);
    pthread_join(thread, NULL);
    many();
    return 0;
}
