/* CFLAGS: -O2 */
/* LIBS: -ldl */
/* prog_harm_handlers CASE [SEED]: handlers that do what they may (fork, wait, exit), waits that put
 * a mask in force for their time, handlers on alternate stacks that have just room for them.
 * Prints the same in each run. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/preload/program.h"

static uint64_t seed;
static volatile sig_atomic_t calls, last_code, failures;

static void set_handler(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

/* ---- handlers while the list of objects changes ---- */

/* One SIGALRM, in 1 to `limit` us. */
static void arm(uint32_t limit)
{
    uint64_t us = 1 + next_random(&seed) % limit;
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, (suseconds_t)us}}, NULL);
}

/* What stays open: the loader has nothing to map and to unmap, nor destructors to call, whose
 * lock in libc exit would wait for. */
static void open_and_close(void)
{
    void *object = dlopen("libm.so.6", RTLD_NOW);
    if (!object || dlclose(object) != 0)
        failures = failures + 1;
}

static void keep_open(void)
{
    keep(dlopen("libm.so.6", RTLD_NOW));
}

static void fork_and_wait(int signal)
{
    (void)signal;
    int before = errno, status;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 7 << 8)
        failures = failures + 1;
    calls = calls + 1;
    errno = before;
}

/* The moment of each fork is another one in a call of ~100 us. */
static void fork_in_handler(void)
{
    keep_open();
    set_handler(SIGALRM, fork_and_wait, 0);
    while (calls < 1000) {
        arm(150);
        open_and_close();
    }
    signal(SIGALRM, SIG_IGN);
    printf("failures %d\n", (int)failures);
}

/* The code of libc and the loader: exit waits for itself where it interrupts their mutexes in the
 * middle of a lock or unlock. */
struct code {
    uintptr_t begin, end;
};
static struct code libc_code[8];
static size_t libc_code_count;

/* A walk over the objects may be interrupted: exit does not ask for its lock. */
static struct code walk_code;

static bool has(const struct code *code, uintptr_t pc)
{
    return pc >= code->begin && pc < code->end;
}

static void find_walk_code(void)
{
    void *walk = dlsym(RTLD_DEFAULT, "dl_iterate_phdr");
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    if (!walk || !dladdr1(walk, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        exit(1);
    walk_code = (struct code){(uintptr_t)walk, (uintptr_t)walk + symbol->st_size};
}

static int note_libc_code(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!strstr(object->dlpi_name, "/libc.so.") && !strstr(object->dlpi_name, "/ld-linux"))
        return 0;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        uintptr_t begin = object->dlpi_addr + segment->p_vaddr;
        libc_code[libc_code_count++] = (struct code){begin, begin + segment->p_memsz};
    }
    return 0;
}

static bool may_exit(const ucontext_t *context)
{
#if defined(__x86_64__)
    uintptr_t pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
    uintptr_t pc = (uintptr_t)context->uc_mcontext.pc;
#endif
    for (size_t i = 0; i < libc_code_count; i++)
        if (has(&libc_code[i], pc))
            return has(&walk_code, pc);
    return true;
}

static void exit_where_one_may(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    if (may_exit(context))
        exit(failures ? 8 : 7);
    arm(30);
}

static void exit_in_handler(void)
{
    keep_open();
    find_walk_code();
    dl_iterate_phdr(note_libc_code, NULL);
    if (libc_code_count != 2)
        exit(1);
    struct sigaction action = {.sa_sigaction = exit_where_one_may, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    for (arm(1000);;)
        open_and_close();
}

/* ---- all signals are blocked but for the waits ---- */

static sigset_t all, none;
static const struct timespec wait_time = {0, 2000000};

static int wait_ppoll(void)
{
    return ppoll(NULL, 0, &wait_time, &none);
}

/* What ppoll is in a program built with _FORTIFY_SOURCE. */
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t size);

static int wait_ppoll_checked(void)
{
    struct pollfd unused[1];
    return __ppoll_chk(unused, 0, &wait_time, &none, sizeof(unused));
}

static int wait_pselect(void)
{
    return pselect(0, NULL, NULL, NULL, &wait_time, &none);
}

static int poller;

static int wait_epoll(void)
{
    struct epoll_event event;
    return epoll_pwait(poller, &event, 1, 2, &none);
}

#if __GLIBC_PREREQ(2, 35)
static int wait_epoll2(void)
{
    struct epoll_event event;
    return epoll_pwait2(poller, &event, 1, &wait_time, &none);
}
#endif

static const struct {
    const char *name;
    int (*wait)(void);
} waits[] = {
    {"ppoll", wait_ppoll},         {"ppoll, checked", wait_ppoll_checked},
    {"pselect", wait_pselect},     {"epoll_pwait", wait_epoll},
#if __GLIBC_PREREQ(2, 35)
    {"epoll_pwait2", wait_epoll2},
#endif
};
enum { WAITS = sizeof(waits) / sizeof(waits[0]) };

