/* CFLAGS: -O1 -fsanitize=thread */
/* LIBS: -lpthread */
/* prog_gcc_tsan: under the thread sanitizer. Works a little and waits a little, in main and in one
 * short thread after the other, until three windows' profiles of CPU time lie in LIBAGENT_OUTPUT.
 * Then a fork child makes a thread, which the sanitizer refuses where it knows of one more in the
 * parent. */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { WINDOWS = 3, WORK_NS = 2000000, WAIT_NS = 40000000 };

SITE static void work(void)
{
    allocate_and_spin(WORK_NS);
}

static void *thread_main(void *argument)
{
    work();
    return argument;
}

static void make_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        exit(1);
    pthread_join(thread, NULL);
}

static int windows(void)
{
    int count = 0;
    DIR *folder = opendir(getenv("LIBAGENT_OUTPUT"));
    struct dirent *entry;
    while ((entry = readdir(folder)))
        count += strstr(entry->d_name, ".cpu.pb.gz") != NULL;
    closedir(folder);
    return count;
}

int main(void)
{
    int status = -1;
    while (windows() < WINDOWS) {
        work();
        make_thread();
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
    }
    pid_t child = fork();
    if (child == 0) {
        make_thread();
        _exit(7);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
