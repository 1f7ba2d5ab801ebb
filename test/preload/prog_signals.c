/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_signals CASE: what a program that uses SIGPROF, or all signals, sees of them. Prints the
 * same in each run, but for `count` and `eintr`. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>

#include "test/preload/program.h"

static volatile sig_atomic_t calls, last_code, last_value, last_blocked, on_other_stack;
static char other_stack[65536];

static void count(int signal)
{
    (void)signal;
    calls = calls + 1;
}

static void look(int signal, siginfo_t *info, void *context)
{
    sigset_t blocked;
    char here;
    (void)context;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    calls = calls + 1;
    last_code = info->si_code;
    last_value = info->si_value.sival_int;
    last_blocked = sigismember(&blocked, signal) * 2 + sigismember(&blocked, SIGUSR1);
    on_other_stack = &here >= other_stack && &here < other_stack + sizeof(other_stack);
}

static void print_action(const char *when)
{
    struct sigaction action;
    sigaction(SIGPROF, NULL, &action);
    const char *handler = action.sa_handler == SIG_DFL   ? "default"
                          : action.sa_handler == SIG_IGN ? "ignored"
                          : action.sa_handler == count   ? "count"
                          : action.sa_sigaction == look  ? "look"
                                                         : "another";
    int masked = 0;
    for (int signal = 1; signal < NSIG; signal++)
        masked += sigismember(&action.sa_mask, signal) == 1;
    printf("%s: %s, flags %#x, %d masked\n", when, handler, (unsigned)action.sa_flags & 0x7fffffff,
           masked);
}

/* The program's own profiler, 100 times a second. */
static void own_timer(void)
{
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval interval = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_PROF, &interval, NULL);
    spin(3000000000);
    memset(&interval, 0, sizeof(interval));
    setitimer(ITIMER_PROF, &interval, NULL);
    printf("count %d\n", (int)calls);
    printf("process %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    printf("code-is-kernel %d\n", last_code == SI_KERNEL);
}

static void dispositions(void)
{
    print_action("at first");
    printf("signal() gave default: %d\n", signal(SIGPROF, count) == SIG_DFL);
    print_action("after signal");
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_NODEFER}, before;
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGPROF, &action, &before);
    printf("sigaction gave count: %d\n", before.sa_handler == count);
    print_action("after sigaction");
    spin(60000000);
    printf("calls %d\n", (int)calls);
    printf("signal() gave look: %d\n", (void *)signal(SIGPROF, SIG_IGN) == (void *)look);
    print_action("ignored");
    spin(60000000);
    raise(SIGPROF);
    printf("signal() gave ignored: %d\n", signal(SIGPROF, SIG_DFL) == SIG_IGN);
    print_action("default again");
    spin(60000000);
    printf("bad signal %d", sigaction(NSIG + 1, &action, NULL));
    printf(" %d\n", errno);
    printf("SIGKILL %d", sigaction(SIGKILL, &action, NULL));
    printf(" %d\n", errno);
}

static void told(const char *what)
{
    printf("%s: %d calls, code %d, value %d, blocked %d, other stack %d\n", what, (int)calls,
           (int)last_code, (int)last_value, (int)last_blocked, (int)on_other_stack);
    last_code = last_value = last_blocked = on_other_stack = 0;
}

/* What is sent to SIGPROF by others is the program's. */
static void sent_by_others(void)
{
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGPROF, &action, NULL);
    raise(SIGPROF);
    told("raise");
    kill(getpid(), SIGPROF);
    told("kill");
    sigqueue(getpid(), SIGPROF, (union sigval){.sival_int = 77});
    told("sigqueue");
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    event.sigev_value.sival_int = 78;
    timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer);
    struct itimerspec once = {.it_value = {0, 30000000}};
    timer_settime(timer, 0, &once, NULL);
    spin(60000000);
    told("timer of the program");
    timer_delete(timer);
    sigaltstack(&(stack_t){.ss_sp = other_stack, .ss_size = sizeof(other_stack)}, NULL);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGPROF, &action, NULL);
    raise(SIGPROF);
    told("on another stack, not deferred");
    action.sa_flags = (int)((unsigned)SA_SIGINFO | SA_RESETHAND);
    sigaction(SIGPROF, &action, NULL);
    raise(SIGPROF);
    told("reset");
    print_action("after reset");
    spin(60000000);
}

