/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_fork CASE: processes made while the agent is at work, and what they do to the profiles
 * of their parent. Prints figures for the suite. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

extern char **environ;

static char self[4096];
static bool stop;

static void say(const char *key, uint64_t value)
{
    printf("%s %lu\n", key, (unsigned long)value);
}

static void say_process_clock(const char *key)
{
    say(key, clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

static int status_of(pid_t pid)
{
    int status = -1;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return status;
}

/* `count` allocations, which all go to the caller. */
static inline __attribute__((always_inline)) void allocate(size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        void *block = malloc(size);
        keep(block);
        free(block);
    }
}

SITE static void site_churn(void)
{
    allocate(1000, 500);
    allocate(1, 300000);
    for (int i = 0; i < 100; i++)
        compute();
    keep(&site_churn);
}

static void *churn(void *data)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        site_churn();
    return data;
}

static void *churn_once(void *data)
{
    site_churn();
    return data;
}

/* ---- many at once ---- */

enum { FORKERS = 4, FORKS = 250, CHURNERS = 2, EXITS = 4 };

/* A lock that was inherited held keeps the child until the alarm ends it. */
static void live_as_child(int number)
{
    alarm(60);
    site_churn();
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn_once, NULL) != 0 || pthread_join(thread, NULL) != 0)
        _exit(1);
    if (number % EXITS == 0)
        exit(0);
    _exit(0);
}

static void *fork_often(void *failures)
{
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            live_as_child(i);
        if (status_of(pid) != 0)
            __atomic_fetch_add((int *)failures, 1, __ATOMIC_RELAXED);
    }
    return failures;
}

static void among_threads(void)
{
    pthread_t forkers[FORKERS], churners[CHURNERS];
    int failures = 0;
    for (int i = 0; i < CHURNERS; i++)
        pthread_create(&churners[i], NULL, churn, NULL);
    for (int i = 0; i < FORKERS; i++)
        pthread_create(&forkers[i], NULL, fork_often, &failures);
    for (int i = 0; i < FORKERS; i++)
        pthread_join(forkers[i], NULL);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(churners[i], NULL);
    say("children", FORKERS * FORKS);
    say("failures", (uint64_t)failures);
    say("exits", FORKERS * ((FORKS + EXITS - 1) / EXITS));
    say_process_clock("process");
}

/* ---- a child that lives on ---- */

SITE static void site_parent(uint64_t ms)
{
    allocate(1000, 100000);
    spin(ms * 1000000);
    keep(&site_parent);
}

SITE static void site_child(uint64_t ms)
{
    allocate(1000, 100000);
    spin(ms * 1000000);
    keep(&site_child);
}

SITE static void *site_child_thread(void *data)
{
    spin(400000000);
    keep(&site_child_thread);
    return data;
}

static void *fork_one_that_lives_on(void *data)
{
    say("born", clock_ns(CLOCK_REALTIME));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, site_child_thread, NULL);
        site_child(1500);
        pthread_join(thread, NULL);
        say("child-pid", (uint64_t)getpid());
        say("ended", clock_ns(CLOCK_REALTIME));
        say_process_clock("child");
        exit(0);
    }
    say("status", (uint64_t)status_of(pid));
    return data;
}

static void child_lives_on(void)
{
    site_parent(1200); /* after a period of 1 s the agent has its threads */
    pthread_t thread;
    pthread_create(&thread, NULL, fork_one_that_lives_on, NULL);
    pthread_join(thread, NULL);
    site_parent(100);
    say_process_clock("process");
}

/* ---- children on the parent's memory, and those that libc does not announce ---- */

enum { ROUNDS = 20, OBJECTS = 100 };

SITE static void site_shared(void)
{
    allocate(OBJECTS, 20000);
    allocate(1, 300000);
    for (int i = 0; i < 500; i++)
        compute();
    keep(&site_shared);
}

static void on_signal(int signal)
{
    (void)signal;
}

/* What a child may do before exec, and more. */
static void use_everything(void)
{
    site_shared();
    signal(SIGPROF, SIG_IGN);
    signal(SIGUSR1, SIG_DFL);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGPROF, &action, NULL);
    signal(SIGPROF, SIG_DFL);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    execl("/no/such", "x", (char *)NULL);
    site_shared();
}

static void print_signals(void)
{
    struct sigaction action;
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int signal = 1; signal < NSIG; signal++) {
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("handled %d: %d, flags %#x\n", signal, action.sa_handler == on_signal,
                   (unsigned)action.sa_flags);
        if (sigismember(&blocked, signal) == 1)
            printf("blocked %d\n", signal);
    }
}

