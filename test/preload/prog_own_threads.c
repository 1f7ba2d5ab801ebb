/* CFLAGS: -O1 */
/* LIBS: -lpthread */
/* A program in which the agent has its threads: what becomes of it. prog_own_threads CASE WAIT:
 * with WAIT 1 the case begins when a thread of the agent is there. Prints what is to be the same
 * with the agent and without. */
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { OTHER = 65534, FILE_SIZE = 4096 };

int capset(void *header, const void *data);

extern char __libc_single_threaded __attribute__((weak)); /* glibc 2.32 and later */

static bool wait_for_agent;

/* The lines of a thread's status that tell its name and its identity. */
static void read_thread(const char *tid, char name[64], char identity[FILE_SIZE])
{
    static const char *const keys[] = {"Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:"};
    char path[300], line[FILE_SIZE];
    name[0] = identity[0] = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof(line), status)) {
        (void)sscanf(line, "Name: %63s", name);
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                strcat(identity, line);
    }
    if (status)
        fclose(status);
}

static bool is_ours(const char *name)
{
    return strncmp(name, "libagent", 8) == 0;
}

/* Number of threads that are the agent's; of those whose identity is not the main thread's. */
static int count_agents(int *different)
{
    char pid[16], name[64], main_identity[FILE_SIZE], identity[FILE_SIZE];
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    read_thread(pid, name, main_identity);
    *different = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        read_thread(task->d_name, name, identity);
        count += is_ours(name);
        *different += is_ours(name) && strcmp(identity, main_identity) != 0;
    }
    closedir(tasks);
    return count;
}

SITE static void work(void)
{
    for (int i = 0; i < 20000; i++) {
        void *block = malloc(64 + (size_t)i % 512);
        keep(block);
        free(block);
    }
}

static void work_until_agents(void)
{
    int different;
    do
        work();
    while (wait_for_agent && count_agents(&different) == 0);
}

static void *worker(void *argument)
{
    work();
    puts("the worker ends");
    return argument;
}

static int change_groups(void)
{
    const gid_t group = OTHER;
    return setgroups(1, &group);
}

static int drop_capability(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1u << CAP_SETUID, 1u << CAP_SETUID, 0}};
    return capset(&header, data);
}

static int change(const char *what)
{
    if (strcmp(what, "setuid") == 0)
        return setuid(OTHER);
    if (strcmp(what, "setgid") == 0)
        return setgid(OTHER);
    if (strcmp(what, "seteuid") == 0)
        return seteuid(OTHER);
    if (strcmp(what, "setegid") == 0)
        return setegid(OTHER);
    if (strcmp(what, "setreuid") == 0)
        return setreuid(OTHER, OTHER);
    if (strcmp(what, "setregid") == 0)
        return setregid(OTHER, OTHER);
    if (strcmp(what, "setresuid") == 0)
        return setresuid(OTHER, OTHER, 0);
    if (strcmp(what, "setresgid") == 0)
        return setresgid(OTHER, OTHER, 0);
    if (strcmp(what, "setgroups") == 0)
        return change_groups();
    if (strcmp(what, "initgroups") == 0)
        return initgroups("daemon", OTHER);
    if (strcmp(what, "capset") == 0)
        return drop_capability();
    return 2;
}

/* Right after the change, and when the agent's threads are there again. */
static int change_and_compare(const char *what)
{
    char name[64], before[FILE_SIZE], after[FILE_SIZE];
    char pid[16];
    int different;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    read_thread(pid, name, before);
    int result = change(what);
    count_agents(&different);
    read_thread(pid, name, after);
    printf("%s: %d, %s, %d others\n%s", what, result,
           strcmp(before, after) == 0 ? "not changed" : "changed", different, after);
    fflush(stdout);
    work_until_agents();
    count_agents(&different);
    printf("later: %d others\n", different);
    return result;
}

int main(int argc, char **argv)
{
    const char *what = argc == 3 ? argv[1] : "";
    pthread_t thread;
    wait_for_agent = argc == 3 && atoi(argv[2]);
    work_until_agents();
    if (strcmp(what, "main-leaves") == 0) {
        puts("main leaves");
        pthread_exit(NULL);
    }
    if (strcmp(what, "main-leaves-first") == 0) {
        pthread_create(&thread, NULL, worker, NULL);
        pthread_exit(NULL);
    }
    if (strcmp(what, "single-threaded") == 0) {
        printf("single-threaded: %d\n", !&__libc_single_threaded || __libc_single_threaded);
        return 0;
    }
    return change_and_compare(what);
}
