/* CFLAGS: -O2 -fomit-frame-pointer */
/* LIBS: -lpthread */
/* prog_wall_threads [MILLISECONDS [USER]]: threads that wait in known ways, that run, that do both,
 * that are short, for so long. With USER, it becomes that user first. Prints what each did, in
 * nanoseconds on the wall: its life, how much of it it spun, and of one that does both how much
 * later than asked for its waits ended: it was ready then, and had no processor. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "test/preload/program.h"

static uint64_t duration_ns;
static int empty_pipe[2], poller;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static struct timespec from_now(void)
{
    uint64_t end = clock_ns(CLOCK_REALTIME) + duration_ns;
    return (struct timespec){(time_t)(end / 1000000000), (long)(end % 1000000000)};
}

SITE static uint64_t wait_in_nanosleep(void)
{
    struct timespec time = {(time_t)(duration_ns / 1000000000), (long)(duration_ns % 1000000000)};
    nanosleep(&time, NULL);
    return 0;
}

SITE static uint64_t wait_in_poll(void)
{
    /* Room of a size that no table tells. */
    struct pollfd *one = __builtin_alloca(duration_ns % 7 * 64 + sizeof(*one));
    *one = (struct pollfd){.fd = empty_pipe[0], .events = POLLIN};
    poll(one, 1, (int)(duration_ns / 1000000));
    return 0;
}

SITE static uint64_t wait_in_epoll(void)
{
    struct epoll_event event;
    epoll_wait(poller, &event, 1, (int)(duration_ns / 1000000));
    return 0;
}

SITE static uint64_t wait_in_condition(void)
{
    struct timespec end = from_now();
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&condition, &mutex, &end);
    pthread_mutex_unlock(&mutex);
    return 0;
}

SITE static uint64_t wait_in_semaphore(void)
{
    struct timespec end = from_now();
    sem_timedwait(&semaphore, &end);
    return 0;
}

SITE static uint64_t wait_in_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty_pipe[0], &set);
    struct timeval time = {(time_t)(duration_ns / 1000000000),
                           (suseconds_t)(duration_ns % 1000000000 / 1000)};
    select(empty_pipe[0] + 1, &set, NULL, NULL, &time);
    return 0;
}

SITE static void spin_on_wall(uint64_t until)
{
    while (now_ns() < until)
        compute();
}

SITE static uint64_t run_all_the_time(void)
{
    uint64_t begin = now_ns();
    spin_on_wall(begin + duration_ns);
    return now_ns() - begin;
}

/* Spans at random, or they and the ticks would beat. */
SITE static uint64_t run_and_wait(void)
{
    uint64_t random = 4711, spun = 0, late = 0, end = now_ns() + duration_ns;
    while (now_ns() < end) {
        uint64_t begin = now_ns();
        spin_on_wall(begin + 500000 + next_random(&random) % 5000000);
        spun += now_ns() - begin;
        uint64_t span = 500 + next_random(&random) % 9000;
        begin = now_ns();
        usleep((useconds_t)span);
        late += now_ns() - begin - span * 1000;
    }
    printf("alternates-late %llu\n", (unsigned long long)late);
    return spun;
}

static const struct kind {
    const char *name;
    uint64_t (*run)(void);
    bool is_named; /* by main, as soon as it is there; else by itself */
} kinds[] = {
    {"nanosleep", wait_in_nanosleep, false}, {"poll", wait_in_poll, true},
    {"epoll", wait_in_epoll, false},         {"condition", wait_in_condition, true},
    {"semaphore", wait_in_semaphore, false}, {"select", wait_in_select, true},
    {"spins", run_all_the_time, true},       {"alternates", run_and_wait, false},
};

static void *thread(void *data)
{
    const struct kind *kind = data;
    uint64_t begin = now_ns();
    if (!kind->is_named)
        pthread_setname_np(pthread_self(), kind->name);
    uint64_t spun = kind->run();
    uint64_t life = now_ns() - begin;
    printf("%s %llu\n%s-spun %llu\n", kind->name, (unsigned long long)life, kind->name,
           (unsigned long long)spun);
    return NULL;
}

/* One after the other; each lives for less than a few ticks. */
SITE static void *short_thread(void *life)
{
    uint64_t begin = now_ns();
    pthread_setname_np(pthread_self(), "short");
    spin_on_wall(now_ns() + 1000000);
    usleep(1500);
    *(uint64_t *)life = now_ns() - begin;
    return NULL;
}

static uint64_t run_short_threads(uint64_t until)
{
    uint64_t sum = 0;
    while (now_ns() < until) {
        pthread_t one;
        uint64_t life = 0;
        if (pthread_create(&one, NULL, short_thread, &life) != 0)
            exit(1);
        pthread_join(one, NULL);
        sum += life;
    }
    return sum;
}

int main(int argc, char **argv)
{
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    pthread_t threads[KINDS];
    duration_ns = number_argument(argc, argv, 1, 2000) * 1000000;
    uid_t user = (uid_t)number_argument(argc, argv, 2, 0);
    if (user && (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0))
        return 1;
    uint64_t begin = now_ns();
    poller = epoll_create1(0);
    if (poller < 0 || pipe(empty_pipe) != 0 || sem_init(&semaphore, 0, 0) != 0)
        return 1;
    for (int i = 0; i < KINDS; i++) {
        if (pthread_create(&threads[i], NULL, thread, (void *)&kinds[i]) != 0)
            return 1;
        if (kinds[i].is_named)
            pthread_setname_np(threads[i], kinds[i].name);
    }
    uint64_t short_ns = run_short_threads(begin + duration_ns / 2);
    for (int i = 0; i < KINDS; i++)
        pthread_join(threads[i], NULL);
    printf("short %llu\nmain %llu\n", (unsigned long long)short_ns,
           (unsigned long long)(now_ns() - begin));
    return 0;
}
