/* CFLAGS: -O1 */
/* LIBS: -lpthread */
/* prog_harm_unshare HOW: a program with one thread that, after the agent's threads were born (they
 * are waited for, where it is preloaded), enters namespaces that the kernel gives only to a process
 * with one thread: by unshare, by syscall, by setns into that of a child, twenty times over; or
 * asks for what is refused. Prints what the calls gave, and uses CPU before and after.
 * threads: makes eight, which all at once and again and again unshare what a thread may have for
 * its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

static int tasks(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = -2; /* . and .. */
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

SITE static void burn_before(uint64_t ns)
{
    spin(ns);
}

SITE static void burn_after(uint64_t ns)
{
    spin(ns);
}

/* A child in a user namespace of its own, whose file is opened; it ends when told. */
static int other_namespace(void)
{
    char path[64];
    int ends[2];
    char byte = 0;
    if (pipe(ends))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        byte = (char)unshare(CLONE_NEWUSER);
        (void)!write(ends[1], &byte, 1);
        pause();
        _exit(0);
    }
    if (read(ends[0], &byte, 1) != 1 || byte != 0)
        exit(2);
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)child);
    int fd = open(path, O_RDONLY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return fd;
}

static void *unshare_often(void *data)
{
    int *good = data;
    for (int i = 0; i < 100; i++) {
        *good += unshare(CLONE_FS) == 0;
        spin(1000000);
        usleep(1000);
    }
    return NULL;
}

static int in_threads(void)
{
    pthread_t threads[8];
    int good[8] = {0};
    int sum = 0;
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, unshare_often, &good[i]))
            exit(3);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        sum += good[i];
    }
    return sum;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    bool has_agent = getenv("LD_PRELOAD") != NULL;
    burn_before(500000000);
    while (has_agent && tasks() < 3)
        burn_before(50000000);
    if (strcmp(how, "unshare") == 0) {
        printf("unshare: %d\n", unshare(CLONE_NEWUSER));
    } else if (strcmp(how, "syscall") == 0) {
        printf("syscall: %ld\n", syscall(SYS_unshare, CLONE_NEWUSER));
    } else if (strcmp(how, "setns") == 0) {
        int fd = other_namespace();
        printf("setns: %d\n", setns(fd, CLONE_NEWUSER));
    } else if (strcmp(how, "refused") == 0) {
        int result = unshare(-1);
        printf("refused: %d %d\n", result, errno == EINVAL);
    } else if (strcmp(how, "threads") == 0) {
        printf("threads: %d\n", in_threads());
    } else {
        int good = 0;
        for (int i = 0; i < 20; i++) {
            good += unshare(CLONE_NEWUSER) == 0;
            burn_before(20000000);
        }
        printf("loop: %d\n", good);
    }
    burn_after(1500000000);
    return 0;
}
