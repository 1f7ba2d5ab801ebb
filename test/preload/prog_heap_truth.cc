/* CFLAGS: -O2 -std=c++17 -fno-exceptions */
/* LIBS: -lpthread */
/* prog_heap_truth SEED INTERVAL [THREADS OPERATIONS PLACES]: threads that allocate at 1,000 sites
 * (stacks of outer_I, middle_J, inner_K), hand blocks on to each other, free what others allocated,
 * and reallocate up, down and in vain. What lives at the end is written, a line a site: site I J K
 * OBJECTS BYTES SAMPLES VARIANCE LARGEST SAMPLES: how many of these a sampler of that INTERVAL is
 * to expect; VARIANCE: of its estimate of the bytes, LARGEST: what one sample adds to it at most.
 */
#include <cmath>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "test/preload/program.h"

enum { WAYS = 10, SITES = WAYS * WAYS * WAYS, PLACES_MAX = 200000, THREADS_MAX = 64 };

struct call {
    int way[3];
    void *old; /* to reallocate */
    size_t size;
};

#define INNER(n)                                                                                   \
    extern "C" SITE void *inner_##n(const call *c)                                                 \
    {                                                                                              \
        void *block = c->old ? realloc(c->old, c->size) : malloc(c->size);                         \
        keep(block);                                                                               \
        return block;                                                                              \
    }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
EACH(INNER)
#define NAME_INNER(n)  inner_##n,
#define NAME_MIDDLE(n) middle_##n,
#define NAME_OUTER(n)  outer_##n,
typedef void *way_fn(const call *);
static way_fn *const inner[] = {EACH(NAME_INNER)};
#define MIDDLE(n)                                                                                  \
    extern "C" SITE void *middle_##n(const call *c)                                                \
    {                                                                                              \
        void *block = inner[c->way[2]](c);                                                         \
        keep(block);                                                                               \
        return block;                                                                              \
    }
EACH(MIDDLE)
static way_fn *const middle[] = {EACH(NAME_MIDDLE)};
#define OUTER(n)                                                                                   \
    extern "C" SITE void *outer_##n(const call *c)                                                 \
    {                                                                                              \
        void *block = middle[c->way[1]](c);                                                        \
        keep(block);                                                                               \
        return block;                                                                              \
    }
EACH(OUTER)
static way_fn *const outer[] = {EACH(NAME_OUTER)};

struct block {
    void *data;
    size_t size;
    int site;
};

static block *places[PLACES_MAX]; /* whoever exchanges a block out of one owns it */
static block pool[PLACES_MAX + THREADS_MAX];
static double interval;
static uint64_t operations, place_count;

/* 16 bytes to 64 MiB, small ones by far the most: the n-th doubling with probability 2^-(n+1), and
 * every fiftieth of any size. */
static size_t draw_size(uint64_t *random)
{
    uint64_t bits = next_random(random);
    int doubling = __builtin_ctzll(bits | 1ull << 21);
    if (bits >> 40 & 63 ? false : true)
        doubling = (int)(bits >> 50 & 31) % 22;
    return (16ull << doubling) + next_random(random) % (16ull << doubling);
}

static void allocate(uint64_t *random, block *b, void *old)
{
    b->site = (int)(next_random(random) % SITES);
    b->size = draw_size(random);
    call c = {{b->site / (WAYS * WAYS), b->site / WAYS % WAYS, b->site % WAYS}, old, b->size};
    b->data = outer[c.way[0]](&c);
    if (!b->data)
        _exit(9);
}

static void reallocate_in_vain(block *b)
{
    if (realloc(b->data, SIZE_MAX / 4) || errno != ENOMEM)
        _exit(8);
}

static void *work(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    block *spare = &pool[PLACES_MAX + (uintptr_t)argument % THREADS_MAX];
    for (uint64_t i = 0; i < operations; i++) {
        allocate(&random, spare, nullptr);
        spare = __atomic_exchange_n(&places[next_random(&random) % place_count], spare,
                                    __ATOMIC_ACQ_REL);
        uint64_t what = next_random(&random) % 8;
        if (spare->data && what == 0) {
            reallocate_in_vain(spare);
        }
        if (spare->data && what <= 1) {
            allocate(&random, spare, spare->data);
            spare = __atomic_exchange_n(&places[next_random(&random) % place_count], spare,
                                        __ATOMIC_ACQ_REL);
        }
        free(spare->data);
        spare->data = nullptr;
    }
    return nullptr;
}

static void report()
{
    static struct {
        uint64_t objects, bytes;
        double samples, variance, largest;
    } sites[SITES];
    for (uint64_t i = 0; i < place_count; i++) {
        const block *b = places[i];
        if (!b->data)
            continue;
        auto &site = sites[b->site];
        double p = interval > 1 ? -expm1(-(double)b->size / interval) : 1;
        double size = (double)b->size;
        site.objects++;
        site.bytes += b->size;
        site.samples += p;
        site.variance += size * size * (1 - p) / p;
        site.largest = fmax(site.largest, size / p);
    }
    for (int i = 0; i < SITES; i++)
        if (sites[i].objects)
            printf("site %d %d %d %llu %llu %.6g %.6g %.6g\n", i / (WAYS * WAYS), i / WAYS % WAYS,
                   i % WAYS, (unsigned long long)sites[i].objects,
                   (unsigned long long)sites[i].bytes, sites[i].samples, sites[i].variance,
                   sites[i].largest);
}

int main(int argc, char **argv)
{
    uint64_t seed = number_argument(argc, argv, 1, 1);
    interval = (double)number_argument(argc, argv, 2, 1);
    uint64_t threads = number_argument(argc, argv, 3, 8);
    operations = number_argument(argc, argv, 4, 20000);
    pthread_t ids[THREADS_MAX];
    place_count = number_argument(argc, argv, 5, 20000);
    for (uint64_t i = 0; i < place_count; i++)
        places[i] = &pool[i];
    for (uint64_t i = 0; i < threads; i++)
        pthread_create(&ids[i], nullptr, work, (void *)(uintptr_t)(seed * THREADS_MAX + i));
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(ids[i], nullptr);
    report();
    return 0;
}
