/* CFLAGS: -O2 */
/* LIBS: -lpthread -ldl */
/* prog_late_threads: three threads by libc's own pthread_create, past any preload, compute for 0.7
 * s of CPU time each and allocate as they do so. Prints what their clocks tell, and the process's.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "test/preload/program.h"

enum { THREADS = 3 };

static uint64_t threads_ns;

SITE static void churn(void)
{
    while (thread_cpu_ns() < 700000000) {
        void *block = malloc(4096);
        keep(block);
        free(block);
        for (int i = 0; i < 100; i++)
            compute();
    }
    keep(&threads_ns);
}

static void *work(void *data)
{
    churn();
    __atomic_fetch_add(&threads_ns, thread_cpu_ns(), __ATOMIC_RELAXED);
    return data;
}

int main(void)
{
    static const char *const names[] = {"libc.so.6", "libpthread.so.0"};
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
    pthread_t threads[THREADS];
    for (int i = 0; i < 2 && !create; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        *(void **)&create = library ? dlsym(library, "pthread_create") : NULL;
    }
    for (int i = 0; i < THREADS; i++)
        if (!create || create(&threads[i], NULL, work, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("threads-cpu %lu\nprocess-cpu %lu\n", (unsigned long)threads_ns,
           (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
