/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_wall_waits [SECONDS]: a thread for each kind of wait, which waits for some milliseconds,
 * over and over, for so long; and two that compute for one millisecond and poll for one. Prints of
 * each how many waits there were, how many ended by EINTR, how many before their limit (or
 * otherwise than they should). */
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "test/preload/program.h"

enum { MS = 1000000, SPAN = 3 * MS };

static int empty_pipe[2], sockets[2], poller, queue, semaphores;
static struct sockaddr full = {.sa_family = AF_UNIX};
static socklen_t full_size = sizeof(full);
static aio_context_t aio;
static sem_t semaphore;
static sigset_t usr1;
static uint32_t word;
static volatile bool stop;

static const struct timespec span = {0, SPAN};

/* Each waits for SPAN, and gives 0 when that is how it ended, or an errno. */

static int by_nanosleep(void)
{
    return nanosleep(&span, NULL) == 0 ? 0 : errno;
}

static int by_usleep(void)
{
    return usleep(SPAN / 1000) == 0 ? 0 : errno;
}

static int by_poll(void)
{
    struct pollfd one = {.fd = empty_pipe[0], .events = POLLIN};
    return poll(&one, 1, SPAN / MS) == 0 ? 0 : errno;
}

static int by_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(poller, &event, 1, SPAN / MS) == 0 ? 0 : errno;
}

static int by_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty_pipe[0], &set);
    struct timeval time = {0, SPAN / 1000};
    return select(empty_pipe[0] + 1, &set, NULL, NULL, &time) == 0 ? 0 : errno;
}

static int by_sem_timedwait(void)
{
    uint64_t end = clock_ns(CLOCK_REALTIME) + SPAN;
    struct timespec time = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    return sem_timedwait(&semaphore, &time) < 0 && errno == ETIMEDOUT ? 0 : errno;
}

static int by_futex(void)
{
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0) < 0 &&
                   errno == ETIMEDOUT
               ? 0
               : errno;
}

