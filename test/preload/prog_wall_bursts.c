/* CFLAGS: -O2 */
/* prog_wall_bursts: three threads, burst0 to burst2, which compute for less than a millisecond and
 * then wait for one or two, over and over, for so many milliseconds. Prints of each its life and
 * how long of it it ran, or was ready and had no processor, as the kernel counts it, in
 * nanoseconds. */
#include <pthread.h>

#include "test/preload/program.h"

static const struct burst {
    const char *name;
    uint64_t work_ns;
    long wait_ns;
} bursts[] = {{"burst0", 50000, 1000000}, {"burst1", 300000, 2000000}, {"burst2", 700000, 2000000}};

enum { BURSTS = sizeof(bursts) / sizeof(bursts[0]) };

static uint64_t duration_ns;

static uint64_t ready_ns(void)
{
    unsigned long long ran, ready, times;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file || fscanf(file, "%llu %llu %llu", &ran, &ready, &times) != 3 || times == 0)
        exit(2);
    fclose(file);
    return ready;
}

SITE static void *work_and_wait(void *data)
{
    const struct burst *burst = data;
    const struct timespec wait = {0, burst->wait_ns};
    pthread_setname_np(pthread_self(), burst->name);
    uint64_t begin = clock_ns(CLOCK_MONOTONIC), end = begin + duration_ns;
    while (clock_ns(CLOCK_MONOTONIC) < end) {
        spin(burst->work_ns);
        nanosleep(&wait, NULL);
    }
    printf("%s %llu\n%s-ran %llu\n", burst->name,
           (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - begin), burst->name,
           (unsigned long long)(clock_ns(CLOCK_THREAD_CPUTIME_ID) + ready_ns()));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[BURSTS];
    duration_ns = number_argument(argc, argv, 1, 3000) * 1000000;
    for (int i = 0; i < BURSTS; i++)
        pthread_create(&threads[i], NULL, work_and_wait, (void *)&bursts[i]);
    for (int i = 0; i < BURSTS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
