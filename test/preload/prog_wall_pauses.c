/* CFLAGS: -O2 */
/* prog_wall_pauses: one thread, which computes, waits, computes elsewhere, and ends in a wait.
 * Prints how long it waited, in nanoseconds on the wall. */
#include "test/preload/program.h"

static uint64_t wait_for_a_second(void)
{
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    nanosleep(&(struct timespec){1, 0}, NULL);
    return clock_ns(CLOCK_MONOTONIC) - begin;
}

SITE static void before_the_wait(void)
{
    spin(500000000);
}

SITE static void after_the_wait(void)
{
    spin(500000000);
}

int main(void)
{
    before_the_wait();
    uint64_t waited = wait_for_a_second();
    after_the_wait();
    waited += wait_for_a_second();
    printf("waited %llu\n", (unsigned long long)waited);
    return 0;
}
