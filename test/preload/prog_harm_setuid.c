/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_setuid changes MS: goes from root to another user and back, then for good, and works in
 * between; prints which users its threads have, and its CPU clock.
 * prog_harm_setuid as UID EUID PROGRAM ARGUMENT...: becomes that program, with these users. */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/program.h"

enum {
    NOBODY = 65534,
    THREADS = 2,
};

static bool stop;
static uint64_t ms; /* of CPU time as each user */

static void burn(uint64_t time_ms)
{
    for (uint64_t end = thread_cpu_ns() + time_ms * 1000000; thread_cpu_ns() < end;) {
        void *block = malloc(5000);
        keep(block);
        free(block);
        compute();
    }
}

SITE static void site_root(void)
{
    burn(ms);
    keep(&site_root);
}

SITE static void site_nobody(void)
{
    burn(ms);
    keep(&site_nobody);
}

SITE static void site_root_again(void)
{
    burn(ms);
    keep(&site_root_again);
}

SITE static void site_for_good(void)
{
    burn(ms);
    keep(&site_for_good);
}

static void *live(void *data)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        burn(1);
        usleep(20000);
    }
    return data;
}

/* The agent's threads are threads of the process: they change with the others. */
static void print_users(const char *when)
{
    char users[128] = "", line[512];
    int differ = 0, own = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (file && fgets(line, sizeof(line), file)) {
            own += strncmp(line, "Name:\tlibagent", 14) != 0 && strncmp(line, "Name:", 5) == 0;
            if (strncmp(line, "Uid:", 4) != 0)
                continue;
            differ += users[0] && strcmp(users, line) != 0;
            snprintf(users, sizeof(users), "%.120s", line);
        }
        if (file)
            fclose(file);
    }
    closedir(folder);
    printf("%s: %d threads, %d differ, %s", when, own, differ, users);
}

static int change(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, live, NULL);
    site_root();
    print_users("at first");
    printf("seteuid %d\n", seteuid(NOBODY));
    print_users("as nobody");
    site_nobody();
    printf("seteuid %d\n", seteuid(0));
    print_users("as root");
    site_root_again();
    printf("setuid %d\n", setuid(NOBODY));
    print_users("for good");
    site_for_good();
    int result = setuid(0);
    printf("setuid to root %d, %s\n", result, strerror(errno));
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("process %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}

static int become(char **arguments)
{
    uid_t user = (uid_t)atoi(arguments[0]), effective = (uid_t)atoi(arguments[1]);
    if (setgroups(0, NULL) != 0 || setresuid(user, effective, effective) != 0)
        return 3;
    execv(arguments[2], arguments + 2);
    return 4;
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "as") == 0)
        return become(argv + 2);
    ms = number_argument(argc, argv, 2, 0);
    return argc > 1 && strcmp(argv[1], "changes") == 0 ? change() : 2;
}
