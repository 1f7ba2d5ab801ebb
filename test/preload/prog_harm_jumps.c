/* CFLAGS: -O2 */
/* LIBS: -lpthread -Wl,-z,now */
/* prog_harm_jumps CASE: handlers that leave by a jump, from wherever the signal came.
 *   siglongjmp, longjmp: out of the program's own code, for a signal that another thread sends at
 *     random moments; with the mask restored, or the one signal unblocked.
 *   prof: the same, for the program's own SIGPROF timer, at every third tick: a jump at one takes
 *     the sample of that tick with it.
 *   calls: out of calls that may be jumped out of: those that are safe in handlers.
 *   alternate: of a thread whose handler has a small stack of its own, which computes there, and
 *     whose jump leaves the mask as it is; is the thread cancelled afterwards?
 * Prints the same in each run, but for "jumps". */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include "test/preload/program.h"

static const uint64_t work_ns = 1000000000;
static sigjmp_buf back;
static volatile bool armed, stop, restores_mask = true;
static uint64_t end_ns;
static pthread_t target;

static void jump(int signal)
{
    (void)signal;
    armed = false;
    if (restores_mask)
        siglongjmp(back, 1);
    longjmp(back, 1);
}

static void set_mask(int how, int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(how, &set, NULL);
}

/* Waits until the target can jump, and then for up to some 25 us. */
static void *send(void *data)
{
    uint64_t seed = 5;
    while (!stop) {
        if (!armed)
            continue;
        for (volatile uint64_t i = next_random(&seed) % 10000; i; i--)
            ;
        armed = false;
        pthread_kill(target, SIGUSR1);
        while (!armed && !stop)
            ;
    }
    return data;
}

SITE static void computing(void)
{
    while (thread_cpu_ns() < end_ns)
        for (int i = 0; i < 100; i++)
            compute();
}

static void count(int signal)
{
    (void)signal;
}

/* All that the agent stands before, of what signal-safety(7) lists. */
SITE static void calling(void)
{
    struct sigaction action = {.sa_handler = count}, before;
    sigset_t set;
    struct timespec none = {0, 0};
    while (thread_cpu_ns() < end_ns) {
        for (int number = 0; number < 2; number++) {
            static const int signals[] = {SIGPROF, SIGUSR2};
            sigaction(signals[number], &action, &before);
            sigaction(signals[number], &before, NULL);
            signal(signals[number], count);
            signal(signals[number], SIG_DFL);
        }
        sigpending(&set);
        sigemptyset(&set);
        pselect(0, NULL, NULL, NULL, &none, &set);
        compute();
    }
}

static void print_state(void)
{
    static const int signals[] = {SIGPROF, SIGUSR2};
    char line[256];
    for (int i = 0; i < 2; i++) {
        struct sigaction action;
        struct sigaction set = {.sa_handler = count, .sa_flags = SA_NODEFER};
        sigaction(signals[i], &set, NULL);
        sigaction(signals[i], NULL, &action);
        printf("own handler is shown: %d\n", action.sa_handler == count);
        signal(signals[i], SIG_DFL);
    }
    FILE *status = fopen("/proc/thread-self/status", "r");
    while (status && fgets(line, sizeof(line), status))
        if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigPnd", 6) == 0)
            fputs(line, stdout);
    if (status)
        fclose(status);
}

static void jump_out_of(void (*work)(void), bool by_sender)
{
    static volatile unsigned long jumps;
    pthread_t sender;
    end_ns = thread_cpu_ns() + work_ns;
    target = pthread_self();
    if (by_sender)
        pthread_create(&sender, NULL, send, NULL);
    if (sigsetjmp(back, restores_mask) != 0) {
        jumps = jumps + 1;
        if (!restores_mask)
            set_mask(SIG_UNBLOCK, SIGUSR1);
    }
    armed = true;
    work();
    set_mask(SIG_BLOCK, SIGUSR1);
    stop = true;
    if (by_sender)
        pthread_join(sender, NULL);
    signal(SIGUSR1, SIG_IGN);
    set_mask(SIG_UNBLOCK, SIGUSR1);
    fprintf(stderr, "jumps %lu\n", jumps);
    printf("many jumps: %d\n", jumps >= 10);
}

/* ---- off an alternate stack ---- */

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum { BELOW = 16384, ROOM = 1536, FAULTS = 40, PATTERN = 0x5a };

static jmp_buf to_thread;
static int *volatile nowhere;
static char *stack_low;
static int quiet[2];
static volatile bool waits;

/* Takes the stack but for the last ROOM bytes, and the time of a tick or two of the kernel's: one
 * is pending. */
static void on_fault(int signal)
{
    (void)signal;
    char *here = __builtin_frame_address(0);
    keep(__builtin_alloca((size_t)(here - stack_low) - ROOM));
    for (int i = 0; i < 4000; i++)
        compute();
    longjmp(to_thread, 1);
}

static void *fault_and_wait(void *data)
{
    static volatile int faults;
    sigaltstack(data, NULL);
    setjmp(to_thread);
    if (faults++ < FAULTS)
        *nowhere = 1;
    print_state();
    end_ns = thread_cpu_ns() + work_ns;
    computing();
    waits = true;
    char byte;
    (void)!read(quiet[0], &byte, 1);
    return data;
}

static void jump_off_alternate_stack(void)
{
    uint64_t least = getauxval(AT_MINSIGSTKSZ);
    size_t size = (least ? least : MINSIGSTKSZ) + 2 * ROOM;
    unsigned char *memory = malloc(BELOW + size);
    stack_low = (char *)memory + BELOW;
    memset(memory, PATTERN, BELOW);
    stack_t stack = {.ss_sp = memory + BELOW, .ss_size = size};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    pthread_t thread;
    void *result;
    if (pipe(quiet) != 0 || pthread_create(&thread, NULL, fault_and_wait, &stack) != 0)
        exit(2);
    while (!waits)
        usleep(1000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    size_t touched = 0;
    for (size_t i = 0; i < BELOW; i++)
        touched += memory[i] != PATTERN;
    printf("below the stack: %zu\n", touched);
    fprintf(stderr, "jumps %d\n", FAULTS);
    printf("many jumps: 1\n");
    free(memory);
}

/* No signal comes here: whoever was left inside the agent by a jump has no sample here. */
SITE static void afterwards(void)
{
    for (uint64_t end = thread_cpu_ns() + 2 * work_ns; thread_cpu_ns() < end;)
        compute();
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    struct itimerval interval = {{0, 12000}, {0, 12000}}, none = {{0, 0}, {0, 0}};
    if (strcmp(name, "alternate") == 0) {
        jump_off_alternate_stack();
        return 0;
    }
    restores_mask = strcmp(name, "longjmp") != 0;
    signal(SIGUSR1, jump);
    if (strcmp(name, "prof") == 0) {
        signal(SIGPROF, jump);
        setitimer(ITIMER_PROF, &interval, NULL);
        jump_out_of(computing, false);
        setitimer(ITIMER_PROF, &none, NULL);
        signal(SIGPROF, SIG_IGN);
    } else {
        jump_out_of(strcmp(name, "calls") == 0 ? calling : computing, true);
    }
    print_state();
    afterwards();
    return 0;
}