static void block_all(void)
{
    sigfillset(&all);
    sigemptyset(&none);
    poller = epoll_create1(0);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

static void print_pending(const char *when)
{
    sigset_t pending;
    sigpending(&pending);
    printf("%s, pending:", when);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(&pending, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

static void count(int signal)
{
    (void)signal;
    calls = calls + 1;
}

static void masked_waits(void)
{
    block_all();
    for (size_t i = 0; i < WAITS; i++) {
        int interrupted = 0;
        for (int round = 0; round < 15; round++) {
            spin(15000000); /* several ticks of the kernel */
            interrupted += waits[i].wait() < 0;
        }
        printf("%s: %d of 15 interrupted\n", waits[i].name, interrupted);
    }
    spin(50000000);
    print_pending("after 50 ms");
    set_handler(SIGALRM, count, 0);
    int returns = 0;
    for (int round = 1; round <= 15; round++) {
        spin(15000000);
        arm(5000);
        for (; calls < round; returns++)
            sigsuspend(&none);
    }
    printf("sigsuspend: %d returns for %d signals\n", returns, (int)calls);
    print_pending("at the end");
}

static void look(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    last_code = info->si_code;
    calls = calls + 1;
}

/* The program's own SIGPROF gets to its handler in every wait. A tick of the agent's may end a wait
 * before it does, as long as the program has a handler. */
static void own_in_wait(const char *name, int (*wait)(void), bool sent_to_process)
{
    /* A tick that is pending for the thread would be one with what the thread raises: it is taken
     * first. */
    wait_ppoll();
    if (sent_to_process) {
        spin(50000000);
        kill(getpid(), SIGPROF);
    } else {
        raise(SIGPROF);
    }
    print_pending(sent_to_process ? "sent" : "raised");
    int before = calls, result = 0;
    for (int i = 0; i < 10 && calls == before; i++)
        result = wait();
    printf("%s: result %d, error %d, calls %d, code %d\n", name, result, result < 0 ? errno : 0,
           (int)calls, (int)last_code);
    last_code = 0;
}

static int wait_sigsuspend(void)
{
    return sigsuspend(&none);
}

static void own_in_waits(void)
{
    block_all();
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    sigaction(SIGPROF, &action, NULL);
    for (size_t i = 0; i < WAITS; i++) {
        own_in_wait(waits[i].name, waits[i].wait, false);
        own_in_wait(waits[i].name, waits[i].wait, true);
    }
    own_in_wait("sigsuspend", wait_sigsuspend, false);
    own_in_wait("sigsuspend", wait_sigsuspend, true);
    signal(SIGPROF, SIG_DFL);
    spin(50000000);
    print_pending("default again");
    printf("ppoll: %d\n", wait_ppoll());
}

/* ---- alternate stacks ---- */

/* Room for the kernel's frame, and for a handler that calls nothing. */
static void set_alternate_stack(void)
{
    size_t least = getauxval(AT_MINSIGSTKSZ), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = (least > 2048 ? least : 2048) + 512, room = (size + page - 1) / page * page;
    char *memory =
        mmap(NULL, page + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        exit(1);
    if (sigaltstack(&(stack_t){.ss_sp = memory + page, .ss_size = size}, NULL) != 0)
        exit(1);
}

static void compute_in_handler(int signal)
{
    (void)signal;
    for (int i = 0; i < 100; i++)
        compute();
    calls = calls + 1;
}

/* Most of the time the thread is in the handler, and the kernel's ticks come there. */
static void handlers_on_small_stack(void)
{
    set_alternate_stack();
    set_handler(SIGALRM, compute_in_handler, SA_ONSTACK | SA_RESTART);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, NULL);
    spin(1500000000);
    signal(SIGALRM, SIG_IGN);
    printf("many calls: %d\n", calls > 300);
}

static void print_action(const char *when, const struct sigaction *action)
{
    printf("%s: %s, flags %#x, masked:", when,
           action->sa_handler == SIG_DFL   ? "default"
           : action->sa_handler == SIG_IGN ? "ignored"
           : action->sa_handler == count   ? "count"
                                           : "another",
           (unsigned)action->sa_flags & 0xfbffffff);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(&action->sa_mask, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

static void set_and_print(const char *what, int flags, int masked, int also_masked)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = flags}, before, now;
    if (masked)
        sigaddset(&action.sa_mask, masked);
    if (also_masked)
        sigaddset(&action.sa_mask, also_masked);
    sigaction(SIGUSR1, &action, &before);
    sigaction(SIGUSR1, NULL, &now);
    printf("%s\n", what);
    print_action("  before", &before);
    print_action("  now", &now);
}

static void shown_masks(void)
{
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    print_action("at first", &now);
    set_and_print("on the other stack", SA_ONSTACK, 0, 0);
    set_and_print("again, with a mask", SA_ONSTACK, SIGHUP, SIGUSR2);
    set_and_print("with SIGPROF", SA_ONSTACK, SIGHUP, SIGPROF);
    set_and_print("without SIGPROF", SA_ONSTACK, SIGHUP, 0);
    set_and_print("on the thread's stack", 0, SIGHUP, 0);
    set_and_print("there with SIGPROF", 0, SIGPROF, 0);
    set_and_print("on the other stack", SA_ONSTACK, 0, 0);
    raise(SIGUSR1);
    printf("signal() gave count: %d\n", signal(SIGUSR1, SIG_IGN) == count);
    sigaction(SIGUSR1, NULL, &now);
    print_action("ignored", &now);
    set_and_print("once", SA_ONSTACK | (int)SA_RESETHAND, SIGHUP, 0);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &now);
    print_action("after the once", &now);
    set_and_print("in a child", SA_ONSTACK, SIGHUP, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        set_and_print("  of the parent's", SA_ONSTACK, 0, 0);
        exit(0);
    }
    waitpid(child, NULL, 0);
    struct sigaction bad = {.sa_handler = count, .sa_flags = SA_ONSTACK};
    printf("bad signal: %d", sigaction(NSIG + 1, &bad, NULL));
    printf(" %d\n", errno);
    printf("SIGKILL: %d", sigaction(SIGKILL, &bad, NULL));
    printf(" %d\ncalls %d\n", errno, (int)calls);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {{"fork", fork_in_handler},
                 {"exit", exit_in_handler},
                 {"masked-waits", masked_waits},
                 {"own-in-waits", own_in_waits},
                 {"small-stack", handlers_on_small_stack},
                 {"shown-masks", shown_masks}};
    seed = number_argument(argc, argv, 2, 0);
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].function();
            return 0;
        }
    return 2;
}
