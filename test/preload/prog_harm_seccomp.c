/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_seccomp CASE [MILLISECONDS]: puts itself under seccomp and works on. Prints the same in
 * each run. From then on the clocks of CPU time, which are system calls, are not for it. */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

static void say(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) < 0)
        _exit(1);
}

static void allocate(size_t size)
{
    char *block = malloc(size);
    if (!block)
        _exit(1);
    block[0] = 1;
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
    allocate(200000); /* mapped and unmapped by itself */
}

/* About 500 ms. */
SITE void after(size_t size)
{
    for (int round = 0; round < 250; round++) {
        for (int i = 0; i < 1000; i++)
            compute();
        allocate(size);
    }
}

/* What malloc, free and the end of a process make; then the return of a handler; then the end of a
 * thread. */
static const int calls[] = {SYS_write,      SYS_brk,          SYS_mmap,     SYS_munmap,
                            SYS_mremap,     SYS_madvise,      SYS_mprotect, SYS_futex,
                            SYS_exit_group, SYS_rt_sigreturn, SYS_exit,     SYS_rt_sigprocmask};
enum { NO_HANDLERS = 9, NO_THREADS = 10, ALL = sizeof(calls) / sizeof(calls[0]) };

/* What is left to a program that only computes and writes. */
static const int few_calls[] = {SYS_read, SYS_write, SYS_exit_group};
enum { FEW = sizeof(few_calls) / sizeof(few_calls[0]) };

/* What neither libc nor the program calls when a thread is born or ends. */
static const int agents_calls[] = {SYS_timer_create, SYS_timer_settime, SYS_timer_delete,
                                   SYS_gettid,       SYS_getpid,        SYS_openat,
                                   SYS_prctl,        SYS_tgkill,        SYS_clock_gettime};
enum { AGENTS = sizeof(agents_calls) / sizeof(agents_calls[0]) };

static struct sock_filter steps[2 * ALL + 2];

/* Does with the `count` calls the one thing, with all others the other. */
static struct sock_fprog *filter(const int *listed, int count, unsigned action, unsigned otherwise)
{
    static struct sock_fprog program = {.filter = steps};
    unsigned short n = 0;
    steps[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        steps[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)listed[i], 0, 1);
        steps[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    steps[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    program.len = n;
    return &program;
}

static struct sock_fprog *allow(const int *allowed, int count)
{
    return filter(allowed, count, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}

static struct sock_fprog *make_filter(int count)
{
    return allow(calls, count);
}

static void no_new_privileges(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        exit(1);
}

static void entered(long result)
{
    if (result != 0)
        _exit(1);
    say("entered\n");
}

/* Strict mode knows read, write, exit of a thread and sigreturn: the heap has what is needed. */
static void after_strict(long result)
{
    entered(result);
    after(1000);
    say("done\n");
    syscall(SYS_exit, 3);
}

static void strict_by_prctl(void)
{
    after_strict(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
}

static void strict_by_seccomp(void)
{
    after_strict(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
}

static void strict_by_syscall_prctl(void)
{
    after_strict(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, NULL, 0, 0));
}

static void after_filter(long result)
{
    entered(result);
    after(200000);
    say("done\n");
}

static void filter_by_prctl(void)
{
    no_new_privileges();
    after_filter(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, make_filter(NO_THREADS)));
}

/* No tick may come any more. */
static void filter_without_handlers(void)
{
    no_new_privileges();
    after_filter(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, make_filter(NO_HANDLERS)));
}

static void filter_by_seccomp(void)
{
    no_new_privileges();
    after_filter(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, make_filter(NO_THREADS)));
}

static void filter_by_syscall_prctl(void)
{
    no_new_privileges();
    after_filter(
        syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, make_filter(NO_THREADS), 0, 0));
}

/* Kills for everything that an agent could call: timers, masks, futexes, madvise, the return of a
 * handler. */
static void after_few(long result)
{
    entered(result);
    after(1000);
    say("done\n");
}

static void few_by_prctl(void)
{
    no_new_privileges();
    after_few(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, allow(few_calls, FEW)));
}

