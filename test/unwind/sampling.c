#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "test/unwind/differences.h"
#include "test/unwind/judge.h"
#include "test/unwind/modes.h"

static struct rng rng = {.state = 42};

enum { THREADS_MAX = 512 };

static pid_t threads[THREADS_MAX];
static uint32_t thread_count;

static void add_thread(pid_t tid)
{
    for (uint32_t i = 0; i < thread_count; i++)
        if (threads[i] == tid)
            return;
    if (thread_count < THREADS_MAX)
        threads[thread_count++] = tid;
}

static void seize_all(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    if (!folder)
        die("no process %d", pid);
    for (struct dirent *entry; (entry = readdir(folder));) {
        pid_t tid = atoi(entry->d_name);
        if (tid <= 0)
            continue;
        tracee_seize(tid, true);
        add_thread(tid);
    }
    closedir(folder);
}

/* Whether the thread runs, or wants to. */
static bool is_running(pid_t pid, pid_t tid)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (file)
        fclose(file);
    return state == 'R';
}

/* One event of a thread; what stops by itself is sent on. True when it is the stop that was asked
 * for: then the thread still stands. */
static bool handle_event(pid_t tid, int status)
{
    if (!WIFSTOPPED(status)) {
        for (uint32_t i = 0; i < thread_count; i++)
            if (threads[i] == tid)
                threads[i--] = threads[--thread_count];
        return false;
    }
    add_thread(tid);
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_STOP && signal == SIGTRAP)
        return true;
    if (event == PTRACE_EVENT_STOP)
        ptrace(PTRACE_LISTEN, tid, 0, 0); /* the program itself is being stopped */
    else
        ptrace(PTRACE_CONT, tid, 0, event ? 0 : signal);
    return false;
}

/* False when no thread is left. */
static bool sample_thread(pid_t pid, pid_t tid)
{
    if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0)
        return thread_count > 0;
    for (;;) {
        int status;
        pid_t who = waitpid(-1, &status, __WALL);
        if (who < 0)
            return false;
        if (!handle_event(who, status)) {
            if (who == tid && !WIFSTOPPED(status))
                return thread_count > 0;
            continue;
        }
        struct tracee tracee = {.pid = pid, .tid = who};
        if (who == tid) {
            tracee_forget_memory();
            tracee_get_registers(&tracee);
            judge_modules(pid);
            judge_sample(&tracee);
        }
        /* Others are new threads, which begin with a stop. */
        ptrace(PTRACE_CONT, who, 0, 0);
        if (who == tid)
            return true;
    }
}

static void sample_run(pid_t pid, uint64_t stops, double hertz)
{
    uint64_t turn = 0;
    while (differences_stops() < stops) {
        int status;
        for (pid_t who; (who = waitpid(-1, &status, __WALL | WNOHANG)) > 0;)
            if (handle_event(who, status))
                ptrace(PTRACE_CONT, who, 0, 0);
        if (!thread_count)
            return;
        double draw = (double)(rng_next(&rng) >> 11) * 0x1p-53;
        usleep((useconds_t)(-log(1 - draw) * 1e6 / hertz));
        pid_t tid = threads[rng_next(&rng) % thread_count];
        /* Threads that wait have the same stack each time: one look in 16 is enough. */
        if (!is_running(pid, tid) && ++turn % 16 != 0)
            continue;
        if (!sample_thread(pid, tid))
            return;
    }
}

void sample_program(uint64_t stops, double hertz, char *const command[])
{
    if (strcmp(command[0], "-p") == 0) {
        pid_t pid = atoi(command[1]);
        seize_all(pid);
        sample_run(pid, stops, hertz);
        return; /* our end lets go of it */
    }
    for (int run = 0; differences_stops() < stops; run++) {
        if (run == RUNS_MAX)
            die("%d runs of %s give only %lu samples", run, command[0], differences_stops());
        pid_t pid = tracee_start(command, true);
        thread_count = 0;
        add_thread(pid);
        ptrace(PTRACE_CONT, pid, 0, 0);
        sample_run(pid, stops, hertz);
        kill(pid, SIGKILL);
        while (waitpid(-1, NULL, __WALL) > 0) {
        }
    }
}
