/* Is controlled from outside, by itself: sends itself the signals, writes the file. It sees what
 * became of that by its timers, as the kernel lists them. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "test/preload/program.h"

static void need(bool good, const char *what)
{
    if (good)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

#define PHASE(name)                                                                                \
    SITE void name(void)                                                                           \
    {                                                                                              \
        for (uint64_t end = thread_cpu_ns() + 200000000; thread_cpu_ns() < end;) {                 \
            compute();                                                                             \
            keep(malloc(5000));                                                                    \
        }                                                                                          \
    }
PHASE(work_before)
PHASE(work_between)
PHASE(work_after)

/* Does not allocate, and computes next to nothing: an idle process. */
static void nap(void)
{
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static bool has_timers(void)
{
    char text[64];
    int fd = open("/proc/self/timers", O_RDONLY);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text));
    need(size >= 0, "timers");
    close(fd);
    return size > 0;
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *list = opendir(path);
    if (!list)
        return 0;
    for (struct dirent *entry; (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

static const uint64_t limit_ns = 60ull * 1000000000;

static void wait_for_timers(bool wanted)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + limit_ns;
    while (has_timers() != wanted) {
        need(clock_ns(CLOCK_MONOTONIC) < end, wanted ? "not switched on" : "not switched off");
        nap();
    }
}

static void wait_for_file(const char *folder, const char *name)
{
    char pattern[256];
    snprintf(pattern, sizeof(pattern), "%s/%s", folder, name);
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + limit_ns;
    glob_t found;
    while (glob(pattern, 0, NULL, &found) != 0) {
        need(clock_ns(CLOCK_MONOTONIC) < end, "no file");
        nap();
    }
    globfree(&found);
}

static void wait_for_threads(int count)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + limit_ns;
    while (count_entries("/proc/self/task") != count) {
        need(clock_ns(CLOCK_MONOTONIC) < end, "threads");
        nap();
    }
}

/* Looks in the agent's log, which is a file. */
static int count_in_log(const char *text)
{
    static char log[8192];
    int fd = open("log", O_RDONLY), count = 0;
    ssize_t size = fd < 0 ? 0 : read(fd, log, sizeof(log) - 1);
    log[size > 0 ? size : 0] = 0;
    if (fd >= 0)
        close(fd);
    for (const char *found = log; (found = strstr(found, text)); found++)
        count++;
    return count;
}

static void wait_for_log(const char *text)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + limit_ns;
    while (count_in_log(text) == 0) {
        need(clock_ns(CLOCK_MONOTONIC) < end, text);
        nap();
    }
}

static void show(const char *name, int number)
{
    struct sigaction action;
    need(sigaction(number, NULL, &action) == 0, "sigaction");
    printf("%s %s, flags %x\n", name, action.sa_handler == SIG_DFL ? "default" : "other",
           (unsigned)action.sa_flags);
}

static void toggle(int number)
{
    show("signal", number);
    work_before();
    kill(getpid(), number);
    while (has_timers()) /* where profiles are sent its samples make the thread that does it */
        work_before();
    wait_for_threads(1);
    work_between();
    kill(getpid(), number);
    wait_for_timers(true);
    work_after();
    show("signal", number);
}

static void flush(void)
{
    work_before();
    kill(getpid(), SIGRTMIN + 5);
    wait_for_file("profiles", "*.heap.pb.gz"); /* a window's last one */
    printf("written\n");
    fflush(stdout);
    _exit(0);
}

/* LIBAGENT_START=manual: nothing before the first signal. */
static void start_by_signal(void)
{
    need(!has_timers(), "on");
    work_before();
    kill(getpid(), SIGRTMIN + 5);
    wait_for_log("nothing is written");
    wait_for_threads(1);
    kill(getpid(), SIGRTMIN + 5);
    wait_for_threads(1);
    kill(getpid(), SIGUSR2);
    wait_for_timers(true);
    work_after();
    kill(getpid(), SIGUSR2);
    wait_for_timers(false);
    wait_for_threads(1);
    work_between();
    kill(getpid(), SIGUSR2);
    wait_for_timers(true);
    need(count_in_log("nothing is written") == 1, "told again");
}

static volatile int came;

static void on_signal(int number)
{
    came += number == SIGUSR2 || number == SIGTERM;
}

