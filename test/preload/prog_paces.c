/* prog_paces: works 4 ms of each 40, with allocations, until a file `end` is in its folder. Prints
 * the CPU time of its work, and when it ended. */
#include "test/preload/program.h"

int main(void)
{
    while (access("end", F_OK) != 0) {
        for (int i = 0; i < 4; i++) {
            void *block = malloc(200000);
            keep(block);
            spin(1000000);
            free(block);
        }
        nanosleep(&(struct timespec){0, 36000000}, NULL);
    }
    printf("work_ns %lld\n", (long long)thread_cpu_ns());
    printf("end_ns %lld\n", (long long)clock_ns(CLOCK_MONOTONIC));
    return 0;
}
