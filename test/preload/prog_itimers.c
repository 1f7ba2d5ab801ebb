/* CFLAGS: -O2 */
/* LIBS: -lpthread -lrt */
/* prog_itimers CASE prof|real: what a program does with an interval timer that a scheduler of the
 * agent's may have. Prints what is to be the same with the agent and without. */
#define LIBAGENT_WEAK
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

enum { TEN_MS = 10000 };

static int which, number;
static char **arguments;
static uint32_t calls;

static void count(int unused)
{
    (void)unused;
    calls++;
}

SITE static void work(uint64_t ms)
{
    spin(ms * 1000000);
    keep(&ms);
}

SITE static void work_after_exec_failed(uint64_t ms)
{
    spin(ms * 1000000);
    keep(&ms);
}

static void show_timer(const char *when)
{
    struct itimerval value;
    int result = getitimer(which, &value);
    printf("%s: %d, timer %d, interval %ld\n", when, result,
           value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0,
           (long)value.it_interval.tv_usec);
}

static void show_action(const char *when)
{
    struct sigaction action;
    int result = sigaction(number, NULL, &action);
    printf("%s: %d, handler %s, flags %#x\n", when, result,
           action.sa_handler == SIG_DFL   ? "default"
           : action.sa_handler == SIG_IGN ? "ignored"
           : action.sa_handler == count   ? "own"
                                          : "another",
           (unsigned)action.sa_flags & ~0x04000000u /* the way back, libc's matter */);
}

static void arm(long first_us, long interval_us)
{
    struct itimerval value = {{0, interval_us}, {first_us / 1000000, first_us % 1000000}}, old;
    int result = setitimer(which, &value, &old);
    printf("armed: %d, before %d\n", result, old.it_value.tv_sec != 0 || old.it_value.tv_usec != 0);
}

static void wait_for_calls(uint32_t enough)
{
    while (__atomic_load_n(&calls, __ATOMIC_RELAXED) < enough)
        work(1);
}

/* What is seen of a timer that is ours, and then of the own one. */
static void see(void)
{
    work(50);
    show_timer("first");
    show_action("first");
    signal(number, SIG_DFL);
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART}, old;
    printf("sigaction: %d", sigaction(number, &action, &old));
    printf(", was default %d\n", old.sa_handler == SIG_DFL);
    show_action("with handler");
    work(200);
    printf("calls without a timer %u\n", calls);
    arm(TEN_MS, TEN_MS);
    show_timer("armed");
    wait_for_calls(5);
    arm(0, 0);
    show_timer("disarmed");
    uint32_t before = calls;
    work(200);
    printf("calls after it %u\n", calls - before);
    show_action("last");
}

/* A handler by the older function, and then the timer. */
static void use_signal(void)
{
    printf("was default %d\n", signal(number, count) == SIG_DFL);
    work(200);
    printf("calls without a timer %u\n", calls);
    arm(TEN_MS, TEN_MS);
    wait_for_calls(5);
}

static void die_of_timer(void)
{
    work(50);
    arm(TEN_MS, 0);
    work(10000);
}

static void die_of_alarm(void)
{
    work(50);
    printf("%u\n", alarm(1));
    fflush(stdout);
    for (;;)
        pause();
}

static void die_of_kill(void)
{
    work(50);
    kill(getpid(), number);
}

/* argv[3]: so many are to come. */
static void exec_chain(void)
{
    char left[24];
    unsigned long rest = strtoul(arguments[3], NULL, 10);
    if (rest == 0) {
        printf("end of the chain\n");
        return;
    }
    work(3);
    snprintf(left, sizeof(left), "%lu", rest - 1);
    execl("/proc/self/exe", arguments[0], "exec-chain", arguments[2], left, NULL);
    _exit(1);
}

static void exec_fails(void)
{
    work(50);
    for (int i = 0; i < 3; i++) {
        errno = 0;
        int result = execl("/nowhere", "nowhere", NULL);
        printf("exec: %d, errno %d\n", result, errno);
    }
    work_after_exec_failed(500);
}

/* With a timer, or an ignored signal, that the program before this one left. */
static void exec_armed(void)
{
    if (arguments[3][0] == '1') {
        arm(100 * 1000000l, 0);
        execl("/proc/self/exe", arguments[0], "exec-armed", arguments[2], "0", NULL);
        _exit(1);
    }
    show_timer("inherited");
    work(500);
}

static void exec_ignored(void)
{
    if (arguments[3][0] == '1') {
        signal(number, SIG_IGN);
        execl("/proc/self/exe", arguments[0], "exec-ignored", arguments[2], "0", NULL);
        _exit(1);
    }
    show_action("inherited");
    work(500);
    show_action("later");
}

/* Whoever started the program had all signals blocked, the agent's too. */
static void exec_blocked(void)
{
    if (arguments[3][0] == '1') {
        block_all_but(0);
        execl("/proc/self/exe", arguments[0], "exec-blocked", arguments[2], "0", NULL);
        _exit(1);
    }
    work(500);
}

/* By the system call, which no preload sees. */
static void arm_bare(long first_us, long interval_us)
{
    struct itimerval value = {{0, interval_us}, {first_us / 1000000, first_us % 1000000}};
    printf("armed: %ld\n", syscall(SYS_setitimer, which, &value, NULL));
}

static void bare_timer(void)
{
    struct itimerval value;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    work(50);
    arm_bare(300 * 1000000l, 0);
    work(500);
    long result = syscall(SYS_getitimer, which, &value);
    printf("still armed: %ld, %d\n", result, value.it_value.tv_sec > 200);
    show_action("default");
    sigaction(number, &action, NULL);
    arm_bare(TEN_MS, TEN_MS);
    wait_for_calls(5);
}

