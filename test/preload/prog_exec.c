/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_exec VARIANT: becomes this program again by the variant of exec, as `shown`, which prints
 * its arguments and what of the environment it was given. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/preload/program.h"

extern char **environ;

static char self[4096];
static char *given[] = {"GIVEN=a value", "PATH=/usr/bin:/bin", NULL};
static char *arguments[] = {"a name", "shown", "first", "", "third with spaces", NULL};

static int show(int argc, char **argv)
{
    printf("%d arguments:", argc);
    for (int i = 0; i < argc; i++)
        printf(" '%s'", argv[i]);
    int variables = 0;
    while (environ[variables])
        variables++;
    const char *value = getenv("GIVEN");
    printf("\n%s\n", value ? value : "not given");
    if (value)
        printf("%d variables\n", variables);
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    int count = 0;
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        count += sigismember(&blocked, signal) == 1;
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d is not default\n", signal);
    }
    printf("%d blocked\n", count);
    /* One that was left pending would come now. */
    block_all_but(~(uint64_t)0);
    spin(15000000);
    return 21;
}

static void *exec_in_thread(void *data)
{
    spin(15000000);
    execv(self, arguments);
    return data;
}

static void in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exec_in_thread, NULL);
    for (;;)
        spin(15000000);
}

/* The timer's signal is pending when the program ends. */
static void blocked(void)
{
    block_all_but(0);
    spin(60000000);
    execve(self, arguments, given);
}

/* The same in a thread, which becomes the process's only one; its timer counts another's clock. */
static void *exec_in_blocked_thread(void *data)
{
    blocked();
    return data;
}

static void blocked_in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exec_in_blocked_thread, NULL);
    for (;;)
        pause();
}

/* argv[2] counts down; ticks arrive during execs. */
static void storm(uint64_t left)
{
    char number[16];
    snprintf(number, sizeof(number), "%lu", (unsigned long)(left - 1));
    spin(3000000 + left % 8 * 1000000);
    if (left)
        execl(self, "a name", "storm", number, (char *)NULL);
    printf("storm is over\n");
}

static void missing(void)
{
    printf("%d", execl("/no/such", "x", (char *)NULL));
    printf(" %s\n", strerror(errno));
    printf("%d", execv("/etc/passwd", arguments));
    printf(" %s\n", strerror(errno));
    printf("%d", execvp("no-such-program", arguments));
    printf(" %s\n", strerror(errno));
    printf("%d", fexecve(-1, arguments, environ));
    printf(" %s\n", strerror(errno));
}

int main(int argc, char **argv)
{
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0 || argc < 2)
        return 2;
    const char *variant = argv[1];
    if (strcmp(variant, "shown") == 0)
        return show(argc, argv);
    for (int i = 0; i < 100; i++)
        free(malloc(20000));
    if (strcmp(variant, "storm") != 0)
        spin(30000000);
    fflush(stdout);
    if (strcmp(variant, "execl") == 0)
        execl(self, "x", "shown", "one", "two", (char *)NULL);
    else if (strcmp(variant, "execle") == 0)
        execle(self, "x", "shown", "one", (char *)NULL, given);
    else if (strcmp(variant, "execlp") == 0)
        execlp("sh", "sh", "-c", "echo by sh; exit 22", (char *)NULL);
    else if (strcmp(variant, "execv") == 0)
        execv(self, arguments);
    else if (strcmp(variant, "execve") == 0)
        execve(self, arguments, given);
    else if (strcmp(variant, "execvp") == 0)
        execvp(self, arguments);
    else if (strcmp(variant, "execvpe") == 0)
        execvpe(self, arguments, given);
    else if (strcmp(variant, "fexecve") == 0)
        fexecve(open(self, O_RDONLY | O_CLOEXEC), arguments, given);
    else if (strcmp(variant, "execveat") == 0)
        syscall(SYS_execveat, AT_FDCWD, self, arguments, given, 0);
    else if (strcmp(variant, "thread") == 0)
        in_thread();
    else if (strcmp(variant, "blocked") == 0)
        blocked();
    else if (strcmp(variant, "blocked-thread") == 0)
        blocked_in_thread();
    else if (strcmp(variant, "storm") == 0)
        storm(number_argument(argc, argv, 2, 100));
    else if (strcmp(variant, "missing") == 0)
        missing();
    return 0;
}
