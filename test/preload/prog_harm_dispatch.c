/* CFLAGS: -O2 */
/* prog_harm_dispatch CASE [MILLISECONDS]: has its system calls, or reads of the time stamp counter,
 * raise signals, and works on. Prints the same in each run: whether the machine has it, and whether
 * a signal came. */
#include <string.h>
#include <sys/prctl.h>

#include "test/preload/program.h"

/* Linux 5.11. */
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char selector; /* 0: system calls pass */
static volatile int caught;

static void allocate(size_t size)
{
    char *block = malloc(size);
    keep(block);
    free(block);
}

SITE void before(uint64_t ms)
{
    for (uint64_t end = thread_cpu_ns() + ms * 1000000; thread_cpu_ns() < end;)
        for (int i = 0; i < 10; i++) {
            allocate(1000);
            compute();
        }
}

/* About 500 ms, in which the program makes no call of its own but for its memory. */
SITE void after(void)
{
    for (int round = 0; round < 250; round++) {
        selector = 1;
        for (int i = 0; i < 1000; i++)
            compute();
        selector = 0;
        allocate(200000);
    }
}

static void let_pass(int signal)
{
    (void)signal;
    selector = 0;
    prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    caught = 1;
}

/* Also what leaves all as it is: profiling goes on behind it. */
static long enter(const char *name)
{
    long dispatch = PR_SET_SYSCALL_USER_DISPATCH;
    if (strcmp(name, "dispatch-prctl") == 0)
        return prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector);
    if (strcmp(name, "dispatch-syscall") == 0)
        return syscall(SYS_prctl, dispatch, 1, 0, 0, &selector);
    if (strcmp(name, "tsc-prctl") == 0)
        return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (strcmp(name, "tsc-syscall") == 0)
        return syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    syscall(SYS_prctl, PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    syscall(SYS_prctl, dispatch, 0, 0, 0, 0);
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
    before(number_argument(argc, argv, 2, 100));
    signal(SIGSYS, let_pass);
    signal(SIGSEGV, let_pass);
    long result = enter(argc > 1 ? argv[1] : "");
    after();
    printf("entered: %ld\nsignals: %d\n", result, caught);
    return 0;
}
