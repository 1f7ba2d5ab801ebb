/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_exec_cost: a busy process of many threads forks a child that execs at once; its tracer
 * counts what the child does between the two. Prints the counts. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { THREADS = 32 };
static pthread_barrier_t worked, over;

/* Stacks of many kinds. */
SITE static void work(int depth)
{
    void *block = malloc(5000);
    keep(block);
    free(block);
    compute();
    if (depth > 0)
        work(depth - 1);
    if (depth > 1 && depth % 3 == 0)
        work(depth - 2);
    keep(&work);
}

static void *work_and_wait(void *data)
{
    for (int i = 0; i < 30; i++)
        work(i);
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&over);
    return data;
}

static int fork_and_exec(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&worked, NULL, THREADS + 1);
    pthread_barrier_init(&over, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work_and_wait, NULL) != 0)
            return 1;
    pthread_barrier_wait(&worked);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    pthread_barrier_wait(&over);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return status != 0;
}

static unsigned long page_faults(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    /* Behind the name: state, then six numbers, then minor faults. */
    unsigned long faults = 0;
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %lu", &faults) != 1)
        exit(3);
    return faults;
}

static unsigned long cpu_us(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        exit(7);
    return (unsigned long)(used.tv_sec * 1000000 + used.tv_nsec / 1000);
}

struct counts {
    unsigned long calls, threads, faults, cpu_us;
    bool is_complete;
};

/* At the entry of a system call of the child. */
static void count_call(struct counts *counts, pid_t pid)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
        exit(4);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    unsigned long number = info.entry.nr;
    if (number == SYS_execve || number == SYS_execveat) {
        counts->faults = page_faults(pid);
        counts->cpu_us = cpu_us(pid);
    } else {
        counts->calls++;
    }
    counts->threads += number == SYS_clone || number == SYS_clone3;
}

int main(void)
{
    pid_t busy = fork(), child = 0;
    if (busy == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(fork_and_exec());
    }
    int status;
    waitpid(busy, &status, 0);
    long wanted =
        PTRACE_O_TRACEFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, busy, NULL, wanted) != 0)
        return 2;
    ptrace(PTRACE_CONT, busy, NULL, NULL);
    struct counts counts = {0};
    for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) {
            if (pid == busy && status != 0)
                return 5;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_FORK) {
            unsigned long message = 0;
            ptrace(PTRACE_GETEVENTMSG, pid, NULL, &message);
            child = (pid_t)message;
        } else if (event == PTRACE_EVENT_EXEC) {
            counts.is_complete = true;
        } else if (signal == (SIGTRAP | 0x80)) {
            count_call(&counts, pid);
        }
        bool is_signal = !event && signal != SIGSTOP && signal != (SIGTRAP | 0x80);
        bool counts_calls = pid != busy && !counts.is_complete;
        ptrace(counts_calls ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL,
               (long)(is_signal ? signal : 0));
    }
    if (!child || !counts.is_complete)
        return 6;
    printf("child-pid %d\ncalls %lu\nthreads %lu\nfaults %lu\ncpu-us %lu\n", (int)child,
           counts.calls, counts.threads, counts.faults, counts.cpu_us);
    return 0;
}
