#include "test/record_fixture.h"

#include "agent/base/arena.h"
#include "agent/base/options.h"
#include "agent/record/scratch.h"
#include "agent/thread/thread_context.h"
#include "test/check.h"
#include "test/demand.h"
#include "test/next_libc.h"

void fixture_threads(void)
{
    next_from_libc();
    ck_assert_int_eq(thread_start(thread_leave), 0);
}

void fixture_start(size_t budget)
{
    options.frequency = 101;
    options.max_frames = FIXTURE_FRAMES;
    options.signals = true;
    options.overhead = 1;
    arena_set_budget(budget);
    ck_assert_int_eq(recorder_start(1, 1), 0);
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(scratch_start(FIXTURE_FRAMES), 0);
    fixture_threads();
}

struct window *fixture_turn(void)
{
    struct window *window = recorder_turn(1, 1);
    ck_assert(thread_guard_quiescent(0));
    return window;
}

struct sum {
    enum record_family family;
    uint64_t pc; /* 0: all */
    struct record_values values;
    uint32_t rows;
};

static int add_row(const struct window_row *row, void *data)
{
    struct sum *sum = data;
    sum->rows++;
    demand(row->count >= 1);
    if (row->family == sum->family && (!sum->pc || row->pcs[0] == sum->pc)) {
        sum->values.count += row->values.count;
        sum->values.amount += row->values.amount;
    }
    return 0;
}

static struct sum sum_up(const struct window *window, enum record_family family, uint64_t pc)
{
    struct sum sum = {.family = family, .pc = pc};
    ck_assert_int_eq(window_each(window, add_row, &sum), 0);
    return sum;
}

struct record_values fixture_at(const struct window *window, enum record_family family, uint64_t pc)
{
    return sum_up(window, family, pc).values;
}

struct record_values fixture_total(const struct window *window, enum record_family family)
{
    struct record_values total = sum_up(window, family, 0).values;
    total.count += window->truncated[family].count;
    total.amount += window->truncated[family].amount;
    return total;
}

uint32_t fixture_rows(const struct window *window)
{
    return sum_up(window, RECORD_CPU, 0).rows;
}
