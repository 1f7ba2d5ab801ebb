#include "test/cpu_fixture.h"

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/sched.h"
#include "agent/unwind/modules.h"
#include "test/check.h"
#include "test/record_fixture.h"
#include "test/signal_fixture.h"

void cpu_fixture_start(uint64_t period_ns)
{
    static struct module_list list = {.generation = CPU_LIST_GENERATION};
    modules_generation = CPU_LIST_GENERATION;
    modules_list = &list;
    fixture_start((size_t)32 << 20);
    ck_assert_int_eq(
        scheduler_cputimer.start(&(struct sched_request){.period_ns = period_ns, .cpu = true}), 0);
}

uint64_t cpu_settle(struct thread_slot *slot)
{
    scheduler_cputimer.thread_end(slot);
    uint64_t now = clock_thread_cpu_ns();
    cpu_sample_tail(slot, now);
    cpu_sample_overhead(slot);
    return now;
}

struct window *cpu_check_total(uint64_t amount_ns)
{
    struct window *window = fixture_turn();
    struct record_values total = fixture_total(window, RECORD_CPU);
    ck_assert_uint_eq(total.amount, amount_ns);
    ck_assert_uint_eq(total.count >> RECORD_FRACTION_BITS, stats_get(STAT_CPU_SAMPLES));
    ck_assert_uint_eq(window->truncated[RECORD_CPU].count, 0);
    return window;
}

void cpu_burn(void)
{
    uint64_t until = clock_thread_cpu_ns() + 10000;
    while (clock_thread_cpu_ns() < until)
        ;
    signals_come();
}
