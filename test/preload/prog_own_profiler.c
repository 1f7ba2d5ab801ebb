/* CFLAGS: -O2 */
/* prog_own_profiler prof|virtual TICKS: computes, and has a profiler of its own: an interval timer
 * of CPU time, whose handler looks where the thread was. Prints how many of TICKS were elsewhere
 * than in this program. */
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "test/preload/program.h"

extern const char __executable_start[], etext[];
static unsigned ticks, elsewhere;

static void look(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
#if defined(__x86_64__)
    uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
    ticks++;
    elsewhere += pc < (uintptr_t)__executable_start || pc >= (uintptr_t)etext;
}

int main(int argc, char **argv)
{
    bool is_virtual = argc > 1 && strcmp(argv[1], "virtual") == 0;
    unsigned wanted = (unsigned)number_argument(argc, argv, 2, 100);
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
    const struct itimerval each = {{0, 1000}, {0, 1000}};
    if (sigaction(is_virtual ? SIGVTALRM : SIGPROF, &action, NULL) != 0 ||
        setitimer(is_virtual ? ITIMER_VIRTUAL : ITIMER_PROF, &each, NULL) != 0)
        return 1;
    while (__atomic_load_n(&ticks, __ATOMIC_RELAXED) < wanted)
        compute();
    printf("elsewhere %u\n", elsewhere);
    return 0;
}
