/* CFLAGS: -O2 -fomit-frame-pointer -Wl,-z,lazy */
/* LIBS: -lpthread */
/* prog_recursion LEAF MS WHERE: calls leaf_LEAF under 200 frames of descend and step, 100 each,
 * again and again for MS of CPU time, in main's thread (WHERE main) or another (thread). A leaf
 * takes so long (0.3 ms and more) that the descent and the look at the clock are nothing to it. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "test/preload/program.h"

enum { DEPTH = 200, BIG = 1 << 20, RING = 512, ALT_STACK = 64 * 1024 };

static void (*leaf)(void);
static uint64_t work_ns;
static int repeats = 1; /* between two looks at the clock */
static char from[BIG], to[BIG];

SITE static void leaf_compute(void)
{
    for (int i = 0; i < 1000; i++)
        compute();
    keep(from);
}

/* Sizes of which each has its own path through libc's memcpy. */
SITE static void leaf_memcpy(void)
{
    static const size_t sizes[] = {15, 100, 300, 3000, 40000, BIG};
    for (int i = 0; i < 6; i++)
        for (size_t done = 0; done < BIG; done += sizes[i]) {
            memcpy(to, from, sizes[i]);
            keep(to);
        }
}

SITE static void leaf_snprintf(void)
{
    char text[200];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "%d %s %.15g %08lx", i, "text", i / 7.0, (unsigned long)i);
        keep(text);
    }
}

SITE static void leaf_malloc(void)
{
    static __thread void *ring[RING];
    static __thread uint64_t random;
    for (int i = 0; i < 10000; i++) {
        uint64_t r = next_random(&random);
        void **slot = &ring[r % RING];
        free(*slot);
        *slot = malloc(1 + (r >> 16) % (r >> 40 & 7 ? 500 : 30000));
        keep(*slot);
    }
}

/* Most of the time in the linkage table's stubs and a function of a few instructions. */
SITE static void leaf_plt(void)
{
    for (long long i = 0; i < 200000; i++) {
        lldiv_t quotient = lldiv(i, 7);
        keep(&quotient);
    }
}

/* Returns at once: the work is the descent. */
SITE static void leaf_descent(void)
{
    repeats = 100;
    keep(from);
}

static void handle(int signal)
{
    (void)signal;
    leaf_compute();
    keep(from);
}

/* On a stack of its own, through a signal's frame. */
SITE static void leaf_signal(void)
{
    raise(SIGUSR1);
    keep(from);
}

SITE static void step(unsigned depth);

/* Two shapes of frames in turn: none of the registers saved, all of them. */
SITE static void descend(unsigned depth)
{
    step(depth - 1);
    keep(&depth);
}

SITE static void step(unsigned depth)
{
    if (depth > 1)
        descend(depth - 1);
    else
        leaf();
#if defined(__x86_64__)
    __asm__ volatile("" : : : "rbx", "r12", "r13", "r14", "r15", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("" : : : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "memory");
#endif
}

SITE static void *work(void *data)
{
    static __thread char alt_stack[ALT_STACK];
    sigaltstack(&(stack_t){.ss_sp = alt_stack, .ss_size = ALT_STACK}, NULL);
    for (uint64_t end = thread_cpu_ns() + work_ns; thread_cpu_ns() < end;)
        for (int i = 0; i < repeats; i++)
            descend(DEPTH);
    keep(data);
    return data;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } leaves[] = {{"compute", leaf_compute}, {"memcpy", leaf_memcpy}, {"snprintf", leaf_snprintf},
                  {"malloc", leaf_malloc},   {"plt", leaf_plt},       {"descent", leaf_descent},
                  {"signal", leaf_signal}};
    for (size_t i = 0; argc > 1 && i < sizeof(leaves) / sizeof(leaves[0]); i++)
        if (strcmp(argv[1], leaves[i].name) == 0)
            leaf = leaves[i].function;
    if (!leaf || argc < 4)
        return 2;
    work_ns = number_argument(argc, argv, 2, 100) * 1000000;
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_ONSTACK}, NULL);
    if (strcmp(argv[3], "main") == 0) {
        work(NULL);
        return 0;
    }
    pthread_t thread;
    return pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL);
}
