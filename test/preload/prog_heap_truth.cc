/* CFLAGS: -O2 -std=c++17 -fno-exceptions */
/* LIBS: -lpthread */
/* prog_heap_truth SEED INTERVAL [THREADS OPERATIONS PLACES]: threads that allocate at 1,000 sites
 * (stacks of outer_I, middle_J, inner_K), hand blocks on to each other, free what others allocated,
 * and reallocate up, down and in vain. What lives at the end is written, a line a site: site I J K
 * OBJECTS BYTES SAMPLES VARIANCE LARGEST SPREAD, for a sampler of that INTERVAL (struct
 * site_truth).
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "test/preload/heap_sites.h"

enum { PLACES_MAX = 200000, THREADS_MAX = 64 };

struct block {
    void *data;
    size_t size;
    int site;
};

static block *places[PLACES_MAX]; /* whoever exchanges a block out of one owns it */
static block pool[PLACES_MAX + THREADS_MAX];
static double interval;
static uint64_t operations, place_count;

static void allocate(uint64_t *random, block *b, void *old)
{
    b->site = (int)(next_random(random) % SITES);
    b->size = draw_size(random);
    b->data = allocate_at(b->site, old, b->size);
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
    static site_truth sites[SITES];
    for (uint64_t i = 0; i < place_count; i++)
        if (places[i]->data)
            sites[places[i]->site].add(places[i]->size, interval);
    for (int i = 0; i < SITES; i++)
        if (sites[i].objects)
            printf("site %d %d %d %llu %llu %.6g %.6g %.6g %.6g\n", i / (WAYS * WAYS),
                   i / WAYS % WAYS, i % WAYS, (unsigned long long)sites[i].objects,
                   (unsigned long long)sites[i].bytes, sites[i].samples, sites[i].variance,
                   sites[i].largest, sites[i].spread);
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
