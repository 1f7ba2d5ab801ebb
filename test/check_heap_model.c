/* All orders of events of the live heap: two or three actors run the product's own code, and a
 * search (order_search.h) every order of their accesses to shared memory. After each order the
 * tables must agree with each other and with the truth. The orders are those of a machine that does
 * one access after the other; that the fences make any other machine such a one is
 * ThreadSanitizer's matter (check_heap_stress.c). */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/stats.h"
#include "agent/record/heap_tables.h"
#include "agent/record/intern_table.h"
#include "test/demand.h"
#include "test/heap_fixture.h"
#include "test/order_search.h"

/* ---- the tables, as they were at the begin ---- */

enum { BYTES = 160 << 10, RECORDS_USED = 16 };
static struct heap_tables first;
static struct heap_record first_records[RECORDS_USED];
static uint16_t first_filter[8]; /* of the first pages, where all blocks are */
static uint8_t *first_keys;
static uint64_t *first_slots;

static size_t keys_bytes(void)
{
    return (size_t)heap.keys.rooms * COUNTED_SHARDS * COUNTED_ROOM +
           (heap.keys.index_mask + (size_t)1) * COUNTED_SHARDS * sizeof(uint32_t);
}

static void keep_tables(void)
{
    first = heap;
    memcpy(first_filter, heap_filter, sizeof(first_filter));
    memcpy(first_records, heap.pool.records, sizeof(first_records));
    first_keys = malloc(keys_bytes());
    first_slots = malloc(heap.slots.count * sizeof(uint64_t));
    memcpy(first_keys, heap.keys.memory, keys_bytes());
    memcpy(first_slots, heap.slots.memory, heap.slots.count * sizeof(uint64_t));
}

static void restore_tables(void)
{
    heap = first;
    memcpy(heap_filter, first_filter, sizeof(first_filter));
    memcpy(heap.pool.records, first_records, sizeof(first_records));
    memcpy(heap.keys.memory, first_keys, keys_bytes());
    memcpy(heap.slots.memory, first_slots, heap.slots.count * sizeof(uint64_t));
}

/* ---- scenarios ---- */

/* Blocks of pages of their own, and stacks. */
enum { A = 0x1000, B = 0x2000, C = 0x3000, SIZE = 100, SITE = 7, OTHER_SITE = 8 };

struct scenario {
    const char *name;
    void (*begin)(void);
    void (*actors[ACTORS_MAX + 1])(void);
    void (*end)(void);
};

static uint64_t missed_before;
static uint64_t neighbour; /* a site whose stack is in the same shard as SITE's */

static uint64_t shard_of_site(uint64_t site)
{
    const uint64_t key[] = {1, site};
    return (intern_hash(key, 2) >> 32) % COUNTED_SHARDS;
}

static void find_neighbour(void)
{
    neighbour = OTHER_SITE + 1;
    while (shard_of_site(neighbour) != shard_of_site(SITE))
        neighbour++;
}

static void expect_live(uint64_t objects)
{
    demand(heap_fixture_audit() == objects);
    uint64_t counted = 0;
    for (size_t i = 0; i < ARRAY_SIZE(first_filter); i++)
        counted += heap_filter_count(heap_filter[i]);
    demand(counted == objects);
    struct heap_sum sum = heap_fixture_sum(0);
    demand(sum.objects == objects && sum.bytes == objects * SIZE);
}

static void nothing_lives(void)
{
    expect_live(0);
}

static void one_lives(void)
{
    expect_live(1);
}

static void two_live(void)
{
    expect_live(2);
}

static void begin_empty(void) {}

static void begin_a(void)
{
    heap_fixture_add(A, SIZE, SITE);
}

static void begin_a_and_b(void)
{
    heap_fixture_add(A, SIZE, SITE);
    heap_fixture_add(B, SIZE, SITE);
}

static void begin_neighbours(void)
{
    find_neighbour();
    heap_fixture_add(A, SIZE, SITE);
    heap_fixture_add(B, SIZE, neighbour);
}

static void begin_neighbours_and_c(void)
{
    begin_neighbours();
    heap_fixture_add(C, SIZE, OTHER_SITE);
}

/* Addresses whose records come from one list of free ones; two of these are free. */
static uintptr_t alike[3];

static int list_with_one(void)
{
    for (int i = 0; i < HEAP_FREE_LISTS; i++)
        if ((uint32_t)heap.pool.lists[i].head)
            return i;
    return -1;
}

static void begin_two_free_records(void)
{
    int list = -1;
    uintptr_t at = A;
    for (int count = 0; count < 3; at += 16) {
        heap_fixture_add(at, SIZE, SITE);
        heap_fixture_free(at);
        if (list < 0)
            list = list_with_one();
        if (list_with_one() == list)
            alike[count++] = at;
    }
    for (int i = 0; i < 2; i++)
        heap_fixture_add(alike[i], SIZE, SITE);
    for (int i = 0; i < 2; i++)
        heap_fixture_free(alike[i]);
}

static void add_first_alike(void)
{
    heap_fixture_add(alike[0], SIZE, SITE);
}

/* The head of the list is the same again, and what follows it is not. */
static void add_others_and_free_one(void)
{
    heap_fixture_add(alike[1], SIZE, SITE);
    heap_fixture_add(alike[2], SIZE, SITE);
    heap_fixture_free(alike[1]);
}

static void add_a(void)
{
    heap_fixture_add(A, SIZE, SITE);
}

static void add_b(void)
{
    heap_fixture_add(B, SIZE, SITE);
}