static void few_by_seccomp(void)
{
    no_new_privileges();
    after_few(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, allow(few_calls, FEW)));
}

static void few_by_syscall_prctl(void)
{
    no_new_privileges();
    after_few(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, allow(few_calls, FEW), 0, 0));
}

enum { THREADS = 3 };
static pthread_t threads[THREADS];
static pthread_barrier_t started;
static bool stop;

static void *work(void *unused)
{
    pthread_barrier_wait(&started);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        allocate(3000);
        for (int i = 0; i < 10; i++)
            compute();
    }
    return unused;
}

static void start_threads(void *(*routine)(void *))
{
    pthread_barrier_init(&started, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, routine, NULL) != 0)
            exit(1);
    pthread_barrier_wait(&started);
}

static void join_threads(void)
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* The filter comes over threads that allocate and compute; they end under it. */
static void filter_over_threads(void)
{
    start_threads(work);
    before(100);
    no_new_privileges();
    after_filter(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, make_filter(ALL)));
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    join_threads();
    say("joined\n");
}

static void *work_for_good(void *data)
{
    pthread_barrier_wait(&started);
    for (;;) {
        allocate(1000);
        compute();
    }
    return data;
}

/* They compute on until the process ends. */
static void few_over_threads(void)
{
    start_threads(work_for_good);
    before(100);
    no_new_privileges();
    after_few(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
                      allow(few_calls, FEW)));
    _exit(0);
}

enum { CROWD = 8, ROUNDS = 20 };

static void *live_shortly(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        compute();
    return unused;
}

/* The filter comes while threads are being born, or while they end. */
static int filter_a_crowd(bool ending)
{
    pthread_t crowd[CROWD];
    stop = false;
    for (int i = 0; i < CROWD; i++)
        if (pthread_create(&crowd[i], NULL, live_shortly, NULL) != 0)
            return 1;
    for (int i = 0; ending && i < 1000; i++)
        compute();
    struct sock_fprog *program =
        filter(agents_calls, AGENTS, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    __atomic_store_n(&stop, ending, __ATOMIC_RELEASE);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program) != 0)
        return 2;
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CROWD; i++)
        pthread_join(crowd[i], NULL);
    return 0;
}

/* A filter is there to stay: each round is a child. */
static void filter_crowds(bool ending)
{
    no_new_privileges();
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(filter_a_crowd(ending));
        int status = -1;
        waitpid(pid, &status, 0);
        printf("child: %#x\n", (unsigned)status);
    }
}

static void filter_over_newborn(void)
{
    filter_crowds(false);
}

static void filter_over_ending(void)
{
    filter_crowds(true);
}

/* ---- from outside ---- */

static int count_lines(const char *what, pid_t pid, const char *start)
{
    char path[64], line[256];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        count += strncmp(line, start, strlen(start)) == 0;
    if (file)
        fclose(file);
    return count;
}

static int count_names(const char *path, const char *part)
{
    DIR *folder = opendir(path);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    if (folder)
        closedir(folder);
    return count;
}

static void look_at(const char *when, pid_t pid)
{
    char tasks[64], number[16];
    snprintf(tasks, sizeof(tasks), "/proc/%d/task", (int)pid);
    snprintf(number, sizeof(number), ".%d.", (int)pid);
    printf("tasks-%s %d\n", when, count_names(tasks, ""));
    printf("timers-%s %d\n", when, count_lines("timers", pid, "ID:"));
    printf("files-%s %d\n", when, count_names(getenv("LIBAGENT_OUTPUT"), number));
}

static void wait_for_byte(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        _exit(1);
}

static void looked_at(uint64_t ms)
{
    int up[2], down[2];
    if (pipe(up) != 0 || pipe(down) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(up[1], STDOUT_FILENO); /* where `entered` goes */
        before(ms);
        say("!");
        wait_for_byte(down[0]);
        no_new_privileges();
        entered(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, allow(few_calls, FEW)));
        wait_for_byte(down[0]);
        after(1000);
        syscall(SYS_exit_group, 0);
    }
    wait_for_byte(up[0]);
    look_at("before", pid);
    if (write(down[1], "!", 1) != 1)
        exit(1);
    wait_for_byte(up[0]);
    look_at("after", pid);
    int status = -1;
    if (write(down[1], "!", 1) != 1 || waitpid(pid, &status, 0) != pid)
        exit(1);
    printf("child %d\nstatus %d\n", (int)pid, status);
}