static int by_sigtimedwait(void)
{
    return sigtimedwait(&usr1, NULL, &span) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_recv(void)
{
    char byte;
    return recv(sockets[0], &byte, 1, 0) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_io_getevents(void)
{
    struct io_event event;
    struct timespec time = span;
    return syscall(SYS_io_getevents, aio, 1, 1, &event, &time) == 0 ? 0 : errno;
}

/* To one that takes nobody. */
static int by_connect(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct timeval time = {0, SPAN / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
    int error = connect(fd, &full, full_size) < 0 && errno == EAGAIN ? 0 : errno;
    close(fd);
    return error;
}

static int by_semtimedop(void)
{
    struct sembuf down = {.sem_op = -1};
    return semtimedop(semaphores, &down, 1, &span) < 0 && errno == EAGAIN ? 0 : errno;
}

/* These two have no limit: another thread ends them. */

struct message {
    long type;
};

static int by_msgrcv(void)
{
    struct message message;
    return msgrcv(queue, &message, 0, 1, 0) == 0 ? 0 : errno;
}

static int by_semop(void)
{
    struct sembuf down = {.sem_num = 1, .sem_op = -1};
    return semop(semaphores, &down, 1) == 0 ? 0 : errno;
}

static void *end_the_others(void *unused)
{
    const struct message message = {1};
    struct sembuf up = {.sem_num = 1, .sem_op = 1};
    while (!stop) {
        usleep(SPAN / 1000);
        msgsnd(queue, &message, 0, 0);
        semop(semaphores, &up, 1);
    }
    return unused;
}

SITE static int by_turns(void)
{
    struct pollfd one = {.fd = empty_pipe[0], .events = POLLIN};
    spin(MS);
    return poll(&one, 1, 1) == 0 ? 0 : errno;
}

static struct kind {
    const char *name;
    int (*wait)(void);
    uint64_t limit_ns; /* 0: none */
    uint64_t waits, interrupted, early, failed;
    int error;
    pthread_t thread;
} kinds[] = {
    {.name = "nanosleep", .wait = by_nanosleep, .limit_ns = SPAN},
    {.name = "usleep", .wait = by_usleep, .limit_ns = SPAN},
    {.name = "poll", .wait = by_poll, .limit_ns = SPAN},
    {.name = "epoll_wait", .wait = by_epoll_wait, .limit_ns = SPAN},
    {.name = "select", .wait = by_select, .limit_ns = SPAN},
    {.name = "sem_timedwait", .wait = by_sem_timedwait, .limit_ns = SPAN},
    {.name = "futex", .wait = by_futex, .limit_ns = SPAN},
    {.name = "sigtimedwait", .wait = by_sigtimedwait, .limit_ns = SPAN},
    {.name = "recv", .wait = by_recv}, /* these two count in the kernel's ticks */
    {.name = "connect", .wait = by_connect},
    {.name = "semtimedop", .wait = by_semtimedop, .limit_ns = SPAN},
    {.name = "io_getevents", .wait = by_io_getevents, .limit_ns = SPAN},
    {.name = "msgrcv", .wait = by_msgrcv},
    {.name = "semop", .wait = by_semop},
    {.name = "turns", .wait = by_turns, .limit_ns = 2 * MS},
    {.name = "turns-too", .wait = by_turns, .limit_ns = 2 * MS},
};

static void *wait_again(void *data)
{
    struct kind *kind = data;
    pthread_setname_np(pthread_self(), kind->name);
    while (!stop) {
        uint64_t begin = clock_ns(CLOCK_MONOTONIC);
        int error = kind->wait();
        uint64_t took = clock_ns(CLOCK_MONOTONIC) - begin;
        kind->waits++;
        kind->interrupted += error == EINTR;
        kind->failed += error && error != EINTR;
        kind->early += took < kind->limit_ns;
        kind->error = error ? error : kind->error;
    }
    return NULL;
}

static void need(bool good)
{
    if (good)
        return;
    perror("prog_wall_waits");
    exit(1);
}

static void set_up(void)
{
    struct sockaddr nameless = {.sa_family = AF_UNIX};
    struct timeval time = {0, SPAN / 1000};
    struct epoll_event never = {.events = EPOLLIN};
    need(pipe(empty_pipe) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    need(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
    need((poller = epoll_create1(0)) >= 0 &&
         epoll_ctl(poller, EPOLL_CTL_ADD, empty_pipe[0], &never) == 0);
    need(sem_init(&semaphore, 0, 0) == 0 && syscall(SYS_io_setup, 4, &aio) == 0);
    need((queue = msgget(IPC_PRIVATE, 0600)) >= 0 &&
         (semaphores = semget(IPC_PRIVATE, 2, 0600)) >= 0);
    /* A name in the abstract space, bound by the kernel; a line of one that is full. */
    static struct sockaddr_un name;
    socklen_t size = sizeof(name);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    need(listener >= 0 && bind(listener, &nameless, sizeof(nameless.sa_family)) == 0 &&
         listen(listener, 0) == 0 && getsockname(listener, (struct sockaddr *)&name, &size) == 0);
    memcpy(&full, &name, size);
    full_size = size;
    int first = socket(AF_UNIX, SOCK_STREAM, 0);
    need(first >= 0 && connect(first, &full, full_size) == 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
}

int main(int argc, char **argv)
{
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    pthread_t helper;
    uint64_t seconds = number_argument(argc, argv, 1, 3);
    set_up();
    for (int i = 0; i < KINDS; i++)
        need(pthread_create(&kinds[i].thread, NULL, wait_again, &kinds[i]) == 0);
    need(pthread_create(&helper, NULL, end_the_others, NULL) == 0);
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000;
    while (clock_ns(CLOCK_MONOTONIC) < end)
        usleep(10000);
    /* The helper goes last: it ends waits that have no limit. */
    stop = true;
    const struct message message = {1};
    struct sembuf up = {.sem_num = 1, .sem_op = 1};
    msgsnd(queue, &message, 0, 0);
    semop(semaphores, &up, 1);
    for (int i = 0; i < KINDS; i++)
        pthread_join(kinds[i].thread, NULL);
    pthread_join(helper, NULL);
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    for (int i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        printf("%s %llu\n%s-interrupted %llu\n%s-early %llu\n%s-failed %llu (error %d)\n",
               kind->name, (unsigned long long)kind->waits, kind->name,
               (unsigned long long)kind->interrupted, kind->name, (unsigned long long)kind->early,
               kind->name, (unsigned long long)kind->failed, kind->error);
    }
    return 0;
}
