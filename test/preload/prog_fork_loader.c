/* CFLAGS: -O2 */
/* LIBS: -ldl -lpthread */
/* prog_fork_loader held|free PLUGIN: forks while another thread is inside dl_iterate_phdr ("held":
 * the child has the loader's lock as it is then, and nobody who gives it back), or beside it. The
 * child lives for two seconds, also in code that no object has; what it needs of the loader it has
 * without an agent: the objects that are there, or, when the lock is free, PLUGIN. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/made_code.h"
#include "test/preload/program.h"

typedef uint64_t work_fn(uint64_t ns);

static int ends[2];

static int wait_inside(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    if (write(ends[1], "1", 1) != 1)
        abort();
    for (;;)
        pause();
}

static void *walk(void *held)
{
    if (held)
        dl_iterate_phdr(wait_inside, NULL);
    return wait_inside(NULL, 0, NULL) ? NULL : held;
}

SITE static void child_work(made_code *made)
{
    use_made_code(made);
}

static void use_objects_that_are_there(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    printf("libc.so.6 %d, malloc %d, closed %d\n", libc != NULL, dlsym(libc, "malloc") != NULL,
           dlclose(libc));
}

SITE static void use_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW);
    work_fn *work = plugin ? (work_fn *)dlsym(plugin, "plugin_work") : NULL;
    printf("plugin %d\n", work && work(300000000) >= 300000000);
}

static int child(bool held, const char *plugin)
{
    child_work(make_code());
    if (held)
        use_objects_that_are_there();
    else
        use_plugin(plugin);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(7);
    int status = 0;
    waitpid(pid, &status, 0);
    printf("grandchild %#x\n", (unsigned)status);
    fflush(stdout);
    exit(8);
}

int main(int argc, char **argv)
{
    bool held = argc > 1 && strcmp(argv[1], "held") == 0;
    pthread_t thread;
    char byte;
    if (argc < 3 || pipe(ends) != 0 ||
        pthread_create(&thread, NULL, walk, held ? &held : NULL) != 0 ||
        read(ends[0], &byte, 1) != 1)
        return 1;
    pid_t pid = fork();
    if (pid == 0)
        child(held, argv[2]);
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child %#x\n", (unsigned)status);
    fflush(stdout);
    _exit(0);
}
