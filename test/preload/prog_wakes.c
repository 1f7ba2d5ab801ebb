/* prog_wakes.c THREADS SECONDS: threads that compute for 0.1 ms and wait for 20, again and again.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static double end;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static __attribute__((noinline)) void compute(void)
{
    double until = now(CLOCK_THREAD_CPUTIME_ID) + 0.0001;
    while (now(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
}

static void *wake_up(void *argument)
{
    static const struct timespec wait = {0, 20000000};
    while (now(CLOCK_MONOTONIC) < end) {
        compute();
        nanosleep(&wait, NULL);
    }
    return argument;
}

int main(int argc, char **argv)
{
    enum { MOST = 200 };
    pthread_t threads[MOST];
    int count = argc == 3 ? atoi(argv[1]) : 0;
    if (count < 1 || count > MOST)
        return 1;
    end = now(CLOCK_MONOTONIC) + atoi(argv[2]);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, wake_up, NULL))
            return 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
