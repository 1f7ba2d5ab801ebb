/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_waits: waits with a time limit, each 24 times, half of them by a thread that computed
 * for some ticks just before, while other threads compute and allocate. Prints of each how many
 * ended otherwise than by their limit, and how many before it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { TIMES = 24, BURNERS = 2, MS = 1000000, DESCRIPTORS = 500 };

static int pipe_ends[2], sockets[2], poller, timer, listener;
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sigset_t usr1;
static volatile bool stop;

static struct timespec span(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static struct timespec from_now(clockid_t clock, uint64_t ns)
{
    return span(clock_ns(clock) + ns);
}

/* Each waits for `ns`, and gives 0 when that is how it ended, or an errno. */

static int by_nanosleep(uint64_t ns)
{
    struct timespec time = span(ns);
    return nanosleep(&time, NULL) == 0 ? 0 : errno;
}

static int by_clock_nanosleep(uint64_t ns)
{
    struct timespec end = from_now(CLOCK_MONOTONIC, ns);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}

static int by_usleep(uint64_t ns)
{
    return usleep((useconds_t)(ns / 1000)) == 0 ? 0 : errno;
}

static int by_thrd_sleep(uint64_t ns)
{
    struct timespec time = span(ns);
    return thrd_sleep(&time, NULL) == 0 ? 0 : EINTR;
}

/* The kernel looks at them all first: ticks come there too. */
static int by_poll(uint64_t ns)
{
    struct pollfd many[DESCRIPTORS];
    for (int i = 0; i < DESCRIPTORS; i++)
        many[i] = (struct pollfd){.fd = pipe_ends[0], .events = POLLIN};
    return poll(many, DESCRIPTORS, (int)(ns / MS)) == 0 ? 0 : errno;
}

static int by_ppoll(uint64_t ns)
{
    struct timespec time = span(ns);
    struct pollfd one = {.fd = pipe_ends[0], .events = POLLIN};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&one, 1, &time, &none) == 0 ? 0 : errno;
}

static int by_select(uint64_t ns)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipe_ends[0], &set);
    struct timeval time = {0, (suseconds_t)(ns / 1000)};
    return select(pipe_ends[0] + 1, &set, NULL, NULL, &time) == 0 ? 0 : errno;
}

static int by_epoll_wait(uint64_t ns)
{
    struct epoll_event event;
    return epoll_wait(poller, &event, 1, (int)(ns / MS)) == 0 ? 0 : errno;
}

static int by_sem_timedwait(uint64_t ns)
{
    struct timespec end = from_now(CLOCK_REALTIME, ns);
    return sem_timedwait(&semaphore, &end) < 0 && errno == ETIMEDOUT ? 0 : errno;
}

static int by_cond_timedwait(uint64_t ns)
{
    struct timespec end = from_now(CLOCK_REALTIME, ns);
    pthread_mutex_lock(&mutex);
    int error = pthread_cond_timedwait(&condition, &mutex, &end);
    pthread_mutex_unlock(&mutex);
    return error == ETIMEDOUT ? 0 : error;
}

static int by_rwlock(uint64_t ns)
{
    struct timespec end = from_now(CLOCK_REALTIME, ns);
    int error = pthread_rwlock_timedwrlock(&rwlock, &end);
    return error == ETIMEDOUT ? 0 : error;
}

/* A limit on a socket: SA_RESTART does not help there. */
static void limit_socket(uint64_t ns)
{
    struct timeval time = {0, (suseconds_t)(ns / 1000)};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
}

static int by_recv(uint64_t ns)
{
    char byte;
    limit_socket(ns);
    return recv(sockets[0], &byte, 1, 0) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_recvmsg(uint64_t ns)
{
    char byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    limit_socket(ns);
    return recvmsg(sockets[0], &message, 0) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_accept(uint64_t ns)
{
    struct timeval time = {0, (suseconds_t)(ns / 1000)};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    return accept(listener, NULL, NULL) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_sigtimedwait(uint64_t ns)
{
    struct timespec time = span(ns);
    return sigtimedwait(&usr1, NULL, &time) < 0 && errno == EAGAIN ? 0 : errno;
}

static int by_timerfd(uint64_t ns)
{
    uint64_t count = 0;
    struct itimerspec once = {.it_value = span(ns)};
    timerfd_settime(timer, 0, &once, NULL);
    ssize_t got = read(timer, &count, sizeof(count));
    return got == sizeof(count) && count == 1 ? 0 : errno;
}

static const struct {
    const char *name;
    int (*wait)(uint64_t);
} waits[] = {
    {"nanosleep", by_nanosleep},
    {"clock_nanosleep", by_clock_nanosleep},
    {"usleep", by_usleep},
    {"thrd_sleep", by_thrd_sleep},
    {"poll", by_poll},
    {"ppoll", by_ppoll},
    {"select", by_select},
    {"epoll_wait", by_epoll_wait},
    {"sem_timedwait", by_sem_timedwait},
    {"pthread_cond_timedwait", by_cond_timedwait},
    {"pthread_rwlock_timedwrlock", by_rwlock},
    {"recv", by_recv},
    {"recvmsg", by_recvmsg},
    {"accept", by_accept},
    {"sigtimedwait", by_sigtimedwait},
    {"read of a timer", by_timerfd},
};

SITE static void compute_before_wait(uint64_t ns)
{
    spin(ns);
    keep(&ns);
}

SITE static void *burn(void *data)
{
    while (!stop) {
        for (int i = 0; i < 1000; i++) {
            free(malloc(1000));
            compute();
        }
        /* The thread that waits must come to its turn on a machine with two processors. */
        usleep(1000);
    }
    return data;
}

static void need(bool good)
{
    if (good)
        return;
    perror("prog_harm_waits");
    exit(1);
}

static void set_up(void)
{
    /* A name in the abstract space, bound by the kernel. */
    struct sockaddr nameless = {.sa_family = AF_UNIX};
    need(pipe(pipe_ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    need((listener = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0 &&
         bind(listener, &nameless, sizeof(nameless.sa_family)) == 0 && listen(listener, 1) == 0);
    need((poller = epoll_create1(0)) >= 0 && (timer = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0);
    need(sem_init(&semaphore, 0, 0) == 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
}

static void *hold_lock(void *held)
{
    pthread_rwlock_rdlock(&rwlock);
    sem_post(held);
    while (!stop)
        usleep(1000);
    return NULL;
}

int main(void)
{
    pthread_t threads[BURNERS], holder;
    sem_t held;
    set_up();
    need(sem_init(&held, 0, 0) == 0 && pthread_create(&holder, NULL, hold_lock, &held) == 0);
    sem_wait(&held);
    for (int i = 0; i < BURNERS; i++)
        need(pthread_create(&threads[i], NULL, burn, NULL) == 0);
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        int wrong = 0, last = 0, cut_short = 0;
        for (int k = 0; k < TIMES; k++) {
            uint64_t ns = (1 + (uint64_t)k % 4) * MS;
            if (k % 2)
                compute_before_wait(6 * MS);
            uint64_t begin = clock_ns(CLOCK_MONOTONIC);
            int error = waits[i].wait(ns);
            cut_short += clock_ns(CLOCK_MONOTONIC) - begin < ns;
            wrong += error != 0;
            last = error ? error : last;
        }
        printf("%s: %d of %d failed (error %d), %d were cut short\n", waits[i].name, wrong, TIMES,
               last, cut_short);
    }
    stop = true;
    for (int i = 0; i < BURNERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(holder, NULL);
    return 0;
}
