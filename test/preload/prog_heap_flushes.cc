/* CFLAGS: -O2 -std=c++17 -fno-exceptions */
/* LIBS: -lpthread -ldl */
/* prog_heap_flushes SEED FLUSHES [INTERVAL PLACES OPERATIONS]: threads that allocate at 1,000
 * sites, free what others allocated and reallocate up and down, half of the time under a limit of
 * memory where much of it fails. The live heap is written FLUSHES times while they run, each time
 * followed by one while they stand still. Of each flush it is told what the profile may say of a
 * site, a line each: at FLUSH SITE OBJECTS BYTES OBJECTS BYTES, the least and the most; and of
 * those that stand still: SAMPLES VARIANCE LARGEST SPREAD, for a sampler of that INTERVAL (struct
 * site_truth).
 *
 * Each allocation and each free is counted before it begins and after it ended. A block that was
 * there before a flush, and was not begun to be freed when it had ended, must be in the profile;
 * one that was freed before it, or begun to be allocated after it, cannot. So the least is what had
 * been allocated, without what had begun to be freed, and without the old blocks that began to be
 * freed meanwhile: of a time before `epoch`, which is counted on behind the first reading. The most
 * is what has begun to be allocated at the end, without what had been freed at the beginning.
 * Standing still, both sides are the same. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "test/preload/heap_sites.h"

enum { THREADS = 8, PLACES_MAX = 20000, TIMEOUT_MS = 60000 };

struct block {
    void *data;
    size_t size;
    int site;
    uint64_t born; /* epoch */
};

struct sum {
    uint64_t objects, bytes;
};

/* What has happened at a site. */
enum event { ALLOC_BEGUN, ALLOC_ENDED, FREE_BEGUN, FREE_ENDED, OLD_FREE_BEGUN, EVENTS };
static sum events[SITES][EVENTS];

static block pool[PLACES_MAX + THREADS];
static block *places[PLACES_MAX]; /* whoever exchanges a block out of one owns it */
static uint64_t place_count, operations_between;
static double interval;
static uint64_t operations, failures, epoch;
static int standing, over, flushing, limited;
static pthread_barrier_t stands, goes;

static void count(const block *b, event what, int by)
{
    sum *s = &events[b->site][what];
    __atomic_fetch_add(&s->objects, (uint64_t)by, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&s->bytes, (uint64_t)by * b->size, __ATOMIC_SEQ_CST);
}

/* Whether it is an old one. */
static bool begin_free(const block *b)
{
    count(b, FREE_BEGUN, 1);
    bool old = b->born < __atomic_load_n(&epoch, __ATOMIC_SEQ_CST);
    if (old)
        count(b, OLD_FREE_BEGUN, 1);
    return old;
}

/* In this order: a reading that finds the first one of these undone finds the other one, too, which
 * is read after it. */
static void take_back_free(const block *b, bool old)
{
    if (old)
        count(b, OLD_FREE_BEGUN, -1);
    count(b, FREE_BEGUN, -1);
}

/* False: there is no memory, and `b` is what it was, of its old site where it had one. */
static bool allocate(uint64_t *random, block *b)
{
    block before = *b;
    b->site = (int)(next_random(random) % SITES);
    /* Under the limit, which has 1 MiB left, most that is reallocated finds no room. */
    bool in_vain = before.data && __atomic_load_n(&limited, __ATOMIC_RELAXED);
    b->size = draw_size(random) + (in_vain ? 16 << 20 : 0);
    count(b, ALLOC_BEGUN, 1);
    bool old = before.data && begin_free(&before);
    b->data = allocate_at(b->site, before.data, b->size);
    if (!b->data) {
        count(b, ALLOC_BEGUN, -1);
        *b = before;
        if (before.data)
            take_back_free(b, old);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        return false;
    }
    b->born = __atomic_load_n(&epoch, __ATOMIC_SEQ_CST);
    count(b, ALLOC_ENDED, 1);
    if (before.data)
        count(&before, FREE_ENDED, 1);
    return true;
}

/* Half of the places are left alone while a flush is under way: what is there must be in it. */
static block *exchange(uint64_t *random, block *b)
{
    uint64_t place = next_random(random) % place_count;
    if (__atomic_load_n(&flushing, __ATOMIC_ACQUIRE))
        place /= 2;
    return __atomic_exchange_n(&places[place], b, __ATOMIC_ACQ_REL);
}

static void *work(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    block *spare = &pool[PLACES_MAX + (uintptr_t)argument % THREADS];
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        if (__atomic_load_n(&standing, __ATOMIC_ACQUIRE)) {
            pthread_barrier_wait(&stands);
            pthread_barrier_wait(&goes);
            continue;
        }
        if (allocate(&random, spare))
            spare = exchange(&random, spare);
        if (spare->data && next_random(&random) % 4 == 0) {
            allocate(&random, spare);
            spare = exchange(&random, spare);
        }
        if (spare->data) {
            begin_free(spare);
            free(spare->data);
            count(spare, FREE_ENDED, 1);
            spare->data = nullptr;
        }
        __atomic_fetch_add(&operations, 1, __ATOMIC_RELAXED);
    }
    return nullptr;
}