static void add_c(void)
{
    heap_fixture_add(C, SIZE, SITE);
}

static void free_a(void)
{
    heap_fixture_free(A);
}

static void free_b(void)
{
    heap_fixture_free(B);
}

static void free_c_and_add_neighbour(void)
{
    heap_fixture_free(C);
    heap_fixture_add(C, SIZE, neighbour);
}

static void add_and_free_c(void)
{
    add_c();
    free_b();
    heap_fixture_free(C);
}

/* The address is given again at once. */
static void reuse_a(void)
{
    free_a();
    add_a();
}

/* Sums are taken while the snapshot is open and hooks go on: its stacks must still be there. */
static void take_snapshot(void)
{
    demand(heap_snapshot_prepare(&(struct heap_view){.by_thread = true}) == 0);
    uint32_t records = heap_snapshot_records();
    struct heap_sum sum = heap_fixture_sum_of_open(0);
    demand(sum.objects == records && sum.bytes == records * SIZE && records <= 3);
    demand(sum.objects ==
           heap_fixture_sum_of_open(SITE).objects + heap_fixture_sum_of_open(OTHER_SITE).objects);
    heap_snapshot_finish();
}

static void fail_realloc_of_a(void)
{
    struct heap_hold hold = heap_recorder_hold((const void *)A);
    demand(hold.slot != NULL);
    heap_recorder_settle(&hold, true);
}

static void same_record_lives(void)
{
    uint64_t word;
    demand(heap_slots_find(&heap.slots, &heap.pool, A, &word));
    /* The first one, and used once: it is the record that was made, no other. */
    demand(heap_slot_ref(word) == 1);
    demand(heap_pool_at(&heap.pool, 1)->state >> HEAP_CONDITION_BITS == 1);
    one_lives();
}

static struct heap_hold held;

static void begin_inside_realloc(void)
{
    begin_a();
    held = heap_recorder_hold((const void *)A);
    demand(held.slot != NULL);
}

/* The allocator gave another address; the old one is another thread's already. */
static void move_a_to_c(void)
{
    heap_recorder_settle(&held, false);
    heap_fixture_add(C, SIZE, OTHER_SITE);
}

static void add_and_free_a(void)
{
    add_a();
    free_a();
}

static void add_a_again(void)
{
    missed_before = stats_get(STAT_HEAP_MISSED_FREES);
    add_a();
}

static void one_lives_one_was_missed(void)
{
    demand(stats_get(STAT_HEAP_MISSED_FREES) == missed_before + 1);
    one_lives();
}

static const struct scenario scenarios[] = {
    {"a free beside a snapshot", begin_a, {free_a, take_snapshot}, nothing_lives},
    {"two frees of a stack's last blocks", begin_a_and_b, {free_a, free_b}, nothing_lives},
    {"two stacks of one shard go", begin_neighbours, {free_a, free_b}, nothing_lives},
    {"two stacks of one shard go, and one comes back",
     begin_neighbours_and_c,
     {free_a, free_b, free_c_and_add_neighbour},
     one_lives},
    {"an allocation finds a stack that goes", begin_a, {free_a, add_b}, one_lives},
    {"two allocations of a new stack", begin_empty, {add_a, add_b}, two_live},
    {"an allocation beside a snapshot", begin_a, {add_b, take_snapshot}, two_live},
    {"an address that is used again beside a snapshot",
     begin_a,
     {reuse_a, take_snapshot},
     one_lives},
    {"two frees of one block", begin_a, {free_a, free_a}, nothing_lives},
    {"a free and a stop", begin_a_and_b, {free_a, heap_recorder_clear}, nothing_lives},
    {"a stop beside a snapshot", begin_a, {heap_recorder_clear, take_snapshot}, nothing_lives},
    {"a realloc that fails, beside a snapshot",
     begin_a,
     {fail_realloc_of_a, take_snapshot},
     same_record_lives},
    {"a realloc whose old address is used at once",
     begin_inside_realloc,
     {move_a_to_c, add_and_free_a},
     one_lives},
    {"a realloc that moves, beside a snapshot",
     begin_inside_realloc,
     {move_a_to_c, take_snapshot},
     one_lives},
    {"a free that was not seen, beside a snapshot",
     begin_a,
     {add_a_again, take_snapshot},
     one_lives_one_was_missed},
    {"records change hands", begin_a_and_b, {reuse_a, add_and_free_c}, one_lives},
    {"a list of free records whose head comes back",
     begin_two_free_records,
     {add_first_alike, add_others_and_free_one},
     two_live},
    {"a free, an allocation, a snapshot", begin_a, {free_a, add_b, take_snapshot}, one_lives},
};

/* An order takes 20 us; the largest scenario is given this many, and what it leaves is said. */
enum { ORDERS_MAX = 60000 };

START_TEST(every_order_of_events_ends_in_the_truth)
{
    const struct scenario *scenario = &scenarios[_i];
    bool all;
    heap_fixture_start(BYTES);
    scenario->begin();
    keep_tables();
    const struct order_case orders_of = {restore_tables, scenario->actors, scenario->end};
    uint64_t orders = order_search(&orders_of, ORDERS_MAX, &all);
    fprintf(stderr, "%s: %llu orders%s\n", scenario->name, (unsigned long long)orders,
            all ? "" : ", not all");
    heap_fixture_audit_filter();
    ck_assert_uint_gt(orders, 1);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_model");
    TCase *tcase = tcase_create("orders");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_order_of_events_ends_in_the_truth, 0,
                        (int)ARRAY_SIZE(scenarios));
    suite_add_tcase(suite, tcase);
    return suite;
}
