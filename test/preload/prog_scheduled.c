/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_scheduled MS: main computes for MS of its CPU time, f and g in turns, 30 to 70, in phases of
 * random length (1 ms in the mean), so that no sampler falls into step; a thread works a fifth of
 * the time meanwhile, and short ones, of 3 ms each, follow each other. Prints what the clocks say
 * of each. */
#include <pthread.h>

#include "test/preload/program.h"

enum { PHASE_NS = 1000000, BRIEF_NS = 3000000, LOAD_NS = 4000000 };

static uint32_t is_over;
static uint64_t briefs_ns, load_ns;

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

SITE static void *brief(void *data)
{
    spin(BRIEF_NS);
    briefs_ns += thread_cpu_ns(); /* one at a time */
    return data;
}

static void *make_briefs(void *data)
{
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, brief, NULL) != 0)
            exit(1);
        pthread_join(thread, NULL);
    }
    return data;
}

SITE static void *load(void *data)
{
    static const struct timespec rest = {0, 4 * (long)LOAD_NS};
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        spin(LOAD_NS);
        nanosleep(&rest, NULL);
    }
    load_ns = thread_cpu_ns();
    return data;
}

int main(int argc, char **argv)
{
    uint64_t end_ns = number_argument(argc, argv, 1, 1000) * 1000000u;
    uint64_t random = 1, f_ns = 0, g_ns = 0, now = thread_cpu_ns();
    pthread_t loads, briefs;
    if (pthread_create(&loads, NULL, load, NULL) != 0 ||
        pthread_create(&briefs, NULL, make_briefs, NULL) != 0)
        return 1;
    while (now < end_ns) {
        f(PHASE_NS * (150 + next_random(&random) % 300) / 1000);
        uint64_t middle = thread_cpu_ns();
        g(PHASE_NS * (350 + next_random(&random) % 700) / 1000);
        f_ns += middle - now;
        now = thread_cpu_ns();
        g_ns += now - middle;
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    pthread_join(loads, NULL);
    pthread_join(briefs, NULL);
    printf("f %lu\ng %lu\nload %lu\nbriefs %lu\nprocess %lu\n", (unsigned long)f_ns,
           (unsigned long)g_ns, (unsigned long)load_ns, (unsigned long)briefs_ns,
           (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
