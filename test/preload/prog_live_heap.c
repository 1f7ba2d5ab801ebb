/* CFLAGS: -O2 */
/* prog_live_heap WAY: site_kept allocates 100 blocks of 1000 bytes, of which 60 are left at the
 * end, and
 * - plain: nothing else
 * - fork: a child frees 10 of the 60, allocates 5 by site_child, and exits
 * - stop: the agent is stopped while 20 more of the 60 are freed, and started again
 * - old: the blocks are 3 seconds old at the end, and of 20 by site_young none is
 * - many: 20,000 more by site_many */
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>

#include "test/preload/program.h"

enum { BLOCKS = 100, LEFT = 60, SIZE = 1000, MANY = 20000 };
static void *blocks[BLOCKS];

SITE static void *site_kept(void)
{
    void *block = malloc(SIZE);
    keep(block);
    return block;
}

SITE static void *site_child(void)
{
    void *block = malloc(SIZE);
    keep(block);
    return block;
}

SITE static void *site_young(void)
{
    void *block = malloc(SIZE);
    keep(block);
    return block;
}

SITE static void *site_many(void)
{
    void *block = malloc(SIZE);
    keep(block);
    return block;
}

static void free_some(int from, int to)
{
    for (int i = from; i < to; i++)
        free(blocks[i]);
}

static void fork_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        free_some(LEFT - 10, LEFT);
        for (int i = 0; i < 5; i++)
            keep(site_child());
        exit(0);
    }
    printf("child %d\n", child);
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(1);
}

static void stop_and_start(void)
{
    int (*stop)(void);
    int (*start)(const char *options);
    *(void **)&stop = dlsym(RTLD_DEFAULT, "libagent_stop");
    *(void **)&start = dlsym(RTLD_DEFAULT, "libagent_start");
    if (!stop || !start || stop() < 0)
        exit(2);
    free_some(LEFT - 20, LEFT);
    if (start(NULL) < 0)
        exit(3);
    keep(site_young());
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "plain";
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = site_kept();
    free_some(LEFT, BLOCKS);
    if (strcmp(way, "fork") == 0)
        fork_child();
    if (strcmp(way, "stop") == 0)
        stop_and_start();
    for (int i = 0; strcmp(way, "many") == 0 && i < MANY; i++)
        keep(site_many());
    if (strcmp(way, "old") == 0) {
        /* Age is what is asked about: time has to pass. */
        nanosleep(&(struct timespec){3, 0}, NULL);
        for (int i = 0; i < 20; i++)
            keep(site_young());
    }
    return 0;
}