/* ---- flushes ---- */

static int (*flush)(int timeout_ms);

static void read_events(sum (*into)[EVENTS])
{
    for (int i = 0; i < SITES; i++)
        for (int k = 0; k < EVENTS; k++)
            into[i][k] = {__atomic_load_n(&events[i][k].objects, __ATOMIC_SEQ_CST),
                          __atomic_load_n(&events[i][k].bytes, __ATOMIC_SEQ_CST)};
}

/* Of all blocks, while nobody changes them. */
static const site_truth *what_stands()
{
    static site_truth sites[SITES];
    memset(sites, 0, sizeof(sites));
    for (const block &b : pool)
        if (b.data)
            sites[b.site].add(b.size, interval);
    return sites;
}

static void flush_and_tell(bool still)
{
    static sum before[SITES][EVENTS], begun[SITES][EVENTS], after[SITES][EVENTS];
    static int number;
    __atomic_store_n(&flushing, 1, __ATOMIC_RELEASE);
    read_events(before);
    __atomic_fetch_add(&epoch, 1, __ATOMIC_SEQ_CST);
    read_events(begun);
    if (flush(TIMEOUT_MS) != 0)
        _exit(7);
    read_events(after);
    __atomic_store_n(&flushing, 0, __ATOMIC_RELEASE);
    const site_truth *truth = still ? what_stands() : nullptr;
    for (int i = 0; i < SITES; i++) {
        const sum &there = before[i][ALLOC_ENDED], &gone = begun[i][FREE_BEGUN],
                  &old = begun[i][OLD_FREE_BEGUN], &going = after[i][OLD_FREE_BEGUN],
                  &most = after[i][ALLOC_BEGUN], &freed = before[i][FREE_ENDED];
        printf("at %d %d %lld %lld %lld %lld", number, i,
               (long long)(there.objects - gone.objects - (going.objects - old.objects)),
               (long long)(there.bytes - gone.bytes - (going.bytes - old.bytes)),
               (long long)(most.objects - freed.objects), (long long)(most.bytes - freed.bytes));
        if (truth)
            printf(" %.6g %.6g %.6g %.6g", truth[i].samples, truth[i].variance, truth[i].largest,
                   truth[i].spread);
        printf("\n");
    }
    number++;
}

static void wait_for_operations()
{
    uint64_t end = __atomic_load_n(&operations, __ATOMIC_RELAXED) + THREADS * operations_between;
    while (__atomic_load_n(&operations, __ATOMIC_RELAXED) < end) {
        const timespec time = {0, 1000000};
        nanosleep(&time, nullptr);
    }
}

static void limit_memory(bool limit)
{
    struct rlimit given = {RLIM_INFINITY, RLIM_INFINITY};
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        _exit(6);
    fclose(file);
    if (limit)
        given.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
    if (setrlimit(RLIMIT_AS, &given) != 0)
        _exit(5);
    __atomic_store_n(&limited, limit, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
    uint64_t seed = number_argument(argc, argv, 1, 1);
    uint64_t flushes = number_argument(argc, argv, 2, 4);
    pthread_t ids[THREADS];
    *(void **)&flush = dlsym(RTLD_DEFAULT, "libagent_flush");
    if (!flush)
        return 4;
    interval = (double)number_argument(argc, argv, 3, 1);
    place_count = number_argument(argc, argv, 4, 5000);
    operations_between = number_argument(argc, argv, 5, 300);
    for (uint64_t i = 0; i < place_count; i++)
        places[i] = &pool[i];
    pthread_barrier_init(&stands, nullptr, THREADS + 1);
    pthread_barrier_init(&goes, nullptr, THREADS + 1);
    for (uint64_t i = 0; i < THREADS; i++)
        pthread_create(&ids[i], nullptr, work, (void *)(uintptr_t)(seed * THREADS + i));
    for (uint64_t i = 0; i < flushes; i++) {
        wait_for_operations();
        limit_memory(true);
        wait_for_operations();
        limit_memory(false);
        flush_and_tell(false);
        __atomic_store_n(&standing, 1, __ATOMIC_RELEASE);
        pthread_barrier_wait(&stands);
        __atomic_store_n(&standing, 0, __ATOMIC_RELEASE);
        flush_and_tell(true);
        if (i + 1 == flushes)
            __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
        pthread_barrier_wait(&goes);
    }
    for (uint64_t i = 0; i < THREADS; i++)
        pthread_join(ids[i], nullptr);
    printf("failed %llu\n", (unsigned long long)failures);
    return 0;
}
