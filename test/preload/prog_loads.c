/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_loads SECONDS: four threads that work 100, 50, 20 and 5 % of the time and sleep the rest,
 * for SECONDS; each prints its CPU clock at its end. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { THREADS = 4, PHASE_NS = 20000000 };

static uint64_t end_ns;
static const unsigned percents[THREADS] = {100, 50, 20, 5};

static void *work(void *data)
{
    unsigned percent = *(const unsigned *)data;
    char name[16];
    snprintf(name, sizeof(name), "load-%u", percent);
    pthread_setname_np(pthread_self(), name);
    struct timespec rest = {0, (long)PHASE_NS / 100 * (100 - percent)};
    while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
        spin((uint64_t)PHASE_NS / 100 * percent);
        if (rest.tv_nsec)
            nanosleep(&rest, NULL);
    }
    printf("tid-%s %ld\n", name, syscall(SYS_gettid));
    printf("%s %lu\n", name, (unsigned long)thread_cpu_ns());
    return NULL;
}

int main(int argc, char **argv)
{
    end_ns = clock_ns(CLOCK_MONOTONIC) + number_argument(argc, argv, 1, 1) * 1000000000u;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)&percents[i]) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("process %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
