/* CFLAGS: -O2 -shared -fPIC -Wl,-soname,libforkhandlers.so */
/* LIBS: -lpthread -ldl */
/* prog_fork_handlers: not a program but a library, whose constructor registers handlers of fork
 * that do what runtimes do there: wait for a signal, load an object. They tell how it went. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void on_signal(int signal)
{
    (void)signal;
    came = 1;
}

static void work(const char *where)
{
    char text[128];
    came = 0;
    signal(SIGUSR2, on_signal);
    pthread_kill(pthread_self(), SIGUSR2);
    bool has_come = came; /* at once, as it is sent to the calling thread */
    void *object = dlopen("libm.so.6", RTLD_NOW);
    bool has_symbol = object && dlsym(object, "cos");
    if (object)
        dlclose(object);
    int length =
        snprintf(text, sizeof(text), "%s: signal %d, object %d\n", where, has_come, has_symbol);
    (void)!write(STDOUT_FILENO, text, (size_t)length);
}

static void prepare(void)
{
    work("prepare");
}

static void parent(void)
{
    work("parent");
}

static void child(void)
{
    work("child");
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(prepare, parent, child);
}
