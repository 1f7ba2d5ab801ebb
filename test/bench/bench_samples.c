/* bench_samples.c: what one sample costs, 50 of 200 distinct functions deep, the tables and the
 * unwinder's cache warm. Prints nanoseconds of CPU time for a descent with what is at its bottom,
 * and how many descents there were:
 *
 *     bench_samples empty      a signal to an empty handler of this program
 *     bench_samples signal     the same signal to whatever handler a preload has set
 *     bench_samples timer      the signal that libagent's timer sends, with the timer's value, both
 *                              read from /proc/self/timers
 *     bench_samples malloc     malloc(1024) and free
 *     bench_samples nothing    neither
 *
 * The signal is sent by rt_tgsigqueueinfo, which lets a process send itself any si_code: so a
 * handler is measured from its entry to its return as often as one likes, while the timers follow
 * the kernel's tick. The difference to `empty` is what the handler does. A sampled malloc less one
 * that is not sampled, by the preload's interval, is a sample's cost there. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FUNCTIONS = 200, DEPTH = 50, STEP = 7 };

typedef void (*descent)(int depth);
static const descent functions[FUNCTIONS];
static void (*at_bottom)(void);
static siginfo_t sent;
static pid_t pid;

/* The code after the call keeps the frame; frames differ in size, so in their unwind rules. */
#define FUNCTION(n)                                                                                \
    static __attribute__((noinline)) void function_##n(int depth)                                  \
    {                                                                                              \
        volatile char pad[16 + 8 * ((1##n) % 23)];                                                 \
        pad[0] = (char)depth;                                                                      \
        if (depth == 1)                                                                            \
            at_bottom();                                                                           \
        else                                                                                       \
            functions[((1##n) % FUNCTIONS + STEP) % FUNCTIONS](depth - 1);                         \
        pad[1] = pad[0];                                                                           \
    }
/* Numbers are three digits behind a 1, so that 0 and 8 in front do not make them octal. */
#define TEN(x, p) x(p##0) x(p##1) x(p##2) x(p##3) x(p##4) x(p##5) x(p##6) x(p##7) x(p##8) x(p##9)
#define HUNDRED(x, p)                                                                              \
    TEN(x, p##0)                                                                                   \
    TEN(x, p##1)                                                                                   \
    TEN(x, p##2)                                                                                   \
    TEN(x, p##3) TEN(x, p##4) TEN(x, p##5) TEN(x, p##6) TEN(x, p##7) TEN(x, p##8) TEN(x, p##9)
#define ADDRESS(n) function_##n,
HUNDRED(FUNCTION, 0)
HUNDRED(FUNCTION, 1)
static const descent functions[FUNCTIONS] = {HUNDRED(ADDRESS, 0) HUNDRED(ADDRESS, 1)};

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* From two places in turn: two samples at one are a system call that is perhaps begun anew, which
 * the agent looks into, and which real samples rarely are. */
static void send_signal(void)
{
    static bool elsewhere;
    long result;
    elsewhere = !elsewhere;
#if defined(__x86_64__)
    if (elsewhere) {
        register const void *info __asm__("r10") = &sent;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_rt_tgsigqueueinfo), "D"(pid), "S"(pid), "d"(sent.si_signo),
                           "r"(info)
                         : "rcx", "r11", "memory");
    } else
#endif
        result = syscall(SYS_rt_tgsigqueueinfo, pid, pid, sent.si_signo, &sent);
    if (result != 0)
        exit(1);
}

static void do_nothing(void) {}

static void allocate(void)
{
    void *block = malloc(1024);
    __asm__ volatile("" : "+r"(block) : : "memory");
    free(block);
}

static void empty_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
}

/* 1: the first timer of the process. */
static int find_timer(void)
{
    FILE *timers = fopen("/proc/self/timers", "r");
    int id, found = 0;
    if (timers) {
        found = fscanf(timers, "ID: %d signal: %d/%p", &id, &sent.si_signo, &sent.si_ptr) == 3;
        fclose(timers);
    }
    return found;
}

static size_t round_of_descents(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        functions[i](DEPTH);
    return FUNCTIONS;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    pid = getpid();
    sent.si_signo = SIGPROF;
    sent.si_code = SI_TIMER;
    at_bottom = send_signal;
    if (strcmp(what, "empty") == 0) {
        struct sigaction action = {.sa_sigaction = empty_handler,
                                   .sa_flags = SA_SIGINFO | SA_RESTART};
        sigaction(SIGPROF, &action, NULL);
    } else if (strcmp(what, "timer") == 0) {
        if (!find_timer())
            return 1;
    } else if (strcmp(what, "malloc") == 0) {
        at_bottom = allocate;
    } else if (strcmp(what, "nothing") == 0) {
        at_bottom = do_nothing;
    } else if (strcmp(what, "signal") != 0) {
        return 2;
    }
    size_t warming = round_of_descents(), descents = 0;
    double start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    double end = now_ns(CLOCK_MONOTONIC) + 0.25e9;
    while (now_ns(CLOCK_MONOTONIC) < end)
        descents += round_of_descents();
    double ns = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (double)descents;
    printf("%.3f %zu\n", ns, warming + descents);
    return 0;
}
