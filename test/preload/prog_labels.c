/* A program that labels what it does, by weak symbols: f and g in turn, h in another thread, each
 * under its own label, u under none. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#define LIBAGENT_WEAK
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

static const uint64_t part_ns = 60000000;

/* With a pause of some ticks: the thread's labels are others when it is told of. */
static void work_and_nap(void)
{
    allocate_and_spin(part_ns);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
}

SITE static void f(void)
{
    work_and_nap();
    keep("f");
}

SITE static void g(void)
{
    work_and_nap();
    keep("g");
}

SITE static void h(void)
{
    work_and_nap();
    keep("h");
}

SITE static void u(void)
{
    work_and_nap();
    keep("u");
}

static void *other(void *inherited)
{
    u();
    if (!libagent_label_set)
        return inherited;
    libagent_label_set("work", "h");
    libagent_label_set_number("number", -7);
    h();
    return inherited;
}

static void in_turn(void)
{
    pthread_t thread;
    for (int i = 0; i < 5; i++) {
        if (libagent_label_set)
            libagent_label_set("work", "f");
        f();
        if (i == 0)
            pthread_create(&thread, NULL, other, NULL);
        if (libagent_label_set)
            libagent_label_set("work", "g");
        g();
        if (libagent_label_clear)
            libagent_label_clear("work");
        u();
    }
    pthread_join(thread, NULL);
    printf("done\n");
}

static void fork_child(void)
{
    libagent_label_set("work", "f");
    f();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        u();
        exit(0);
    }
    waitpid(pid, NULL, 0);
    f();
    printf("child %d\n", (int)pid);
}

static void restart(void)
{
    libagent_label_set("work", "f");
    f();
    printf("stop %d\n", libagent_stop());
    printf("while-off %d\n", libagent_label_set("work", "g"));
    printf("start %d\n", libagent_start(NULL));
    u();
    printf("clear %d\n", libagent_label_clear("work"));
}

static void errors(void)
{
    static const char *const reserved[] = {
        "thread name", "thread id", "state",           "approximate",    "age_seconds",
        "bytes",       "capture",   "process_capture", "capture_number", "process_capture_number"};
    char text[130];
    memset(text, 'x', sizeof(text));
    text[129] = 0;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        printf("reserved-%zu %d\n", i, libagent_label_set(reserved[i], "x"));
    printf("empty-key %d\n", libagent_label_set("", "x"));
    printf("empty-text %d\n", libagent_label_set("key", ""));
    printf("no-key %d\n", libagent_label_set(NULL, "x"));
    printf("long-text %d\n", libagent_label_set("key", text));
    text[128] = 0;
    printf("longest-text %d\n", libagent_label_set("key", text));
    text[33] = 0;
    printf("long-key %d\n", libagent_label_set_number(text, 1));
    for (char key[] = "a"; key[0] < 'a' + 7; key[0]++)
        printf("%s %d\n", key, libagent_label_set(key, "x"));
    printf("ninth %d\n", libagent_label_set("h", "x"));
    printf("replaced %d\n", libagent_label_set_number("key", 5));
    printf("clear %d\n", libagent_label_clear("key"));
    printf("clear-again %d\n", libagent_label_clear("key"));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "fork") == 0)
        fork_child();
    else if (strcmp(what, "restart") == 0)
        restart();
    else if (strcmp(what, "errors") == 0)
        errors();
    else
        in_turn();
    return 0;
}