static void *enter_and_work(void *program)
{
    pthread_barrier_wait(&started);
    before(20);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, make_filter(ALL)) != 0)
        _exit(1);
    after(3000);
    return program;
}

/* Each worker puts itself alone under the filter. */
static void filter_of_each_thread(void)
{
    make_filter(ALL);
    no_new_privileges();
    start_threads(enter_and_work);
    join_threads();
    say("joined\n");
}

static void say_errno(const char *what, long result)
{
    printf("%s %ld %d\n", what, result, errno);
}

/* How libraries find out what the kernel has: none of these sets anything. */
static void probe(void)
{
    enum { NO_MODE = 77, NO_FLAG = 1 << 30 };
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say_errno("filter at 0", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0));
    say_errno("filter in a hole", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, hole, 0, 0));
    say_errno("no mode", prctl(PR_SET_SECCOMP, NO_MODE, hole, 0, 0));
    say_errno("called, filter at 0",
              syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0));
    say_errno("called, no mode", syscall(SYS_prctl, PR_SET_SECCOMP, NO_MODE, NULL, 0, 0));
    say_errno("seccomp, filter at 0",
              syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL));
    say_errno("seccomp, filter in a hole", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, hole));
    say_errno("seccomp, no such flag",
              syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, NO_FLAG, NULL));
    say_errno("seccomp, no operation", syscall(SYS_seccomp, NO_MODE, 0, NULL));
    munmap(hole, 4096);
}

/* Calls that only ask, and others that go through the same functions. */
static void asks(void)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    probe();
    printf("mode %d\n", prctl(PR_GET_SECCOMP));
    printf("available %ld\n", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    char name[16] = "";
    prctl(PR_SET_NAME, "asks");
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    long result = prctl(-1, 1, 2, 3, 4);
    printf("bad option %ld %d\n", result, errno);
    result = syscall(-1);
    printf("bad call %ld %d\n", result, errno);
    printf("pid %d\n", syscall(SYS_getpid) == getpid());
    enum { LENGTH = 4096 };
    char wanted[64];
    FILE *self = fopen("/proc/self/exe", "r");
    /* The sixth argument is the offset. */
    char *mapped =
        (char *)syscall(SYS_mmap, NULL, LENGTH, PROT_READ, MAP_PRIVATE, fileno(self), LENGTH);
    printf("six arguments %d\n",
           pread(fileno(self), wanted, sizeof(wanted), LENGTH) == (ssize_t)sizeof(wanted) &&
               memcmp(mapped, wanted, sizeof(wanted)) == 0);
    fclose(self);
    after(1000);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {{"strict-prctl", strict_by_prctl},
                 {"strict-seccomp", strict_by_seccomp},
                 {"strict-syscall-prctl", strict_by_syscall_prctl},
                 {"filter-prctl", filter_by_prctl},
                 {"filter-no-handlers", filter_without_handlers},
                 {"filter-seccomp", filter_by_seccomp},
                 {"filter-syscall-prctl", filter_by_syscall_prctl},
                 {"over-threads", filter_over_threads},
                 {"each-thread", filter_of_each_thread},
                 {"few-prctl", few_by_prctl},
                 {"few-seccomp", few_by_seccomp},
                 {"few-syscall-prctl", few_by_syscall_prctl},
                 {"few-over-threads", few_over_threads},
                 {"over-newborn", filter_over_newborn},
                 {"over-ending", filter_over_ending},
                 {"asks", asks}};
    if (argc > 1 && strcmp(argv[1], "looked-at") == 0) {
        looked_at(number_argument(argc, argv, 2, 300));
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            before(number_argument(argc, argv, 2, 300));
            cases[i].function();
            return 0;
        }
    return 2;
}
