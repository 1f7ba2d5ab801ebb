/* LIBS: -lpthread */
/* prog_wall_turns MILLISECONDS: a thread that runs and waits by turns, each for about a
 * millisecond, beside one that always runs. Prints, in nanoseconds on the wall, how long the first
 * one lived, and for how much of that it ran or was ready to. */
#include <pthread.h>
#include <sys/prctl.h>

#include "test/preload/program.h"

static uint64_t duration_ns;

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static void spin_on_wall(uint64_t until)
{
    while (now_ns() < until)
        compute();
}

static void *always(void *unused)
{
    spin_on_wall(now_ns() + duration_ns);
    return unused;
}

static void *turns(void *unused)
{
    uint64_t random = 4711, begin = now_ns(), now = begin, spun = 0, late = 0;
    pthread_setname_np(pthread_self(), "turns");
    prctl(PR_SET_TIMERSLACK, 1); /* what is late is late for want of a processor */
    while (now < begin + duration_ns) {
        spin_on_wall(now + next_random(&random) % 2800000);
        uint64_t waits = now_ns(), span = next_random(&random) % 1200000;
        spun += waits - now;
        nanosleep(&(struct timespec){0, (long)span}, NULL);
        now = now_ns();
        late += now - waits - span;
    }
    printf("life %llu\nspun %llu\nlate %llu\n", (unsigned long long)(now - begin),
           (unsigned long long)spun, (unsigned long long)late);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    duration_ns = number_argument(argc, argv, 1, 4000) * 1000000;
    if (pthread_create(&threads[0], NULL, turns, NULL) != 0 ||
        pthread_create(&threads[1], NULL, always, NULL) != 0)
        return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
