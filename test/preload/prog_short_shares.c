/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_short_shares COUNT NS: COUNT threads, one after another, that each use NS of CPU time: the
 * first 0.3 of it in `first_part`, the rest in `second_part`. Prints the process's clock. */
#include <pthread.h>

#include "test/preload/program.h"

static uint64_t ns;

SITE static void first_part(void)
{
    spin(ns * 3 / 10);
    keep(&ns);
}

SITE static void second_part(void)
{
    spin(ns * 7 / 10);
    keep(&ns);
}

static void *work(void *data)
{
    first_part();
    second_part();
    return data;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    ns = number_argument(argc, argv, 2, 20000000);
    for (uint64_t count = number_argument(argc, argv, 1, 100); count > 0; count--)
        if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
            return 1;
    printf("process %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
