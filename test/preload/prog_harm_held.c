/* CFLAGS: -O2 */
/* prog_harm_held: a program that works changes its user (to what it is) while its thread
 * libagent-up, about to write a profile, does not come back from a system call, as with a file
 * system that does not answer: here its tracer holds it. Prints how long the change took, and how
 * many files the program had written when the thread was held, when that one had ended, and at the
 * end. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

/* A little, for a window with samples, until a byte comes. */
static void work_until_told(int pipe)
{
    struct pollfd told = {pipe, POLLIN, 0};
    char byte;
    while (poll(&told, 1, 10) == 0)
        allocate_and_spin(2000000);
    if (read(pipe, &byte, 1) != 1)
        exit(3);
}

static int work(int commands, int answers)
{
    work_until_told(commands);
    uint64_t before = clock_ns(CLOCK_MONOTONIC);
    int result = setuid(getuid());
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - before;
    printf("setuid %d\nms %lu\n", result, (unsigned long)(took / 1000000));
    fflush(stdout);
    if (write(answers, "s", 1) != 1)
        return 4;
    work_until_told(commands);
    return 0;
}

/* 0: there is none. */
static pid_t find_sender(pid_t pid)
{
    char path[300], name[32];
    pid_t found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && !found && (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file && fgets(name, sizeof(name), file) && strcmp(name, "libagent-up\n") == 0)
            found = (pid_t)atoi(entry->d_name);
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

static pid_t wait_for_sender(pid_t pid)
{
    pid_t found;
    while (!(found = find_sender(pid)))
        usleep(1000);
    return found;
}

/* The step behind which a profile's file is made. */
static bool opens_folder(pid_t thread)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0)
        exit(5);
    return info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_openat &&
           (info.entry.args[2] & (O_PATH | O_DIRECTORY)) == (O_PATH | O_DIRECTORY);
}

static void hold(pid_t thread)
{
    int status, signal = 0;
    if (ptrace(PTRACE_SEIZE, thread, NULL, (long)PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0)
        exit(6);
    for (;;) {
        if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
            exit(7);
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        if (is_call && opens_folder(thread))
            return;
        signal = is_call || status >> 16 ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, thread, NULL, (long)signal);
    }
}

static int count_files(pid_t pid)
{
    char part[32];
    int count = 0;
    snprintf(part, sizeof(part), ".%d.", (int)pid);
    DIR *folder = opendir(getenv("LIBAGENT_OUTPUT"));
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strstr(entry->d_name, part) != NULL;
    if (folder)
        closedir(folder);
    return count;
}

int main(void)
{
    int commands[2], answers[2], status;
    char byte;
    if (pipe(commands) != 0 || pipe(answers) != 0)
        return 2;
    pid_t pid = fork();
    if (pid == 0)
        exit(work(commands[0], answers[1]));
    pid_t thread = wait_for_sender(pid);
    hold(thread);
    printf("held %d\n", count_files(pid));
    if (write(commands[1], "c", 1) != 1 || read(answers[0], &byte, 1) != 1)
        return 8;
    ptrace(PTRACE_DETACH, thread, NULL, NULL);
    while (find_sender(pid) == thread)
        usleep(1000);
    printf("gone %d\n", count_files(pid));
    if (wait_for_sender(pid) == thread || write(commands[1], "c", 1) != 1)
        return 9;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return 10;
    printf("ended %d\n", count_files(pid));
    return 0;
}