static void default_kills(void)
{
    spin(60000000);
    fflush(stdout);
    raise(SIGPROF);
    printf("lives on\n");
}

static void reset_then_default_kills(void)
{
    signal(SIGPROF, count);
    spin(60000000);
    signal(SIGPROF, SIG_DFL);
    default_kills();
}

static void *reset_all_in(void *data)
{
    for (int i = 1; i < NSIG; i++) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        if (*(const bool *)data)
            sigaction(i, &action, NULL);
        else
            signal(i, SIG_DFL);
    }
    spin(400000000);
    return NULL;
}

static void reset_all(void)
{
    static bool by_signal = false, by_sigaction = true;
    spin(50000000);
    reset_all_in(&by_signal);
    reset_all_in(&by_sigaction);
    pthread_t thread;
    pthread_create(&thread, NULL, reset_all_in, &by_sigaction);
    pthread_join(thread, NULL);
    printf("alive\n");
}

static volatile bool stop;

static void *burn(void *data)
{
    while (!stop) {
        free(malloc(1000));
        compute();
    }
    return data;
}

/* Everything is blocked in all threads; one takes signals as they come. */
static void wait_for_all(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, burn, NULL);
    for (int i = 0; i < 30; i++) {
        spin(20000000);
        int wanted = i % 3 == 0 ? SIGUSR1 : i % 3 == 1 ? SIGPROF : SIGRTMIN + 3, got = 0;
        kill(getpid(), wanted);
        sigwait(&all, &got);
        if (got != wanted)
            printf("round %d: sigwait gave %d, not %d\n", i, got, wanted);
        spin(20000000);
        siginfo_t info;
        struct timespec none = {0, 0};
        got = sigtimedwait(&all, &info, &none);
        if (got >= 0 || errno != EAGAIN)
            printf("round %d: sigtimedwait gave %d\n", i, got);
        sigset_t pending;
        sigpending(&pending);
        for (int signal = 1; signal < NSIG; signal++)
            if (sigismember(&pending, signal) == 1)
                printf("round %d: %d is pending\n", i, signal);
    }
    struct signalfd_siginfo read_info;
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    spin(40000000);
    if (read(fd, &read_info, sizeof(read_info)) >= 0)
        printf("signalfd gave %u\n", read_info.ssi_signo);
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("done\n");
}

/* Waits that SA_RESTART does not help, while CPU time runs in the kernel too: it looks at many
 * descriptors before it waits. */
static void interrupted_waits(void)
{
    enum { DESCRIPTORS = 900 };
    struct pollfd many[DESCRIPTORS];
    unsigned long waits = 0, interrupted = 0;
    int poller = epoll_create1(0), ends[2];
    struct epoll_event events[1];
    struct timespec nap = {0, 50000};
    if (pipe(ends) != 0)
        exit(1);
    for (int i = 0; i < DESCRIPTORS; i++)
        many[i] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + 4000000000u; clock_ns(CLOCK_MONOTONIC) < end;
         waits += 3) {
        for (int i = 0; i < 500; i++)
            compute();
        interrupted += poll(many, DESCRIPTORS, 1) < 0 && errno == EINTR;
        interrupted += epoll_wait(poller, events, 1, 1) < 0 && errno == EINTR;
        interrupted += nanosleep(&nap, NULL) < 0 && errno == EINTR;
    }
    printf("waits %lu\neintr %lu\n", waits, interrupted);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {{"own-timer", own_timer},
                 {"dispositions", dispositions},
                 {"sent", sent_by_others},
                 {"default", default_kills},
                 {"reset-default", reset_then_default_kills},
                 {"reset-all", reset_all},
                 {"wait", wait_for_all},
                 {"interrupted", interrupted_waits}};
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].function();
            return 0;
        }
    return 2;
}
