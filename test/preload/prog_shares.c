/* CFLAGS: -O2 */
/* prog_shares PHASE_US SECONDS: f and g take turns, 30 to 70, in phases of random length (mean
 * 0.3 and 0.7 PHASE_US), so that no sampler falls into step; prints what the thread's clock says
 * of each. */
#include "test/preload/program.h"

SITE static void f(uint64_t ns)
{
    spin(ns);
    keep(&ns);
}

SITE static void g(uint64_t ns)
{
    spin(ns);
    keep(&ns);
}

int main(int argc, char **argv)
{
    uint64_t phase_ns = number_argument(argc, argv, 1, 100000) * 1000;
    uint64_t end_ns = number_argument(argc, argv, 2, 1) * 1000000000u;
    uint64_t random = 1, f_ns = 0, g_ns = 0, now = thread_cpu_ns();
    while (now < end_ns) {
        f(phase_ns * (150 + next_random(&random) % 300) / 1000);
        uint64_t middle = thread_cpu_ns();
        g(phase_ns * (350 + next_random(&random) % 700) / 1000);
        f_ns += middle - now;
        now = thread_cpu_ns();
        g_ns += now - middle;
    }
    printf("f %lu\ng %lu\nprocess %lu\n", (unsigned long)f_ns, (unsigned long)g_ns,
           (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
