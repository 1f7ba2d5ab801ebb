/* All orders of events of the live heap: two or three actors run the product's own code, which
 * stops before each access to shared memory (agent/record/model_step.h), and a search runs every
 * order of these accesses that differs from the others by more than the order of accesses to
 * different places (dynamic partial-order reduction after Flanagan and Godefroid, 2005; every
 * access is taken for a write). After each order the tables must agree with each other and with the
 * truth. The orders are those of a machine that does one access after the other; that the fences
 * make any other machine such a one is ThreadSanitizer's matter (check_heap_stress.c). */
#include "test/check.h"

#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "agent/base/stats.h"
#include "agent/record/heap_tables.h"
#include "agent/record/model_step.h"
#include "test/demand.h"
#include "test/heap_fixture.h"

enum { ACTORS_MAX = 3, STEPS_MAX = 400, STACK_BYTES = 256 << 10, PLACES_MAX = 64 };

/* ---- actors ---- */

static struct actor {
    ucontext_t context;
    void (*run)(void);
    const void *place; /* of the access that it stands before */
    bool is_over;
} actors[ACTORS_MAX];
static int actor_count;
static struct actor *current;
static ucontext_t scheduler;
static char stacks[ACTORS_MAX][STACK_BYTES];

static void yield_before(const void *place)
{
    struct actor *self = current;
    if (!self)
        return;
    self->place = place;
    swapcontext(&self->context, &scheduler);
}

static void actor_main(void)
{
    current->run();
    current->is_over = true;
    current->place = NULL;
    swapcontext(&current->context, &scheduler);
}

/* To its next access, or its end. */
static void resume(int index)
{
    current = &actors[index];
    swapcontext(&scheduler, &current->context);
    current = NULL;
}

static void begin_actors(void (*const *runs)(void))
{
    for (actor_count = 0; actor_count < ACTORS_MAX && runs[actor_count]; actor_count++) {
        struct actor *actor = &actors[actor_count];
        getcontext(&actor->context);
        actor->context.uc_stack.ss_sp = stacks[actor_count];
        actor->context.uc_stack.ss_size = STACK_BYTES;
        actor->context.uc_link = NULL;
        actor->run = runs[actor_count];
        actor->is_over = false;
        makecontext(&actor->context, actor_main, 0);
        resume(actor_count);
    }
}

/* ---- the search ---- */

struct clock {
    int at[ACTORS_MAX]; /* steps of each actor that happened before, as number + 1 */
};

static struct state {
    unsigned backtrack, done; /* sets of actors */
    int chosen;
} states[STEPS_MAX];
static int planned; /* states of the last order that the next one begins with */

static struct place {
    const void *place;
    struct clock clock;
    int last_step, last_actor;
} places[PLACES_MAX];
static int place_count;
static struct clock clocks[ACTORS_MAX];

static struct place *place_of(const void *place)
{
    for (int i = 0; i < place_count; i++)
        if (places[i].place == place)
            return &places[i];
    demand(place_count < PLACES_MAX);
    places[place_count] = (struct place){.place = place, .last_step = -1};
    return &places[place_count++];
}

/* Where an actor's next access could as well have come before the last one to that place: that
 * order is to be run, too. */
static void note_race(int actor)
{
    const struct place *place = place_of(actors[actor].place);
    if (place->last_step < 0 || place->last_actor == actor ||
        place->last_step < clocks[actor].at[place->last_actor])
        return;
    states[place->last_step].backtrack |= 1u << actor;
}

static int choose(int depth)
{
    struct state *state = &states[depth];
    if (depth < planned)
        return state->chosen;
    int actor = depth && !actors[states[depth - 1].chosen].is_over ? states[depth - 1].chosen : 0;
    while (actors[actor].is_over)
        actor++;
    *state = (struct state){1u << actor, 1u << actor, actor};
    return actor;
}

static bool all_are_over(void)
{
    for (int i = 0; i < actor_count; i++)
        if (!actors[i].is_over)
            return false;
    return true;
}

static void run_order(void (*const *runs)(void))
{
    int depth = 0;
    place_count = 0;
    memset(clocks, 0, sizeof(clocks));
    begin_actors(runs);
    for (; !all_are_over(); depth++) {
        demand(depth < STEPS_MAX);
        for (int i = 0; i < actor_count; i++)
            if (!actors[i].is_over)
                note_race(i);
        int actor = choose(depth);
        struct place *place = place_of(actors[actor].place);
        for (int i = 0; i < ACTORS_MAX; i++)
            if (clocks[actor].at[i] < place->clock.at[i])
                clocks[actor].at[i] = place->clock.at[i];
        clocks[actor].at[actor] = depth + 1;
        place->clock = clocks[actor];
        place->last_step = depth;
        place->last_actor = actor;
        resume(actor);
    }
    planned = depth;
}

/* The next order: the last state that has an actor to try. False: all were run. */
static bool plan_next(void)
{
    while (planned > 0) {
        struct state *state = &states[planned - 1];
        unsigned left = state->backtrack & ~state->done;
        if (left) {
            state->chosen = __builtin_ctz(left);
            state->done |= 1u << state->chosen;
            return true;
        }
        planned--;
    }
    return false;
}

/* ---- the tables, as they were at the begin ---- */

enum { BYTES = 160 << 10, RECORDS_USED = 16 };
static struct heap_tables first;
static struct heap_record first_records[RECORDS_USED];
static uint8_t first_filter[8]; /* of the first pages, where all blocks are */
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

static void expect_live(uint64_t objects)
{
    demand(heap_fixture_audit() == objects);
    uint64_t counted = 0;
    for (size_t i = 0; i < sizeof(first_filter); i++)
        counted += heap_filter[i];
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
    {"a free, an allocation, a snapshot", begin_a, {free_a, add_b, take_snapshot}, one_lives},
};

/* An order takes 20 us; the largest scenario is given this many, and what it leaves is said. */
enum { ORDERS_MAX = 60000 };

START_TEST(every_order_of_events_ends_in_the_truth)
{
    const struct scenario *scenario = &scenarios[_i];
    heap_fixture_start(BYTES);
    scenario->begin();
    keep_tables();
    model_step = yield_before;
    uint64_t orders = 0;
    planned = 0;
    bool more;
    do {
        restore_tables();
        run_order(scenario->actors);
        scenario->end();
        orders++;
        more = plan_next();
    } while (more && orders < ORDERS_MAX);
    fprintf(stderr, "%s: %llu orders%s\n", scenario->name, (unsigned long long)orders,
            more ? ", not all" : "");
    model_step = NULL;
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
