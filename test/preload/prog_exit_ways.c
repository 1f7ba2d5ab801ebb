/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_exit_ways WAY: works (200 ms of CPU time, 100 MB allocated), then ends by WAY. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/preload/program.h"

SITE static void work(void)
{
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(100000);
        keep(block);
        free(block);
    }
    spin(200000000);
    keep(&work);
}

static void say(void)
{
    static const char text[] = "handler\n";
    keep(malloc(100000));
    if (write(1, text, sizeof(text) - 1) < 0)
        _exit(1);
}

static void *exit_here(void *data)
{
    work();
    exit(*(int *)data);
}

static void *last_thread(void *data)
{
    work();
    return data;
}

/* Allocates and computes while the process ends around it. */
static void *busy(void *data)
{
    for (;;) {
        free(malloc(100));
        compute();
    }
    return data;
}

static void exit_again(void)
{
    _exit(34);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    pthread_t thread;
    int code = 31;
    atexit(say);
    at_quick_exit(say);
    work();
    if (strcmp(way, "exit") == 0)
        exit(32);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(33);
    if (strcmp(way, "_exit") == 0)
        _exit(34);
    if (strcmp(way, "thread") == 0)
        syscall(SYS_exit, 36);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "term") == 0)
        raise(SIGTERM);
    if (strcmp(way, "segv") == 0)
        raise(SIGSEGV);
    if (strcmp(way, "exit_again") == 0)
        atexit(exit_again);
    if (strcmp(way, "pthread_exit") == 0) {
        pthread_create(&thread, NULL, last_thread, NULL);
        pthread_exit(NULL);
    }
    if (strcmp(way, "exit_in_thread") == 0) {
        pthread_create(&thread, NULL, exit_here, &code);
        pthread_join(thread, NULL);
    }
    if (strcmp(way, "busy") == 0)
        for (int i = 0; i < 8; i++)
            pthread_create(&thread, NULL, busy, NULL);
    return 35;
}
