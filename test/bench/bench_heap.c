/* bench_heap.c: the live heap's tables by themselves: `bench_heap RECORDS` adds so many records of
 * blocks at random addresses by 1,000 stacks of 25 frames, frees and adds a tenth of them again,
 * and takes a snapshot. One line: nanoseconds an addition, a free, a free of an address that has no
 * record, milliseconds of CPU of a snapshot, bytes a record with its share of everything. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/record/heap_recorder.h"
#include "agent/record/heap_snapshot.h"
#include "agent/record/heap_tables.h"

enum { STACKS = 1000, FRAMES = 25 };

static struct rng rng = {1};

static double cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Blocks of 16 to 4096 bytes apart, as a program has them. */
static uintptr_t address_of(uint64_t number)
{
    return 0x550000000000 + number * 2064 + (number * 0x9e3779b97f4a7c15ull >> 53 << 4);
}

static void add(uint64_t number)
{
    static struct {
        uint64_t words[1 + FRAMES];
    } stack = {{1}};
    for (int i = 0; i < FRAMES; i++)
        stack.words[1 + i] = 0x400000 + (number * 2654435761u % STACKS) * 7 + (uint64_t)i * 4096;
    heap_recorder_add(&(struct heap_sample){.pointer = (const void *)address_of(number),
                                            .size = 64,
                                            .weight = (uint64_t)1 << RECORD_FRACTION_BITS,
                                            .stack = (const void *)&stack,
                                            .frames = FRAMES},
                      &rng);
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    uint64_t records = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
    double before = resident_bytes();
    /* So much that none is thinned: what is not touched costs nothing. */
    arena_set_budget((size_t)records * 600 + ((size_t)8 << 20));
    if (heap_recorder_start(1) != 0)
        return 1;
    double start = cpu_ns();
    for (uint64_t i = 0; i < records; i++)
        add(i);
    double added = (cpu_ns() - start) / (double)records;
    double bytes = (resident_bytes() - before) / (double)records;
    start = cpu_ns();
    for (uint64_t i = 0; i < records; i += 10)
        heap_recorder_free((const void *)address_of(i));
    double freed = (cpu_ns() - start) / (double)(records / 10);
    start = cpu_ns();
    for (uint64_t i = 0; i < records; i += 10)
        heap_recorder_free((const void *)address_of(i));
    double missed = (cpu_ns() - start) / (double)(records / 10);
    for (uint64_t i = 0; i < records; i += 10)
        add(i);
    start = cpu_ns();
    if (heap_snapshot_prepare(&(struct heap_view){.by_thread = true}) != 0 ||
        heap_snapshot_records() != records)
        return 1;
    double snapshot = (cpu_ns() - start) / 1e6;
    heap_snapshot_finish();
    printf("%llu %.1f %.1f %.1f %.2f %.1f\n", (unsigned long long)records, added, freed, missed,
           snapshot, bytes);
    return 0;
}
