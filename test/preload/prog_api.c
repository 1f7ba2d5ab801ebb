/* A program that uses the agent where it is there, by weak symbols. */
/* CFLAGS: -O1 */
/* LIBS: -ldl -lpthread */
#define LIBAGENT_WEAK
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

SITE void work_before(void)
{
    spin(300000000);
}

SITE void work_between(void)
{
    spin(300000000);
}

SITE void work_after(void)
{
    spin(300000000);
}

/* Without the agent nothing is called, and the output is the same. */
static void use_if_there(void)
{
    work_before();
    if (libagent_stop)
        libagent_stop();
    work_between();
    if (libagent_start)
        libagent_start(NULL);
    work_after();
    if (libagent_flush)
        libagent_flush(1000);
    printf("done\n");
}

/* Each call says what it gave. */
static void say(const char *name, int result)
{
    printf("%s %d\n", name, result);
}

static void count(void)
{
    int (*start)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "libagent_start");
    say("same", start == libagent_start);
    say("version", strcmp(libagent_version(), LIBAGENT_VERSION));
    say("second-start", libagent_start(NULL));
    say("first-stop", libagent_stop());
    say("last-stop", libagent_stop());
    say("stop-too-many", libagent_stop());
    say("flush-while-off", libagent_flush(1000));
    say("unknown", libagent_start("frequenzy=10"));
    say("wrong", libagent_start("frequency=0"));
    say("fixed", libagent_start("processes=*"));
    say("still-none", libagent_stop());
    say("start", libagent_start("frequency=500,profiles=cpu,alloc,MAX_FRAMES=100"));
    say("wrong-while-on", libagent_start("frequency=0"));
    say("unused-while-on", libagent_start("frequency=1"));
    say("of-three", libagent_stop());
    say("unused-again", libagent_start("frequency=2"));
    say("of-two", libagent_stop());
    say("stop", libagent_stop());
}

static void manual(void)
{
    work_before();
    say("stop-too-many", libagent_stop());
    say("start", libagent_start(NULL));
    work_between();
    say("flush", libagent_flush(5000));
    say("stop", libagent_stop());
    work_after();
}

/* To a backend, this one, that takes what it is sent and does not answer: until it goes away. */
static void start_behind_the_backend(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int backend = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[256];
    if (bind(backend, (struct sockaddr *)&address, size) != 0 || listen(backend, 100) != 0 ||
        getsockname(backend, (struct sockaddr *)&address, &size) != 0)
        exit(3);
    snprintf(text, sizeof(text), "upload_url=http://127.0.0.1:%d,exit_timeout=60s",
             ntohs(address.sin_port));
    say("start", libagent_start(text));
    work_before();
    say("stop", libagent_stop());
    say("start-too-early", libagent_start(NULL));
    close(backend);
    int result;
    while ((result = libagent_start(NULL)) == -EBUSY)
        ;
    say("start-later", result);
    work_after();
    say("stop-later", libagent_stop());
}

/* Wall time beside what the live heap keeps. */
static void wall_after_heap(void)
{
    say("heap", libagent_start("profiles=cpu,alloc,heap"));
    work_before();
    say("stop", libagent_stop());
    say("wall", libagent_start("profiles=wall"));
    work_after();
    say("stop", libagent_stop());
}

/* Tables that are larger than what a later start allows. */
static void less_memory(void)
{
    say("stop", libagent_stop());
    say("large", libagent_start("memory=256MiB,profiles=cpu,alloc,heap,alloc_interval=1"));
    for (int i = 0; i < 200000; i++)
        keep(malloc(16));
    say("stop", libagent_stop());
    say("small", libagent_start("memory=8MiB"));
    work_after();
    say("stop", libagent_stop());
}

enum { FLUSHERS = 4, FLUSHES = 100 };

static void *flush_often(void *late)
{
    for (int i = 0; i < FLUSHES; i++) {
        keep(malloc(1 << 20));
        if (libagent_flush(10000) != 0)
            __atomic_fetch_add((int *)late, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void flush_by_many(void)
{
    pthread_t threads[FLUSHERS];
    int late = 0;
    for (int i = 0; i < FLUSHERS; i++)
        pthread_create(&threads[i], NULL, flush_often, &late);
    for (int i = 0; i < FLUSHERS; i++)
        pthread_join(threads[i], NULL);
    say("late", late);
}

/* Without a wait for the files, which come nevertheless. */
static void flush_in_no_time(void)
{
    for (int late = 0; late < FLUSHES; late += libagent_flush(0) == -ETIMEDOUT)
        keep(malloc(1 << 20));
    say("then", libagent_flush(10000));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "count") == 0)
        count();
    else if (strcmp(name, "manual") == 0)
        manual();
    else if (strcmp(name, "less-memory") == 0)
        less_memory();
    else if (strcmp(name, "wall-after-heap") == 0)
        wall_after_heap();
    else if (strcmp(name, "start-behind-the-backend") == 0)
        start_behind_the_backend();
    else if (strcmp(name, "flush-by-many") == 0)
        flush_by_many();
    else if (strcmp(name, "flush-in-no-time") == 0)
        flush_in_no_time();
    else
        use_if_there();
    return 0;
}
