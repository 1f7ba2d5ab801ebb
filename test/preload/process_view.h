/* process_view.h: prints what a process can see of its own state, the same in each run. What an
 * agent may add is left out: the handler of its signal, and threads named libagent, which are
 * counted.
 *
 * Owns: the count. Context: programs, one thread at a time, not inside stdio. Locks: none. */
#ifndef LIBAGENT_TEST_PROCESS_VIEW_H
#define LIBAGENT_TEST_PROCESS_VIEW_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;

static unsigned long ours; /* most threads named libagent that were seen at once */

/* The program's own name of a handler of its own. */
static const char *name_of_handler(const struct sigaction *action);

/* ---- signals ---- */

static void print_set(const char *what, const sigset_t *set)
{
    printf("%s:", what);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(set, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

static void print_dispositions(void)
{
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0) {
            printf("action of %d: error %d\n", signal, errno);
            continue;
        }
        const char *handler = action.sa_handler == SIG_DFL   ? "default"
                              : action.sa_handler == SIG_IGN ? "ignored"
                                                             : name_of_handler(&action);
        printf("action of %d: %s, flags %#x", signal, handler, (unsigned)action.sa_flags);
        print_set(", mask", &action.sa_mask);
    }
}

static void print_masks(void)
{
    sigset_t set;
    stack_t stack;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    print_set("blocked", &set);
    sigpending(&set);
    print_set("pending", &set);
    sigaltstack(NULL, &stack);
    printf("alternate stack: flags %d, size %zu, %s\n", stack.ss_flags, stack.ss_size,
           stack.ss_sp ? "set" : "none");
}

/* ---- the rest of the process ---- */

static void print_timers(void)
{
    static const int which[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (int i = 0; i < 3; i++) {
        struct itimerval value;
        getitimer(which[i], &value);
        bool is_armed = value.it_value.tv_sec || value.it_value.tv_usec;
        printf("itimer %d: %s, interval %ld.%06ld\n", i, is_armed ? "armed" : "not armed",
               (long)value.it_interval.tv_sec, (long)value.it_interval.tv_usec);
    }
}

static void print_environment(void)
{
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) != 0) /* the one difference that is wanted */
            printf("environment: %s\n", *variable);
}

static void print_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        char target[256];
        int fd = atoi(entry->d_name);
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (length <= 0 || fd == dirfd(folder))
            continue;
        target[length] = 0;
        target[strcspn(target, "[")] = 0; /* a pipe's number is another in each run */
        printf("descriptor %d: %s, flags %#x %#x\n", fd, target, (unsigned)fcntl(fd, F_GETFD),
               (unsigned)fcntl(fd, F_GETFL));
    }
    closedir(folder);
}

static void print_limits(void)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (getrlimit(i, &limit) == 0)
            printf("limit %d: %lu %lu\n", i, (unsigned long)limit.rlim_cur,
                   (unsigned long)limit.rlim_max);
    }
    printf("nice %d, policy %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
}

static void print_prctl(void)
{
    static const int words[] = {PR_GET_DUMPABLE,     PR_GET_KEEPCAPS,   PR_GET_TIMERSLACK,
                                PR_GET_NO_NEW_PRIVS, PR_GET_SECUREBITS, PR_GET_THP_DISABLE};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        printf("prctl %d: %d\n", words[i], prctl(words[i], 0, 0, 0, 0));
    int signal = 0, reaper = 0;
    prctl(PR_GET_PDEATHSIG, &signal);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    printf("death signal %d, reaper %d\n", signal, reaper);
}

static void print_first_line(const char *path)
{
    char line[256] = "";
    FILE *file = fopen(path, "r");
    if (file && !fgets(line, sizeof(line), file))
        line[0] = 0;
    if (file)
        fclose(file);
    printf("%s: %s", path, line[0] ? line : "none\n");
}

/* ---- what the kernel tells ---- */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* These are other numbers in each run, or have their own place below. */
static bool is_left_out(const char *line)
{
    static const char *const keys[] = {"Pid:",    "Tgid:",     "PPid:",   "NSpid:", "NSpgid:",
                                       "NStgid:", "NSsid:",    "Ngid:",   "State:", "Vm",
                                       "Rss",     "Huge",      "volun",   "nonvo",  "Mems_",
                                       "Cpus_",   "TracerPid", "Threads:"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (starts_with(line, keys[i]))
            return true;
    return false;
}

static void print_status_line(const char *line)
{
    /* 32, of which libc shows the program nothing; in what posix_spawn made it is ignored. */
    const uint64_t sampling = (uint64_t)1 << 31;
    const char *value = strchr(line, '\t');
    if (is_left_out(line))
        return;
    if (starts_with(line, "SigCgt:") || starts_with(line, "SigIgn:"))
        printf("  %.6s: %#lx\n", line, strtoul(value, NULL, 16) & ~sampling);
    else if (starts_with(line, "SigQ:")) /* queued ones of the whole user, of so many */
        printf("  SigQ: of%s", strchr(line, '/'));
    else
        printf("  %s", line);
}

/* False for a thread of the agent. (The list of threads stands for their number, "Threads:", to
 * which one of the agent's may come at any time.) */
static bool print_status(const char *path)
{
    char line[512], name[32] = "";
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Name:\t%31s", name) == 1) {
            if (starts_with(name, "libagent"))
                break;
            printf("status of %s\n", name);
        }
        print_status_line(line);
    }
    if (file)
        fclose(file);
    return !starts_with(name, "libagent");
}

static void print_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    unsigned long count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        count += entry->d_name[0] != '.' && !print_status(path);
    }
    closedir(folder);
    if (count > ours)
        ours = count;
    print_status("/proc/self/status");
}

static void print_all(const char *where)
{
    char folder[4096] = "?";
    int number = errno;
    printf("==== %s, errno %d\n", where, number);
    print_dispositions();
    print_masks();
    print_timers();
    print_environment();
    print_descriptors();
    print_limits();
    print_prctl();
    mode_t mask = umask(0);
    umask(mask);
    printf("umask %#o, folder %s\n", mask, getcwd(folder, sizeof(folder)));
    print_first_line("/proc/self/oom_score_adj");
    print_first_line("/proc/self/coredump_filter");
    print_first_line("/proc/self/comm");
    print_threads();
    fflush(stdout);
    errno = number;
}

#endif
