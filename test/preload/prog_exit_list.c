/* CFLAGS: -O2 */
/* prog_exit_list: forks all the time, for a second, while another thread allocates; each
 * registering of a function with exit takes 5 ms, and each child tells whether it was born in one.
 * Prints how many did, and how often something was registered. */
#include <pthread.h>
#include <sys/wait.h>

#include "test/preload/program.h"

static volatile int in_list, registered;

/* In the place of libc's. */
int __cxa_atexit(void (*function)(void *), void *argument, void *dso);

int __cxa_atexit(void (*function)(void *), void *argument, void *dso)
{
    (void)function, (void)argument, (void)dso;
    in_list = 1;
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    in_list = 0;
    registered++;
    return 0;
}

static volatile int is_over;

static void *allocate(void *unused)
{
    while (!is_over)
        allocate_and_spin(10000);
    return unused;
}

int main(void)
{
    pthread_t thread;
    int born_in = 0, status = 0;
    pthread_create(&thread, NULL, allocate, NULL);
    for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + 1000000000; clock_ns(CLOCK_MONOTONIC) < end;) {
        pid_t child = fork();
        if (child == 0)
            _exit(in_list);
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 2;
        born_in += status != 0;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("registered %d\nborn-in-list %d\n", registered, born_in);
    return 0;
}
