/* wall_fixture.h: for the suites of wall accounts: how threads are looked at is a stand-in, and
 * what windows hold is summed up. It is defined here: a suite includes this, and the real ones are
 * not linked then. Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_WALL_FIXTURE_H
#define LIBAGENT_TEST_WALL_FIXTURE_H

#include "agent/base/arena.h"
#include "agent/sched/blocked.h"
#include "agent/sched/look_budget.h"
#include "agent/sched/wall.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "test/check.h"
#include "test/demand.h"
#include "test/record_fixture.h"

enum { GENERATION = 7, BEGIN = 1000000, TID = 4711 };

/* ---- the stand-in ---- */

static enum blocked does;   /* what is found */
static uint64_t blocked_at; /* the pc, and the system call */
static bool runs, untold;
static uint32_t looks;

int blocked_start(void)
{
    return 0;
}

enum blocked blocked_read(int tid, uint64_t cpu_ns, struct record_stack *stack, uint32_t *count)
{
    (void)cpu_ns;
    demand(tid > 0);
    demand(!thread_guard_quiescent(0));
    looks++;
    if (does != BLOCKED_READ)
        return does;
    stack->generation = GENERATION | (RECORD_SYSTEM_CALL + blocked_at) << RECORD_STATE_SHIFT;
    stack->pcs[0] = blocked_at;
    stack->pcs[1] = 99999;
    *count = 2;
    return does;
}

bool blocked_runs(int tid, bool otherwise)
{
    (void)tid;
    return untold ? otherwise : runs;
}

static bool has_gone_on;

bool blocked_stands(int tid, uint64_t cpu_ns)
{
    (void)tid, (void)cpu_ns;
    return !has_gone_on;
}

static uint64_t delay_ns = UINT64_MAX;

uint64_t blocked_delay_ns(int tid)
{
    (void)tid;
    return delay_ns;
}

static bool puts_off;

void look_budget_start(void) {}

bool look_budget_take(uint64_t *looked_ns, uint64_t now_ns)
{
    *looked_ns = now_ns;
    return !puts_off;
}

void look_budget_spent(uint64_t ns)
{
    (void)ns;
}

void look_budget_renew(uint64_t now_ns)
{
    (void)now_ns;
}

/* ---- what windows hold ---- */

static struct window_row rows[4096];
static uint32_t row_count;
static struct window *turned;

static int collect(const struct window_row *row, void *data)
{
    (void)data;
    if (row->family == RECORD_WALL) {
        ck_assert_uint_lt(row_count, ARRAY_SIZE(rows));
        rows[row_count++] = *row;
    }
    return 0;
}

static void turn(void)
{
    if (turned)
        recorder_clear(turned);
    turned = fixture_turn();
    row_count = 0;
    ck_assert_int_eq(window_each(turned, collect, NULL), 0);
}

/* The sum of rows of this leaf (0: any) and state; *samples gets their number. */
static uint64_t sum(uint64_t pc, uint32_t state, uint64_t *samples)
{
    uint64_t amount = 0;
    *samples = 0;
    for (uint32_t i = 0; i < row_count; i++) {
        if ((pc && rows[i].pcs[0] != pc) || (state != UINT32_MAX && rows[i].state != state))
            continue;
        amount += rows[i].values.amount;
        *samples += rows[i].values.count >> RECORD_FRACTION_BITS;
    }
    return amount;
}

static void check_row(uint64_t pc, uint32_t state, uint64_t amount, uint64_t samples)
{
    uint64_t found;
    ck_assert_uint_eq(sum(pc, state, &found), amount);
    ck_assert_uint_eq(found, samples);
}

static void check_all(uint64_t amount)
{
    uint64_t samples;
    ck_assert_uint_eq(sum(0, UINT32_MAX, &samples), amount);
}

static uint32_t state_of(uint64_t pc)
{
    return RECORD_SYSTEM_CALL + (uint32_t)pc;
}

/* ---- a thread ---- */

static struct thread_slot *slot;

static inline void start(bool signals)
{
    static struct module_list list = {.generation = GENERATION};
    modules_generation = GENERATION;
    modules_list = &list;
    fixture_start((size_t)32 << 20);
    arena_set_budget((size_t)32 << 20);
    wall_start(signals);
    ck_assert(wall_is_on());
    arena_set_budget(SIZE_MAX);
    slot = thread_adopt(TID);
    slot->start_routine = 31;
    wall_thread_begin(slot, BEGIN);
    does = BLOCKED_READ;
    blocked_at = 10;
}

static inline void moved(uint64_t after, uint64_t cpu)
{
    wall_visitor.moved(slot, BEGIN + after, cpu);
}

static inline void flush(uint64_t after, uint64_t cpu, bool final)
{
    wall_flush(slot, BEGIN + after, cpu, final);
    wall_flushed();
    turn();
}

/* A CPU sample of the thread. */
static inline void sample(uint64_t pc)
{
    struct {
        uint64_t generation, pcs[2];
    } stack = {GENERATION, {pc, 99999}};
    thread_guard_enter(slot);
    wall_sample(slot, (struct record_stack *)(void *)&stack, 2);
    thread_guard_leave(slot);
}

#endif
