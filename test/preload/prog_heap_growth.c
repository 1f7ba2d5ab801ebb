/* CFLAGS: -O2 */
/* LIBS: -lm */
/* prog_heap_growth WAY ...: a service whose live heap grows in known ways, by site_*.
 * leak INTERVAL BYTES, steady INTERVAL BYTES: allocates and frees, 2,000 blocks live at a time;
 * then a mark; then goes on until it has allocated BYTES. In 1,000 allocations there is one of
 *         site_once, of 1 KiB, which `leak` never frees. Tells what each site grew by, and variance
 *         and largest step of what a profile can say of it, as heap_bound.h has them.
 * mark, option, restart, fork: 100 blocks of 1,000 bytes by site_before; the mark (by the function,
 *         by LIBAGENT_HEAP_MARK, by a stop and start, none); 40 of them are freed, and 60 allocated
 *         by site_after; fork: after a mark, and its child then allocates 5 by site_child.
 * peak, flushed: 60 blocks of 100,000 bytes by site_peak, which are there until the log tells of
 *         them, or a flush; then none, and 10 by site_after. */
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#define LIBAGENT_WEAK
#include "agent/libagent.h"
#include "test/preload/program.h"

enum { RING = 2000, ONCE = 1000, ONCE_SIZE = 1024, BLOCKS = 100, SIZE = 1000, LARGE = 100000 };

#define SITE_FUNCTION(name)                                                                        \
    SITE static void *name(size_t size)                                                            \
    {                                                                                              \
        void *block = malloc(size);                                                                \
        keep(block);                                                                               \
        return block;                                                                              \
    }
SITE_FUNCTION(site_load)
SITE_FUNCTION(site_once)
SITE_FUNCTION(site_before)
SITE_FUNCTION(site_after)
SITE_FUNCTION(site_child)
SITE_FUNCTION(site_peak)

static void check(int error)
{
    if (error < 0) {
        printf("error %d\n", error);
        exit(1);
    }
}

/* ---- load ---- */

static struct {
    void *block;
    size_t size;
} ring[RING];

struct truth {
    double bytes, variance, largest;
};

static void add_truth(struct truth *truth, double size, double blocks, double interval, int sign)
{
    double p = interval > 1 ? -expm1(-size / interval) : 1;
    truth->bytes += sign * size * blocks;
    truth->variance += blocks * size * size * (1 - p) / p;
    truth->largest = fmax(truth->largest, size / p);
}

static void add_ring(struct truth *truth, double interval, int sign)
{
    for (int i = 0; i < RING; i++)
        add_truth(truth, (double)ring[i].size, 1, interval, sign);
}

static void load_once(uint64_t *random)
{
    uint64_t drawn = next_random(random);
    size_t at = drawn % RING, size = 16 + (drawn >> 32) % 512;
    free(ring[at].block);
    ring[at].block = site_load(size);
    ring[at].size = size;
}

static void load(bool leaks, double interval, uint64_t bytes)
{
    uint64_t random = 1, done = 0, leaked = 0;
    struct truth of_load = {0}, of_once = {0};
    for (int i = 0; i < RING * 20; i++)
        load_once(&random);
    for (int i = 0; i < RING; i++) /* those that no draw came to */
        if (!ring[i].block)
            ring[i].block = site_load(ring[i].size = 16);
    add_ring(&of_load, interval, -1);
    check(libagent_heap_mark());
    for (uint64_t i = 1; done < bytes; i++, done += 272) {
        load_once(&random);
        if (i % ONCE)
            continue;
        void *once = site_once(ONCE_SIZE);
        if (leaks)
            leaked++;
        else
            free(once);
    }
    add_ring(&of_load, interval, 1);
    add_truth(&of_once, ONCE_SIZE, (double)leaked, interval, 1);
    printf("site_load %.17g %.17g %.17g\n", of_load.bytes, of_load.variance, of_load.largest);
    printf("site_once %.17g %.17g %.17g\n", of_once.bytes, of_once.variance, of_once.largest);
}

/* ---- what the log tells ---- */

static char log_text[1 << 20];

static const char *read_log(void)
{
    int descriptor = open(getenv("LIBAGENT_LOG_FILE"), O_RDONLY | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? 0 : read(descriptor, log_text, sizeof(log_text) - 1);
    if (descriptor >= 0)
        close(descriptor);
    log_text[size > 0 ? size : 0] = 0;
    return log_text;
}

static void pause_a_little(void)
{
    keep(site_load(1)); /* a sample, at which the agent may have its thread made */
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void wait_for_mark(void)
{
    while (!strstr(read_log(), "heap-growth counts from now on"))
        pause_a_little();
}

static void wait_for_peak(unsigned long least)
{
    for (;;) {
        unsigned long bytes = 0;
        for (const char *at = read_log(); (at = strstr(at, "heap peak: ")); at++)
            bytes = strtoul(at + strlen("heap peak: "), NULL, 10);
        if (bytes >= least)
            return;
        pause_a_little();
    }
}

/* ---- known blocks ---- */

static void *blocks[BLOCKS];

static void make_mark(const char *way)
{
    if (strcmp(way, "mark") == 0 || strcmp(way, "fork") == 0)
        check(libagent_heap_mark());
    else if (strcmp(way, "option") == 0)
        wait_for_mark();
    else if (strcmp(way, "restart") == 0) {
        check(libagent_stop());
        check(libagent_start(NULL));
    }
}

static void grow(const char *way)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = site_before(SIZE);
    make_mark(way);
    for (int i = 0; i < 40; i++)
        free(blocks[i]);
    for (int i = 0; i < 60; i++)
        keep(site_after(SIZE));
    if (strcmp(way, "fork") != 0)
        return;
    int status;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            keep(site_child(SIZE));
        exit(0);
    }
    printf("child %d\n", child);
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(1);
}

static void peak(const char *way)
{
    for (int i = 0; i < 60; i++)
        blocks[i] = site_peak(LARGE);
    if (strcmp(way, "flushed") == 0)
        check(libagent_flush(60000));
    else
        wait_for_peak(60 * LARGE / 105 * 100);
    for (int i = 0; i < 60; i++)
        free(blocks[i]);
    for (int i = 0; i < 10; i++)
        keep(site_after(LARGE));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "mark";
    bool leaks = strcmp(way, "leak") == 0;
    if (!libagent_heap_mark)
        return 2;
    if (leaks || strcmp(way, "steady") == 0)
        load(leaks, (double)number_argument(argc, argv, 2, 1),
             number_argument(argc, argv, 3, 1000000));
    else if (strcmp(way, "peak") == 0 || strcmp(way, "flushed") == 0)
        peak(way);
    else
        grow(way);
    return 0;
}
