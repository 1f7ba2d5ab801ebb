/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_wall_idle [THREADS [SECONDS]]: so many threads that wait for ever, and one that computes for
 * so long. Prints that time on the wall, what the agent's thread of ticks took of a processor in
 * it, and how long all that wait lived together, in nanoseconds. */
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "test/preload/program.h"

static sem_t never;

SITE static void *wait_for_ever(void *unused)
{
    while (sem_wait(&never) != 0)
        continue;
    return unused;
}

/* The CPU time of the thread of that name; 0: there is none. */
static uint64_t cpu_of_thread(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned long long sum = 0, cpu;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(comm, sizeof(comm), file))
            comm[strcspn(comm, "\n")] = 0;
        if (file)
            fclose(file);
        if (strcmp(comm, name) != 0)
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", entry->d_name);
        file = fopen(path, "r");
        if (file && fscanf(file, "%llu", &cpu) == 1)
            sum += cpu;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

SITE static void compute_for(uint64_t ns)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;
    while (clock_ns(CLOCK_MONOTONIC) < end)
        compute();
}

int main(int argc, char **argv)
{
    uint64_t count = number_argument(argc, argv, 1, 10000);
    uint64_t seconds = number_argument(argc, argv, 2, 4);
    pthread_attr_t small;
    if (sem_init(&never, 0, 0) != 0 || pthread_attr_init(&small) != 0 ||
        pthread_attr_setstacksize(&small, 32768) != 0)
        return 1;
    uint64_t births = 0;
    for (uint64_t i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_for_ever, NULL) != 0) {
            perror("prog_wall_idle");
            return 1;
        }
        births += clock_ns(CLOCK_MONOTONIC);
    }
    /* The first stacks are read. */
    compute_for(2000000000);
    uint64_t ready = clock_ns(CLOCK_MONOTONIC), before = cpu_of_thread("libagent-tick");
    compute_for(seconds * 1000000000);
    uint64_t after = cpu_of_thread("libagent-tick"), end = clock_ns(CLOCK_MONOTONIC);
    printf("window %llu\nticks %llu\nlives %llu\n", (unsigned long long)(end - ready),
           (unsigned long long)(after - before), (unsigned long long)(end * count - births));
    fflush(stdout);
    exit(0);
}