/* The timer before the handler: the agent hears of it by the handler. */
static void bare_timer_first(void)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    work(50);
    arm_bare(200000, TEN_MS);
    sigaction(number, &action, NULL);
    wait_for_calls(5);
    work(500);
}

/* A timer of another kind, and its signal waited for. */
static void start_other_timer(sigset_t *set)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    struct itimerspec time = {.it_value.tv_nsec = 300000000};
    timer_t timer;
    work(50);
    sigemptyset(set);
    sigaddset(set, number);
    sigprocmask(SIG_BLOCK, set, NULL);
    work(50); /* one of ours would be pending now */
    printf("timer: %d", timer_create(CLOCK_MONOTONIC, &event, &timer));
    printf(", %d\n", timer_settime(timer, 0, &time, NULL));
}

static void wait_for_signal(void)
{
    sigset_t set;
    siginfo_t info = {0};
    start_other_timer(&set);
    printf("waited: %d", sigwaitinfo(&set, &info));
    printf(", of a timer of the program %d\n", info.si_code == SI_TIMER);
    work(500);
}

static void read_signal(void)
{
    sigset_t set;
    struct signalfd_siginfo info = {0};
    start_other_timer(&set);
    ssize_t size = read(signalfd(-1, &set, 0), &info, sizeof(info));
    printf("read: %d, of a timer of the program %d\n", size == sizeof(info),
           info.ssi_code == SI_TIMER);
    work(500);
}

/* Off and on again from outside. */
static void toggle(void)
{
    raise(SIGUSR2);
    work(200);
    raise(SIGUSR2);
    work(500);
}

/* ---- while another thread starts and stops the agent ---- */

static bool is_over;
static uint32_t seen, wrong, silent;

static void *start_and_stop(void *unused)
{
    while (libagent_start && !__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        libagent_start(NULL);
        libagent_stop();
    }
    return unused;
}

/* What nobody has. */
static void look_beside(void)
{
    struct itimerval value;
    struct sigaction action;
    getitimer(which, &value);
    sigaction(number, NULL, &action);
    seen += value.it_interval.tv_usec != 0 || action.sa_handler != SIG_DFL;
}

static void use_beside(void)
{
    struct itimerval value = {{0, TEN_MS}, {0, TEN_MS}}, none = {0}, old;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART}, by_default = {0},
                     before;
    calls = 0;
    sigaction(number, &action, &before);
    wrong += before.sa_handler != SIG_DFL;
    for (int i = 0; i < 5; i++)
        raise(number);
    wrong += calls != 5;
    setitimer(which, &value, &old);
    wrong += old.it_value.tv_usec != 0 || old.it_interval.tv_usec != 0;
    for (int i = 0; i < 1000 && calls == 5; i++)
        spin(1000000);
    silent += calls == 5;
    getitimer(which, &old);
    wrong += old.it_interval.tv_usec < TEN_MS || old.it_interval.tv_usec >= 2 * TEN_MS;
    setitimer(which, &none, NULL);
    sigaction(number, &by_default, &before);
    wrong += before.sa_handler != count;
}

static void beside(void)
{
    pthread_t thread;
    if (libagent_stop)
        libagent_stop();
    pthread_create(&thread, NULL, start_and_stop, NULL);
    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 1000; j++)
            look_beside();
        use_beside();
        usleep(500);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    printf("seen %u, wrong %u, silent %u\n", seen, wrong, silent);
}

static void show_lines(const char *path, const char *beginning)
{
    char line[256];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, beginning, strlen(beginning)) == 0)
            printf("%s", line);
    if (file)
        fclose(file);
}

/* Handlers, masks and timers, as the kernel has them. */
static void show_signals(void)
{
    for (int i = 0; i < 3; i++) {
        work(100);
        show_lines("/proc/self/status", "SigPnd");
        show_lines("/proc/self/status", "SigBlk");
        show_lines("/proc/self/status", "SigIgn");
        show_lines("/proc/self/status", "SigCgt");
        show_lines("/proc/self/status", "Shd");
        show_lines("/proc/self/timers", "");
        show_timer("timer");
    }
}

static void wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    printf("child: %#x\n", (unsigned)status);
}

static pid_t vfork_that_execs(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execl("/nowhere", "nowhere", NULL);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    return child;
}

static void forks(void)
{
    for (int i = 0; i < 20; i++) {
        work(5);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            work(20);
            show_timer("in the child");
            fflush(stdout);
            _exit(3);
        }
        wait_for(child);
        wait_for(vfork_that_execs());
    }
    work_after_exec_failed(500);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"see", see},
    {"signal", use_signal},
    {"die-of-timer", die_of_timer},
    {"die-of-alarm", die_of_alarm},
    {"die-of-kill", die_of_kill},
    {"exec-chain", exec_chain},
    {"exec-fails", exec_fails},
    {"exec-armed", exec_armed},
    {"exec-ignored", exec_ignored},
    {"exec-blocked", exec_blocked},
    {"bare-timer", bare_timer},
    {"bare-timer-first", bare_timer_first},
    {"wait-for-signal", wait_for_signal},
    {"read-signal", read_signal},
    {"toggle", toggle},
    {"beside", beside},
    {"show-signals", show_signals},
    {"forks", forks},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    bool is_prof = strcmp(argv[2], "prof") == 0;
    arguments = argv;
    which = is_prof ? ITIMER_PROF : ITIMER_REAL;
    number = is_prof ? SIGPROF : SIGALRM;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return 2;
}