/* The program has the signals itself, by each of the ways to set them. */
static void take(void)
{
    struct sigaction action = {.sa_handler = on_signal}, old;
    need(sigaction(SIGUSR2, &action, &old) == 0, "sigaction");
    printf("USR2 was %d, flags %x\n", old.sa_handler == SIG_DFL, (unsigned)old.sa_flags);
    kill(getpid(), SIGUSR2);
    printf("came %d\n", came);
    printf("TERM was %d\n", signal(SIGTERM, on_signal) == SIG_DFL);
    kill(getpid(), SIGTERM);
    printf("came %d\n", came);
    printf("TERM was ours %d\n", signal(SIGTERM, SIG_DFL) == on_signal);
    show("TERM", SIGTERM);
    printf("TERM was %d\n", sigaction(SIGTERM, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    kill(getpid(), SIGTERM);
    printf("came %d\n", came);
    need(has_timers(), "not profiled");
}

static void *work_on(void *unused)
{
    for (;;)
        keep(malloc(5000));
    return unused;
}

/* Ends by SIGTERM, in the middle of an allocation, say; `way`: what else is there. */
static void be_ended(const char *way)
{
    pthread_t thread;
    show("TERM", SIGTERM);
    work_before();
    if (strcmp(way, "threads") == 0)
        for (int i = 0; i < 3; i++)
            need(pthread_create(&thread, NULL, work_on, NULL) == 0, "thread");
    if (strcmp(way, "off") == 0) {
        kill(getpid(), SIGUSR2);
        wait_for_timers(false);
    }
    /* Its first window is being sent. */
    if (strcmp(way, "sending") == 0)
        for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + 3000000000;
             clock_ns(CLOCK_MONOTONIC) < end;)
            work_before();
    printf("killed %llu\n", (unsigned long long)clock_ns(CLOCK_MONOTONIC));
    fflush(stdout);
    kill(getpid(), SIGTERM);
    if (strcmp(way, "twice") == 0)
        kill(getpid(), SIGTERM);
    work_on(NULL);
}

/* As be_ended, on a disk that hangs: a call by which a profile is made (its file is, or gets its
 * name) never comes back, but for a kill. The filter asks whoever has its descriptor, which nobody
 * reads, and which stays open. */
static void be_ended_on_a_disk_that_hangs(char *program, const char *call, char *way)
{
    const uint32_t asks = SECCOMP_RET_USER_NOTIF;
    bool is_made = strcmp(call, "made") == 0;
    struct sock_filter made[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_EXCL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, asks),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter named[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, asks),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {
        .len = is_made ? sizeof(made) / sizeof(made[0]) : sizeof(named) / sizeof(named[0]),
        .filter = is_made ? made : named,
    };
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    int asked = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                             &filter);
    need(asked >= 0 && fcntl(asked, F_SETFD, 0) == 0, "seccomp");
    /* Where these milliseconds were sampled the agent wrote them before the filter. */
    glob_t found;
    if (glob("profiles/*", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            need(unlink(found.gl_pathv[i]) == 0, "unlink");
    execv(program, (char *[]){program, "term", way, NULL});
    need(false, "exec");
}

static void write_config_bytes(const char *text, size_t size)
{
    FILE *file = fopen("new", "w");
    need(file && fwrite(text, 1, size, file) == size && fclose(file) == 0 &&
             rename("new", "config") == 0,
         "config");
}

static void write_config(const char *text)
{
    write_config_bytes(text, strlen(text));
}

/* Nothing of it is taken, and that is told once, however often it is looked at: once a window. */
static void configure_by_no_text(void)
{
    static const char starts[] = "\0ENABLED=0\n", ends[] = "ENABLED=0\n";
    write_config_bytes(starts, sizeof(starts) - 1);
    wait_for_log("holds a byte 0");
    int windows = count_entries("second");
    while (count_entries("second") < windows + 2)
        work_after();
    need(count_in_log("holds a byte 0") == 1, "told again");
    write_config_bytes(ends, sizeof(ends)); /* with its 0 */
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + limit_ns;
    while (count_in_log("holds a byte 0") < 2) {
        need(clock_ns(CLOCK_MONOTONIC) < end, "another file is not told");
        nap();
    }
    need(has_timers(), "a file that is no text has changed something");
}

static void configure(void)
{
    write_config("# nothing yet\n");
    work_before(); /* its samples make the agent's thread, which looks */
    while (count_entries("/proc/self/task") == 1)
        work_before();
    write_config("ENABLED=0\n");
    wait_for_timers(false);
    work_between();
    write_config("LIBAGENT_ENABLED=1\nfrequency = 500\nPROFILES=cpu\nOUTPUT=second\nPERIOD=1s\n");
    wait_for_timers(true);
    work_after();
    wait_for_file("second", "*");
    need(count_in_log("profiling prog_control") == 2, "started to be stopped");
    write_config("ENABLED=0\nFREQUENCY=0\n");
    wait_for_log("FREQUENCY=0 is not understood");
    need(has_timers(), "a wrong file has changed something");
    configure_by_no_text();
    need(unlink("config") == 0, "unlink");
    wait_for_log("cannot be read: no such file or directory");
    need(has_timers(), "a file that is not there has changed something");
}

static void off_at_first(void)
{
    need(!has_timers(), "on");
    work_between();
    need(unshare(CLONE_FS) == 0, "unshare"); /* no thread of the agent is there meanwhile */
    write_config("ENABLED=on\n");
    wait_for_timers(true);
    work_after();
}

/* Of the program's threads the last one, which comes to its end while the agent is off. */
static void *end_last(void *way)
{
    puts("last");
    if (strcmp(way, "past-libc") == 0) {
        fflush(stdout);
        syscall(SYS_exit, 0);
    }
    return NULL; /* libc writes that line */
}

static void leave(char *way)
{
    pthread_t thread;
    work_before();
    while (count_entries("/proc/self/task") == 1)
        work_before();
    write_config("ENABLED=0\n");
    wait_for_timers(false);
    need(pthread_create(&thread, NULL, end_last, way) == 0, "thread");
    pthread_exit(NULL);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "toggle") == 0)
        toggle(argc > 2 ? atoi(argv[2]) : SIGUSR2);
    else if (strcmp(name, "start") == 0)
        start_by_signal();
    else if (strcmp(name, "flush") == 0)
        flush();
    else if (strcmp(name, "take") == 0)
        take();
    else if (strcmp(name, "term") == 0)
        be_ended(argc > 2 ? argv[2] : "");
    else if (strcmp(name, "hang") == 0 && argc > 3)
        be_ended_on_a_disk_that_hangs(argv[0], argv[2], argv[3]);
    else if (strcmp(name, "configure") == 0)
        configure();
    else if (strcmp(name, "leave") == 0 && argc > 2)
        leave(argv[2]);
    else if (strcmp(name, "off-at-first") == 0)
        off_at_first();
    else
        show("USR1", SIGUSR1);
    return 0;
}
