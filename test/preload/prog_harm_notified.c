/* CFLAGS: -O1 */
/* LIBS: -lrt -lpthread */
/* prog_harm_notified timer|queue: libc makes a thread for each of TIMES events, which computes for
 * 0.1 s, while the main thread, which has done next to nothing before, is asleep. Prints the CPU
 * time of the process ("process-cpu"). */
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { TIMES = 12 };

static mqd_t queue;
static int done;

SITE static void notified(union sigval value)
{
    struct sigevent again = {
        .sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified, .sigev_value = value};
    spin(100000000);
    char message;
    if (value.sival_int && (mq_receive(queue, &message, 1, NULL) != 1 || mq_notify(queue, &again)))
        _exit(3);
    __atomic_add_fetch(&done, 1, __ATOMIC_ACQ_REL);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}

static int by_timer(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified};
    struct itimerspec each = {.it_interval.tv_nsec = 200000000, .it_value.tv_nsec = 200000000};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each, NULL))
        return 1;
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < TIMES)
        nap();
    return timer_delete(timer) != 0;
}

static int by_queue(void)
{
    char name[64];
    struct mq_attr shape = {.mq_maxmsg = 1, .mq_msgsize = 1};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = notified,
                             .sigev_value.sival_int = 1};
    snprintf(name, sizeof(name), "/harm_notified.%d", getpid());
    queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &shape);
    if (queue == (mqd_t)-1 || mq_unlink(name) || mq_notify(queue, &event))
        return 1;
    for (int sent = 0; sent < TIMES; sent++) {
        while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < sent)
            nap();
        if (mq_send(queue, "", 1, 0))
            return 1;
    }
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < TIMES)
        nap();
    return 0;
}

int main(int argc, char **argv)
{
    int status = argc > 1 && strcmp(argv[1], "queue") == 0 ? by_queue() : by_timer();
    printf("process-cpu %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return status;
}
