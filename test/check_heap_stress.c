/* The live heap under threads: blocks that one allocates and another frees, addresses that change
 * hands as fast as they can, with snapshots all the while; at the end the tables hold the truth. */
#include "test/check.h"

#include <pthread.h>
#include <string.h>

#include "agent/base/stats.h"
#include "agent/record/heap_tables.h"
#include "test/demand.h"
#include "test/heap_fixture.h"

enum { THREADS = 4, SITES = 16 };

/* An allocator's: whoever finds an address free has it; hands it on by a release. */
enum { ADDRESSES = 64 };
static uint32_t taken[ADDRESSES]; /* 0: free, 1: allocated, 2: changes */
static size_t sizes[ADDRESSES];
static uint32_t sites[ADDRESSES];
static uint32_t rounds;
static uint32_t over;

static uintptr_t address_of(uint32_t number)
{
    return 0x555500000000 + (uintptr_t)number * 48; /* some to a page */
}

static bool take(uint32_t number, uint32_t from)
{
    return __atomic_compare_exchange_n(&taken[number], &from, 2, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void allocate(struct rng *rng, uint32_t number)
{
    sizes[number] = rng_next(rng) % 5000;
    sites[number] = (uint32_t)(rng_next(rng) % SITES);
    heap_fixture_add(address_of(number), sizes[number], 1000 + sites[number]);
}

/* One that fails, or moves to a free address; the old one is free before settle, as in malloc. */
static void reallocate(struct rng *rng, uint32_t number)
{
    uint32_t other = (uint32_t)(rng_next(rng) % ADDRESSES);
    struct heap_hold hold = {NULL, 0};
    if (heap_may_be_recorded((const void *)address_of(number)))
        hold = heap_recorder_hold((const void *)address_of(number));
    demand(hold.slot);
    if (other == number || !take(other, 0)) {
        heap_recorder_settle(&hold, true);
        store_release(&taken[number], 1);
        return;
    }
    store_release(&taken[number], 0);
    heap_recorder_settle(&hold, false);
    allocate(rng, other);
    store_release(&taken[other], 1);
}

static void *churn(void *argument)
{
    struct rng rng = {(uintptr_t)argument};
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t number = (uint32_t)(rng_next(&rng) % ADDRESSES);
        if (take(number, 0)) {
            allocate(&rng, number);
            store_release(&taken[number], 1);
        } else if (take(number, 1)) {
            if (rng_next(&rng) % 4 == 0) {
                reallocate(&rng, number);
            } else {
                heap_fixture_free(address_of(number));
                store_release(&taken[number], 0);
            }
        }
    }
    return NULL;
}

static void *take_snapshots(void *argument)
{
    uint64_t *count = argument;
    while (!load_acquire(&over)) {
        struct heap_sum sum = heap_fixture_sum(0);
        demand(sum.objects <= ADDRESSES + THREADS);
        ++*count;
    }
    return NULL;
}

START_TEST(threads_that_share_addresses_leave_the_truth)
{
    heap_fixture_start((size_t)1 << 20);
    pthread_t threads[THREADS], snapshots;
    uint64_t count = 0;
    rounds = 200000;
    pthread_create(&snapshots, NULL, take_snapshots, &count);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    store_release(&over, 1);
    pthread_join(snapshots, NULL);
    uint64_t objects[SITES] = {0}, bytes[SITES] = {0}, all = 0;
    for (int i = 0; i < ADDRESSES; i++) {
        if (!taken[i])
            continue;
        objects[sites[i]]++;
        bytes[sites[i]] += sizes[i];
        all++;
    }
    for (uint32_t i = 0; i < SITES; i++) {
        struct heap_sum sum = heap_fixture_sum(1000 + i);
        ck_assert_uint_eq(sum.objects, objects[i]);
        ck_assert_uint_eq(sum.bytes, bytes[i]);
    }
    ck_assert_uint_eq(heap_fixture_audit(), all);
    heap_fixture_audit_filter();
    ck_assert_uint_gt(count, 2);
    ck_assert_uint_eq(stats_get(STAT_HEAP_MISSED_FREES), 0);
    ck_assert_uint_eq(stats_get(STAT_HEAP_DROPPED), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_stress");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, threads_that_share_addresses_leave_the_truth);
    suite_add_tcase(suite, tcase);
    return suite;
}
