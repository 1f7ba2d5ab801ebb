/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_short_threads COUNT NS ALIVE AT_ONCE: COUNT threads that each compute for NS; ALIVE of them
 * at a time. AT_ONCE 1: they start together, at a barrier. Every other one names itself, main names
 * the rest. Prints the sum of the threads' clocks and the process's. */
#include <pthread.h>

#include "test/preload/program.h"

enum { ALIVE_MAX = 256 };

static uint64_t work_ns, threads_ns;
static unsigned alive, at_once;
static pthread_barrier_t barrier;

SITE static void burn(void)
{
    spin(work_ns);
    keep(&work_ns);
}

static void *work(void *data)
{
    if (at_once)
        pthread_barrier_wait(&barrier);
    if (data)
        pthread_setname_np(pthread_self(), "by itself");
    burn();
    __atomic_fetch_add(&threads_ns, thread_cpu_ns(), __ATOMIC_RELAXED);
    return data;
}

int main(int argc, char **argv)
{
    unsigned count = (unsigned)number_argument(argc, argv, 1, 100);
    work_ns = number_argument(argc, argv, 2, 3000000);
    alive = (unsigned)number_argument(argc, argv, 3, 4);
    at_once = (unsigned)number_argument(argc, argv, 4, 0);
    if (alive > ALIVE_MAX || pthread_barrier_init(&barrier, NULL, alive) != 0)
        return 1;
    static pthread_t threads[ALIVE_MAX];
    for (unsigned i = 0; i < count + alive; i++) {
        if (i >= alive)
            pthread_join(threads[i % alive], NULL);
        if (i >= count)
            continue;
        if (pthread_create(&threads[i % alive], NULL, work, i % 2 ? &threads : NULL) != 0)
            return 1;
        if (i % 2 == 0)
            pthread_setname_np(threads[i % alive], "by main");
    }
    printf("threads %lu\nprocess %lu\n", (unsigned long)threads_ns,
           (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
