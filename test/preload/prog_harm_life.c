/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_life CASE: a process that changes what it is, and works before and after.
 *   daemon: becomes a daemon by daemon(); the first process waits for it and tells how it ended.
 *   chroot [KEPT]: changes its root; KEPT 1: $LIBAGENT_OUTPUT is a folder there too.
 *   setuid: gives up root for good, as it runs in threads.
 *   segv, abort, kill, _exit: so it ends, with cores allowed.
 * Prints what the program can see; where the agent may be seen, after "tasks". */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { NOBODY = 65534, THREADS = 2 };
static const uint64_t work_ns = 1500000000;

/* For so long by the clock on the wall, since it is there that windows end, and with some CPU time
 * on a busy machine too. */
static void work(uint64_t ns)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns, cpu_end = thread_cpu_ns() + ns / 4;
    while (clock_ns(CLOCK_MONOTONIC) < end || thread_cpu_ns() < cpu_end) {
        void *block = malloc(1000);
        keep(block);
        free(block);
        for (int i = 0; i < 20; i++)
            compute();
    }
}

SITE static void work_before(void)
{
    work(work_ns);
    keep(&work_ns);
}

SITE static void work_after(void)
{
    work(work_ns);
    keep(&work_ns);
}

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- daemon ---- */

static void run_daemon(int told)
{
    need(daemon(0, 0) == 0, "daemon");
    work_after();
    char folder[PATH_MAX], text[PATH_MAX + 64];
    need(getcwd(folder, sizeof(folder)) != NULL, "getcwd");
    int length = snprintf(text, sizeof(text), "daemon-pid %d\nin %s, leads its session %d\n",
                          getpid(), folder, getsid(0) == getpid());
    need(write(told, text, (size_t)length) == length, "write");
    exit(21);
}

static void become_daemon(void)
{
    int ends[2], status;
    /* The daemon is this process's to wait for. */
    need(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(ends) == 0, "pipe");
    work_before();
    fflush(stdout);
    if (fork() == 0)
        run_daemon(ends[1]);
    close(ends[1]);
    char text[PATH_MAX + 64];
    for (ssize_t got; (got = read(ends[0], text, sizeof(text))) > 0;)
        fwrite(text, 1, (size_t)got, stdout);
    while (wait(&status) > 0)
        printf("ended: %#x\n", status);
}

/* ---- chroot ---- */

static void make_folders(char *path)
{
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    need(mkdir(path, 0700) == 0, path);
}

static void change_root(bool kept)
{
    char path[PATH_MAX];
    need(mkdir("jail", 0755) == 0, "mkdir");
    snprintf(path, sizeof(path), "jail%s", getenv("LIBAGENT_OUTPUT"));
    if (kept)
        make_folders(path);
    work_before();
    need(chroot("jail") == 0 && chdir("/") == 0, "chroot");
    work_after();
    printf("root is the jail: %d\n", access("/proc/self", F_OK) != 0);
}

/* ---- setuid ---- */

/* Tasks of the process, or those whose line "Uid:" or "Gid:" has another number in it. */
static int count_tasks(unsigned other_than)
{
    char path[64], line[256];
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    need(folder != NULL, "/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) {
        unsigned ids[4];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        bool differs = !status;
        while (status && fgets(line, sizeof(line), status)) {
            if (sscanf(line, "Uid: %u %u %u %u", ids, ids + 1, ids + 2, ids + 3) != 4 &&
                sscanf(line, "Gid: %u %u %u %u", ids, ids + 1, ids + 2, ids + 3) != 4)
                continue;
            for (int i = 0; i < 4; i++)
                differs |= ids[i] != other_than;
        }
        if (status)
            fclose(status);
        count += differs;
    }
    closedir(folder);
    return count;
}

static volatile bool stop;

static void *work_until_stopped(void *data)
{
    while (!stop) {
        work(1000000);
        usleep(10000);
    }
    return data;
}

static void change_user(void)
{
    pthread_t threads[THREADS];
    need(chmod(".", 01777) == 0 && chmod("profiles", 01777) == 0, "chmod");
    for (int i = 0; i < THREADS; i++)
        need(pthread_create(&threads[i], NULL, work_until_stopped, NULL) == 0, "thread");
    work_before();
    printf("tasks %d\n", count_tasks(UINT_MAX));
    need(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "setuid");
    printf("still root: %d\n", count_tasks(NOBODY));
    work_after();
    printf("still root: %d\n", count_tasks(NOBODY));
    printf("root again: %d", setuid(0));
    printf(" %d\n", errno);
    printf("ids %d %d %d %d, groups %d\n", getuid(), geteuid(), getgid(), getegid(),
           getgroups(0, NULL));
    stop = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- ends ---- */

static void *crash(void *data)
{
    work(100000000);
    *(volatile int *)data = 1;
    return NULL;
}

static void end(const char *way)
{
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CORE, &limit);
    pthread_t thread;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread, NULL, work_until_stopped, NULL);
    work(200000000);
    printf("working\n");
    fflush(stdout);
    if (strcmp(way, "segv") == 0) {
        pthread_create(&thread, NULL, crash, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(way, "abort") == 0) {
        abort();
    } else if (strcmp(way, "kill") == 0) {
        kill(getpid(), SIGKILL);
    }
    _exit(41);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "daemon") == 0)
        become_daemon();
    else if (strcmp(name, "chroot") == 0)
        change_root(number_argument(argc, argv, 2, 0) != 0);
    else if (strcmp(name, "setuid") == 0)
        change_user();
    else
        end(name);
    return 0;
}
