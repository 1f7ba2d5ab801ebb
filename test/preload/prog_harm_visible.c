/* CFLAGS: -O2 */
/* LIBS: -lpthread -lm */
/* prog_harm_visible CASE: prints what a process can see of its own state, at several points of its
 * life. Prints the same in each run; what an agent may add (threads named libagent, a handler of
 * signal 32) is left out, and told in the file `ours`. */
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/preload/process_view.h"
#include "test/preload/program.h"

static char self[4096];

static void on_signal(int signal)
{
    (void)signal;
}

static void look_around(int signal, siginfo_t *info, void *context);

static const char *name_of_handler(const struct sigaction *action)
{
    return action->sa_handler == on_signal       ? "on_signal"
           : action->sa_sigaction == look_around ? "look_around"
                                                 : "unknown";
}

SITE static void work(uint64_t ms)
{
    for (uint64_t end = thread_cpu_ns() + ms * 1000000; thread_cpu_ns() < end;) {
        void *block = malloc(20000);
        keep(block);
        free(block);
        compute();
    }
    keep(&work);
}

/* In a file, which is not compared; a program that was exec'd adds a line. */
static void tell_ours(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/ours", getenv("TMPDIR"));
    FILE *file = fopen(path, "a");
    if (!file || fprintf(file, "%lu\n", ours) < 0 || fclose(file) != 0)
        exit(4);
}

/* ---- the life ---- */

static void look_around(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *interrupted = context;
    printf("signal %d, code %d, stack %d %zu\n", signal, info->si_code,
           interrupted->uc_stack.ss_flags, interrupted->uc_stack.ss_size);
    print_set("blocked when it came", &interrupted->uc_sigmask);
    print_all("in a handler");
    work(200);
    print_all("in a handler after work");
}

static void set_alternate_stack(void)
{
    static __thread char room[131072];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
    sigaltstack(&stack, NULL);
}

static void set_everything(void)
{
    set_alternate_stack();
    struct sigaction action = {.sa_sigaction = look_around,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGUSR1, &action, NULL);
    action = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_NOCLDSTOP | SA_NODEFER};
    sigaction(SIGCHLD, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    kill(getpid(), SIGTSTP);

    struct itimerval far = {{500, 1000}, {1000, 0}};
    setitimer(ITIMER_REAL, &far, NULL);
    setitimer(ITIMER_VIRTUAL, &far, NULL);
    setitimer(ITIMER_PROF, &far, NULL);
    setenv("ADDED", "a value", 1);
    putenv((char *)"PUT=another");
    unsetenv("HOME");
    umask(027);
    mkdir("below", 0700);
    int ends[2];
    if (chdir("below") != 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0 || dup2(ends[0], 100) < 0)
        exit(1);
    close(0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){512, 1024});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 4096});
    prctl(PR_SET_TIMERSLACK, 70000);
}

/* pthread_create blocks all signals for a moment, which the thread is not to see. */
static pthread_barrier_t created;

static void in_thread(void *(*routine)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&created, NULL, 2);
    pthread_create(&thread, NULL, routine, NULL);
    pthread_barrier_wait(&created);
    pthread_join(thread, NULL);
}

static void *live_in_thread(void *data)
{
    pthread_barrier_wait(&created);
    pthread_setname_np(pthread_self(), "a thread");
    set_alternate_stack();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigaddset(&set, SIGRTMAX);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    print_all("in a thread");
    work(150);
    print_all("in a thread after work");
    return data;
}

/* errno and the state of the floating-point unit, while allocations and ticks are sampled. */
static void watch_registers(uint64_t ms)
{
    errno = 77;
    feclearexcept(FE_ALL_EXCEPT);
    unsigned long changes = 0;
    for (uint64_t end = thread_cpu_ns() + ms * 1000000; thread_cpu_ns() < end;) {
        void *block = malloc(3000);
        keep(block);
        changes += errno != 77;
        free(block);
        changes += errno != 77;
        compute();
    }
    printf("errno changed %lu times, raised %#x\n", changes, (unsigned)fetestexcept(FE_ALL_EXCEPT));
    /* Traps of the program's own arithmetic, with which no allocation may meet. */
    fesetround(FE_DOWNWARD);
    feenableexcept(FE_ALL_EXCEPT);
    work(ms);
    printf("traps %#x, rounding %#x\n", (unsigned)fegetexcept(), (unsigned)fegetround());
    fedisableexcept(FE_ALL_EXCEPT);
    fesetround(FE_TONEAREST);
}

static void wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    printf("child: %#x\n", (unsigned)status);
}

static void in_child(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        print_all("in a child");
        work(150);
        print_all("in a child after work");
        exit(3);
    }
    wait_for(pid);
}

static char *arguments[] = {self, (char *)"look", NULL};

static void live(void)
{
    printf("raised before main %#x\n", (unsigned)fetestexcept(FE_ALL_EXCEPT));
    print_all("at first");
    set_everything();
    print_all("all set");
    in_thread(live_in_thread);
    watch_registers(300);
    work(400);
    print_all("after work");
    in_thread(live_in_thread);
    raise(SIGUSR1);
    in_child();
    print_all("before exec");
    tell_ours();
    execv(self, arguments);
}

static void look(void)
{
    print_all("a new program");
    work(50);
    print_all("a new program after work");
}

/* ---- what only the kernel would show ---- */

static void block_and_burn(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    work(300);
    print_all("all is blocked");
}

static void *block_in_thread(void *data)
{
    pthread_barrier_wait(&created);
    pthread_setname_np(pthread_self(), "blocker");
    block_and_burn();
    return data;
}

static void block(void)
{
    in_thread(block_in_thread);
    block_and_burn();
}

static void spawn_and_look(void)
{
    pid_t pid = 0;
    fflush(stdout);
    int error = posix_spawn(&pid, self, NULL, NULL, arguments, environ);
    wait_for(pid); /* it prints, too */
    printf("posix_spawn %d\n", error);
}

static void ignore(void)
{
    signal(SIGPROF, SIG_IGN);
    work(100);
    print_all("ignored");
    in_child();
    spawn_and_look();
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0) {
        execv(self, arguments);
        _exit(1);
    }
    wait_for(pid);
    execv(self, arguments);
}

/* The other way round: a program that is started with the signal ignored. */
static void ignore_no_more(void)
{
    print_all("at first");
    signal(SIGPROF, SIG_DFL);
    work(100);
    print_all("not ignored");
    in_child();
    execv(self, arguments);
}

static void start_ignored(void)
{
    signal(SIGPROF, SIG_IGN);
    arguments[1] = (char *)"not-ignored";
    execv(self, arguments);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {{"live", live},
                 {"look", look},
                 {"block", block},
                 {"ignore", ignore},
                 {"start-ignored", start_ignored},
                 {"not-ignored", ignore_no_more}};
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0)
        return 2;
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].function();
            tell_ours();
            return 0;
        }
    return 2;
}
