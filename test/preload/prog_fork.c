/* CFLAGS: -O2 */
/* LIBS: -lpthread -lutil */
/* prog_fork SHAPE: processes made in many shapes, each allocating on both sides. Prints the same in
 * each run. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

extern char **environ;

static void allocate(void)
{
    for (size_t i = 0; i < 3000; i++) {
        char *block = malloc(i % 300 + 1);
        keep(block);
        block = realloc(block, i % 500 + 1);
        keep(block);
        free(block);
    }
}

static void wait_and_tell(const char *what, pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        printf("%s: not waited for\n", what);
    printf("%s: status %#x\n", what, (unsigned)status);
}

static void child_returns_and_exits(void)
{
    for (int i = 0; i < 20; i++) {
        fflush(stdout);
        pid_t pid = fork();
        allocate();
        if (pid == 0)
            exit(i);
        wait_and_tell("child", pid);
    }
}

static void fork_in_fork(void)
{
    fflush(stdout);
    pid_t pid = fork();
    allocate();
    if (pid == 0) {
        pid_t inner = fork();
        allocate();
        if (inner == 0)
            _exit(5);
        wait_and_tell("grandchild", inner);
        exit(6);
    }
    wait_and_tell("child", pid);
}

static volatile bool stop;

static void *churn(void *data)
{
    while (!stop)
        allocate();
    return data;
}

/* Each fork happens while others are inside malloc and, at a sample, inside the agent. */
static void fork_among_threads(void)
{
    enum { THREADS = 3, FORKS = 150 };
    pthread_t threads[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            allocate();
            pthread_t thread;
            stop = true;
            if (pthread_create(&thread, NULL, churn, NULL) || pthread_join(thread, NULL))
                _exit(1);
            _exit(0);
        }
        int status = 1;
        failed += waitpid(pid, &status, 0) != pid || status != 0;
    }
    stop = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("failed: %d\n", failed);
}

static void *fork_here(void *data)
{
    fflush(stdout);
    pid_t pid = fork();
    allocate();
    if (pid == 0)
        exit(8); /* from a thread that is the child's only one */
    wait_and_tell("child of a thread", pid);
    return data;
}

static void fork_in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, fork_here, NULL);
    pthread_join(thread, NULL);
}

static void vfork_and_exec(void)
{
    for (volatile int i = 0; i < 100; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            allocate();
            execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
            _exit(1);
        }
        allocate();
        if (i % 25 == 0)
            wait_and_tell("vfork", pid);
        else
            waitpid(pid, NULL, 0);
    }
    pid_t pid = vfork();
    if (pid == 0)
        _exit(11);
    wait_and_tell("vfork without exec", pid);
}

static void spawn(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT, 0600);
    char *arguments[] = {"sh", "-c", "echo text; exit 12", NULL};
    pid_t pid = 0;
    printf("posix_spawn %d\n", posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ));
    wait_and_tell("posix_spawn", pid);
    printf("posix_spawnp %d\n", posix_spawnp(&pid, "sh", NULL, NULL, arguments, environ));
    wait_and_tell("posix_spawnp", pid);
    printf("missing %d\n", posix_spawn(&pid, "/no/such", NULL, NULL, arguments, environ));
    printf("system %#x\n", (unsigned)system("echo by system; exit 13"));
    FILE *pipe = popen("echo by popen; exit 14", "r");
    char line[100] = "";
    if (fgets(line, sizeof(line), pipe))
        printf("popen %s", line);
    printf("pclose %#x\n", (unsigned)pclose(pipe));
}

static void daemonize(void)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        if (daemon(0, 0) != 0)
            exit(1);
        allocate();
        exit(write(ends[1], "daemon", 6) != 6);
    }
    close(ends[1]);
    char text[10] = "";
    if (read(ends[0], text, sizeof(text)) != 6)
        exit(1);
    printf("%s\n", text);
    wait_and_tell("daemon's parent", pid);
}

/* Without libc's handlers at fork: the agent is not told. */
static void unannounced(void)
{
    for (int i = 0; i < 10; i++) {
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        allocate();
        if (pid == 0)
            _exit(15);
        if (i == 0)
            wait_and_tell("clone", pid);
    }
#if __GLIBC_PREREQ(2, 34)
    for (int i = 0; i < 10; i++) {
        fflush(stdout);
        pid_t pid = _Fork();
        allocate();
        if (pid == 0) {
            spin(30000000);
            exit(16);
        }
        wait_and_tell("_Fork", pid);
    }
#endif
}

static void fork_at_exit(void)
{
    fflush(stdout);
    pid_t pid = fork();
    allocate();
    if (pid)
        wait_and_tell("at exit", pid);
}

static void at_exit(void)
{
    atexit(fork_at_exit);
}

static void fork_handler(void)
{
    allocate();
}

static void handlers(void)
{
    pthread_atfork(fork_handler, fork_handler, fork_handler);
    child_returns_and_exits();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } shapes[] = {{"child", child_returns_and_exits},
                  {"nested", fork_in_fork},
                  {"threads", fork_among_threads},
                  {"in-thread", fork_in_thread},
                  {"vfork", vfork_and_exec},
                  {"spawn", spawn},
                  {"daemon", daemonize},
                  {"unannounced", unannounced},
                  {"at-exit", at_exit},
                  {"handlers", handlers}};
    for (size_t i = 0; argc > 1 && i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(argv[1], shapes[i].name) == 0) {
            allocate();
            shapes[i].function();
            allocate();
            return 0;
        }
    return 2;
}
