/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_threads CASE: many threads, and the ends of threads.
 *   crowd: 1,000 threads that are all there at once.
 *   churn: 40,000 threads, of which at most 16 are there at once; prints what the process holds
 *     after a tenth of them ("early-...") and at the end ("late-...").
 *   destructors: threads that compute and allocate in destructors of thread_local objects and of
 *     pthread keys, in all rounds of these.
 *   exits: four threads call exit at once.
 * Lines with a "-" in their key have numbers of this run; the rest is the same in each run. */
#include <atomic>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "test/preload/program.h"

enum { CROWD = 1000, CHURN = 40000, BATCH = 16, ENDING = 40, EXITING = 4, SMALL_STACK = 65536 };

static void need(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    _exit(1);
}

SITE static void work(uint64_t ns)
{
    for (int i = 0; i < 10; i++) {
        void *block = malloc(10000);
        keep(block);
        free(block);
    }
    spin(ns);
    keep(&ns);
}

static pthread_t start(void *(*routine)(void *), void *data)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SMALL_STACK);
    need(pthread_create(&thread, &attributes, routine, data) == 0, "pthread_create");
    pthread_attr_destroy(&attributes);
    return thread;
}

/* ---- crowd ---- */

static pthread_barrier_t all_there, may_end;

static void *one_of_crowd(void *data)
{
    work(1000000);
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&may_end);
    work(1000000);
    return data;
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    need(folder != nullptr, path);
    while (dirent *entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void crowd()
{
    static pthread_t threads[CROWD];
    uintptr_t wrong = 0;
    pthread_barrier_init(&all_there, nullptr, CROWD + 1);
    pthread_barrier_init(&may_end, nullptr, CROWD + 1);
    for (uintptr_t i = 0; i < CROWD; i++)
        threads[i] = start(one_of_crowd, reinterpret_cast<void *>(i));
    pthread_barrier_wait(&all_there);
    printf("tasks: %d\n", count_entries("/proc/self/task"));
    pthread_barrier_wait(&may_end);
    for (uintptr_t i = 0; i < CROWD; i++) {
        void *result = nullptr;
        pthread_join(threads[i], &result);
        wrong += result != reinterpret_cast<void *>(i);
    }
    printf("wrong results: %lu, tasks: %d\n", wrong, count_entries("/proc/self/task"));
    printf("process-cpu %lu\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/* ---- churn ---- */

static long status_number(const char *key)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    need(file != nullptr, "/proc/self/status");
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key), nullptr, 10);
    fclose(file);
    return value;
}

/* The kernel may have been built without this file: then none are counted. */
static int count_timers()
{
    char line[256];
    int count = 0;
    FILE *file = fopen("/proc/self/timers", "r");
    while (file && fgets(line, sizeof(line), file))
        count += strncmp(line, "ID:", 3) == 0;
    if (file)
        fclose(file);
    return count;
}

static void print_held(const char *when)
{
    printf("%s-rss-kib %ld\n%s-timers %d\n", when, status_number("VmRSS:"), when, count_timers());
}

static void *one_of_churn(void *data)
{
    void *block = malloc(10000);
    keep(block);
    free(block);
    return data;
}

SITE static void *last_thread(void *data)
{
    work(300000000);
    return data;
}

static void churn()
{
    uintptr_t wrong = 0;
    for (uintptr_t i = 0; i < CHURN; i += BATCH) {
        pthread_t threads[BATCH];
        for (uintptr_t k = 0; k < BATCH; k++)
            threads[k] = start(one_of_churn, reinterpret_cast<void *>(i + k));
        for (uintptr_t k = 0; k < BATCH; k++) {
            void *result = nullptr;
            pthread_join(threads[k], &result);
            wrong += result != reinterpret_cast<void *>(i + k);
        }
        if (i == CHURN / 10)
            print_held("early");
    }
    print_held("late");
    pthread_join(start(last_thread, nullptr), nullptr);
    printf("wrong results: %lu\n", wrong);
}

/* ---- destructors ---- */

static pthread_key_t key;
static std::atomic<unsigned> key_rounds, objects;

SITE static void destroy_value(void *value)
{
    auto round = reinterpret_cast<uintptr_t>(value);
    work(2000000);
    key_rounds++;
    if (round < 4)
        pthread_setspecific(key, reinterpret_cast<void *>(round + 1));
}

struct Object {
    bool used = false;
    ~Object() { destroy(); }
    SITE void destroy()
    {
        work(2000000);
        auto pieces = std::make_unique<std::vector<int>>(100000, used);
        keep(pieces->data());
        objects++;
    }
};

static thread_local Object object;

static void *with_destructors(void *data)
{
    object.used = true;
    pthread_setspecific(key, reinterpret_cast<void *>(1));
    return data;
}

static void destructors()
{
    pthread_key_create(&key, destroy_value);
    for (int i = 0; i < ENDING; i += 4) {
        pthread_t threads[4];
        for (auto &thread : threads)
            thread = start(with_destructors, nullptr);
        for (auto &thread : threads)
            pthread_join(thread, nullptr);
    }
    printf("rounds of keys: %u, objects: %u\n", key_rounds.load(), objects.load());
    printf("process-cpu %lu\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/* ---- exits ---- */

static pthread_barrier_t exit_together;

static void *exit_with_others(void *data)
{
    work(20000000);
    pthread_barrier_wait(&exit_together);
    exit(51);
    return data;
}

static void exits()
{
    pthread_barrier_init(&exit_together, nullptr, EXITING);
    for (int i = 0; i < EXITING; i++)
        start(exit_with_others, nullptr);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "crowd") == 0)
        crowd();
    else if (strcmp(name, "churn") == 0)
        churn();
    else if (strcmp(name, "destructors") == 0)
        destructors();
    else if (strcmp(name, "exits") == 0)
        exits();
    else
        return 2;
    return 0;
}
