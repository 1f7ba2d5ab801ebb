/* Leaves, or changes what it is, while the agent is in each state of its life. Arguments: the state
 * (never, watched, stopped, on, changing, resizing), what is done, milliseconds before it. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#define LIBAGENT_WEAK
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

#ifndef SECCOMP_FILTER_FLAG_TSYNC
#define SECCOMP_FILTER_FLAG_TSYNC 1
#endif

static volatile bool is_over, is_changing;
static bool changes, resizes;
static pthread_t changer;

static void need(bool good, const char *what)
{
    if (good)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

SITE void work(uint64_t ns)
{
    for (uint64_t end_ns = thread_cpu_ns() + ns; thread_cpu_ns() < end_ns;) {
        compute();
        keep(malloc(10000));
    }
}

static void *change(void *data)
{
    is_changing = true;
    for (int i = 0; !is_over; i++) {
        const char *size = i % 2 ? "memory=64MiB" : "memory=128MiB";
        int started = libagent_start(resizes ? size : NULL);
        int stopped = libagent_stop();
        need(started >= 0 || started == -ESHUTDOWN, "start");
        need(stopped >= 0 || stopped == -ESHUTDOWN, "stop");
    }
    return data;
}

/* A thread of the agent's. The folder has a link for each thread, and two of its own. */
static void wait_for_agent(void)
{
    struct stat tasks;
    do {
        need(stat("/proc/self/task", &tasks) == 0, "stat");
        sched_yield();
    } while (tasks.st_nlink < 4);
}

static void enter(const char *state)
{
    resizes = strcmp(state, "resizing") == 0; /* with LIBAGENT_CONFIG, too */
    changes = resizes || strcmp(state, "changing") == 0;
    if (strcmp(state, "never") == 0)
        return;                          /* LIBAGENT_START=manual */
    if (strcmp(state, "watched") == 0) { /* the same, with LIBAGENT_CONFIG */
        wait_for_agent();
        return;
    }
    work(50000000);
    if (strcmp(state, "stopped") == 0 || changes)
        need(libagent_stop() == 0, "stop");
    if (changes)
        need(pthread_create(&changer, NULL, change, NULL) == 0, "thread");
    while (changes && !is_changing) /* a newborn thread makes calls of libc's */
        sched_yield();
}

/* What the filter lets pass; all else kills. */
static void filter_all(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    printf("filtered\n"); /* its buffer and that of the next line are there */
    fflush(stdout);
    need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0,
         "filter");
    for (int i = 0; i < 100000; i++)
        compute();
    if (libagent_start && libagent_start(NULL) != -ESHUTDOWN)
        printf("started\n");
    fflush(stdout);
    _exit(0);
}

/* Each child has nothing of its parent's, and starts afresh, whatever the state was. */
static void fork_children(uint64_t pause_ms)
{
    for (int i = 0; i < 10; i++) {
        const struct timespec time = {0, (long)(pause_ms * 1000000 / 7 * (uint64_t)i % 10000000)};
        nanosleep(&time, NULL);
        pid_t child = fork();
        if (child == 0) {
            int started = libagent_start(NULL);
            need(started == 0 || started == 1, "start of the child");
            work(60000000);
            need(libagent_flush(20000) == 0, "flush of the child");
            uint64_t spent = thread_cpu_ns(); /* a child's clock begins at 0 */
            char text[100];
            int length = snprintf(text, sizeof(text), "child-%d %d\nchild-ns-%d %llu\n", i,
                                  getpid(), i, (unsigned long long)spent);
            need(write(1, text, (size_t)length) == length, "write");
            is_over = true;
            while (libagent_stop() >= 0)
                ;
            need(libagent_stop() == -EALREADY, "stop of the child");
            exit(0);
        }
        int status = 1;
        need(waitpid(child, &status, 0) == child && status == 0, "child");
    }
}

int main(int argc, char **argv)
{
    const char *state = argc > 1 ? argv[1] : "";
    const char *action = argc > 2 ? argv[2] : "";
    uint64_t ms = number_argument(argc, argv, 3, 0);
    enter(state);
    const struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    nanosleep(&pause, NULL);
    if (strcmp(action, "exit") == 0)
        exit(0);
    if (strcmp(action, "exec") == 0)
        execle("/bin/echo", "echo", "executed", (char *)NULL, (char *[]){NULL});
    if (strcmp(action, "seccomp") == 0)
        filter_all();
    if (strcmp(action, "pause") == 0)
        for (int i = 0; i < 200; i++)
            need(setuid(getuid()) == 0 && unshare(CLONE_FILES) == 0, "setuid, unshare");
    if (strcmp(action, "fork") == 0)
        fork_children(ms);
    is_over = true;
    if (changes)
        pthread_join(changer, NULL);
    printf("end\n");
    return 0;
}