static int on_own_stack(void *data)
{
    use_everything();
    _exit(data ? 4 : 5);
}

static int failures;

static void expect_status(pid_t pid, int code)
{
    int status = status_of(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        failures++;
}

static void spawn_shell(void)
{
    char *arguments[] = {"sh", "-c", "exit 6", NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) != 0)
        failures++;
    else
        expect_status(pid, 6);
}

/* These have a copy of the memory; libc's handlers of fork are not called. */
static void live_unannounced(int code)
{
    use_everything();
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn_once, NULL) != 0 || pthread_join(thread, NULL) != 0)
        _exit(1);
    exit(code);
}

static void unusual_children(void)
{
    static char stack[65536];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    print_signals();
    for (volatile int i = 0; i < ROUNDS; i++) {
        site_parent(10);
        fflush(stdout);
        pid_t pid = vfork();
        if (pid == 0) {
            use_everything();
            _exit(3);
        }
        expect_status(pid, 3);
        site_parent(10);
        pid = vfork();
        if (pid == 0) {
            site_shared();
            execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
            _exit(1);
        }
        expect_status(pid, 7);
        site_parent(10);
        expect_status(
            clone(on_own_stack, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, stack), 4);
        spawn_shell();
        site_parent(10);
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0)
            live_unannounced(8);
        expect_status(pid, 8);
        site_parent(10);
#if __GLIBC_PREREQ(2, 34)
        pid = _Fork();
        if (pid == 0)
            live_unannounced(9);
        expect_status(pid, 9);
        site_parent(10);
#endif
    }
    print_signals();
    say("failures", (uint64_t)failures);
    say("objects", 1000 * ROUNDS * (__GLIBC_PREREQ(2, 34) ? 6 : 5));
    say_process_clock("process");
}

/* As pid 1 of a namespace, makes a child past libc that is pid 1 of another. The agent's threads
 * are waited for, where it is preloaded: they are not in the child, who may wait for none. */
static int first_of_two(void)
{
    site_parent(1200);
    while (getenv("LD_PRELOAD") && syscall(SYS_tgkill, 1, 2, 0) != 0)
        site_parent(50);
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        if (getpid() != 1 || setuid(getuid()) != 0)
            _exit(1);
        site_churn();
        exit(5);
    }
    expect_status(pid, 5);
    return failures;
}

static void child_with_its_parents_pid(void)
{
    /* Who is root already needs no namespace of users, and has all of them. */
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0)
        exit(first_of_two());
    say("status", (uint64_t)status_of(pid));
}

/* What children on its memory allocate is not the parent's: its own allocations are as likely to
 * be sampled as ever. */
static void spent_gaps(void)
{
    enum { CHILDREN = 400, OWN = 100, SIZE = 64 };
    for (volatile int i = 0; i < CHILDREN; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            allocate(20000, 100);
            _exit(0);
        }
        if (status_of(pid) != 0)
            exit(1);
        allocate(OWN, SIZE);
    }
    say("bytes", CHILDREN * OWN * SIZE);
}

/* ---- exec ---- */

SITE static void site_before(void)
{
    allocate(1000, 100000);
    spin(600000000);
    keep(&site_before);
}

SITE static void site_after(void)
{
    allocate(1000, 100000);
    spin(600000000);
    keep(&site_after);
}

static void *exec_with_a_tick_pending(void *data)
{
    site_before();
    block_all_but(0);
    spin(60000000);
    char clock[24];
    snprintf(clock, sizeof(clock), "%lu", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    execl(self, self, "after", clock, (char *)NULL);
    return data;
}

static void exec_from_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exec_with_a_tick_pending, NULL);
    for (;;)
        pause();
}

static void after_exec(uint64_t clock_before)
{
    block_all_but(~(uint64_t)0); /* what was left pending would come now */
    site_after();
    say("before", clock_before);
    say_process_clock("process");
}

/* ---- handlers of a library's that were registered before the agent began ---- */

static void fork_with_handlers(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    printf("status %d\n", status_of(pid));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {{"among", among_threads},
                 {"lives-on", child_lives_on},
                 {"unusual", unusual_children},
                 {"gaps", spent_gaps},
                 {"exec", exec_from_thread},
                 {"handlers", fork_with_handlers},
                 {"same-pid", child_with_its_parents_pid}};
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0)
        return 2;
    if (argc > 2 && strcmp(argv[1], "after") == 0) {
        after_exec(number_argument(argc, argv, 2, 0));
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].function();
            return 0;
        }
    return 2;
}
