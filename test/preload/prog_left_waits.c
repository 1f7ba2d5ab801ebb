/* Main ends by pthread_exit; after it one thread waits, and one computes in what code that no
 * object has calls, for two seconds. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#include <pthread.h>

#include "test/preload/made_code.h"

SITE static void *wait_here(void *unused)
{
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    keep(unused);
    return unused;
}

SITE static void *compute_some(size_t times)
{
    for (size_t i = 0; i < times; i++)
        compute();
    return NULL;
}

SITE static void *work(void *unused)
{
    made_code *made = make_code();
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + 2000000000;
    while (clock_ns(CLOCK_MONOTONIC) < end)
        made(compute_some, 100);
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_here, NULL) == 0 &&
        pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_exit(NULL);
    return 1;
}
