/* What a CPU sample is worth. The walk is a stand-in; the handler and the tables are real. Ticks
 * are sent by the suite, so that no test hopes for one (real timers: check_cputimer.c).
 *
 * The truth is exact to the nanosecond: what a window holds of a thread (samples, tail, overhead)
 * is what its CPU clock went on by. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>

#include "agent/agent_hot.h"
#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/record/scratch.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/thread_tails.h"
#include "agent/thread/moment.h"
#include "test/cpu_fixture.h"
#include "test/demand.h"
#include "test/record_fixture.h"
#include "test/signal_fixture.h"
#include "test/stand_in_walk.h"

static void start(void)
{
    cpu_fixture_start(NS_PER_SEC); /* no timer is made here */
}

static void burn(uint64_t ns)
{
    uint64_t until = clock_thread_cpu_ns() + ns;
    while (clock_thread_cpu_ns() < until)
        cpu_burn();
}

static uint64_t amount_at(const struct window *window, uint64_t pc)
{
    return fixture_at(window, RECORD_CPU, pc).amount;
}

/* ---- ticks ---- */

/* A handler that has to wait for a processor is told as up to so much more than the thread's clock
 * went on by; with more than that between two ticks none has to be taken back. */
static const uint64_t told_too_much_ns = 200000;

START_TEST(a_sample_is_worth_the_time_since_the_last_one)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    enum { TICKS = 20 };
    for (int i = 0; i < TICKS; i++) {
        walk_site = 1000 + (uint64_t)i % 2;
        uint64_t last = slot->cpu_last_ns;
        uint64_t overhead = slot->overhead_ns[OVERHEAD_HANDLERS];
        burn((i % 2 ? 300000 : 100000) + told_too_much_ns);
        uint64_t before = clock_thread_cpu_ns();
        uint64_t began = clock_monotonic_ns();
        signal_tick(slot);
        uint64_t took = clock_monotonic_ns() - began + sampling_signal_cost_ns;
        ck_assert_uint_ge(slot->cpu_last_ns, before);
        ck_assert_uint_le(slot->cpu_last_ns, clock_thread_cpu_ns() + took);
        /* What the handler took is not the app's. */
        ck_assert_uint_gt(slot->overhead_ns[OVERHEAD_HANDLERS], overhead);
        ck_assert_uint_le(slot->overhead_ns[OVERHEAD_HANDLERS] - overhead, took);
        ck_assert_uint_gt(slot->cpu_last_ns, last);
    }
    burn(2 * told_too_much_ns);
    uint64_t end = cpu_settle(slot);
    struct window *window = cpu_check_total(end - begin);
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), TICKS);
    ck_assert_uint_eq(window->real_samples, TICKS);
    ck_assert_uint_ge(amount_at(window, 1000), TICKS / 2 * 100000);
    ck_assert_uint_ge(amount_at(window, 1001), TICKS / 2 * 300000);
    ck_assert_uint_eq(amount_at(window, PSEUDO_OVERHEAD), stats_get(STAT_HANDLERS_NS));
    ck_assert_uint_gt(amount_at(window, PSEUDO_TAIL), 0);
}
END_TEST

START_TEST(a_handler_leaves_no_trace)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uintptr_t low = slot->stack_low;
    errno = 4711;
    signal_tick(slot);
    ck_assert_int_eq(errno, 4711);
    ck_assert_uint_eq(thread_tls.inside, 0);
    ck_assert_uint_eq(slot->guard & 1, 0);
    ck_assert_uint_eq(slot->stack_low, low - WALK_PROBED);
    for (int i = 0; i < SCRATCH_BUFFERS; i++)
        ck_assert_ptr_nonnull(scratch_claim());
}
END_TEST

START_TEST(a_sample_inside_the_agent_is_put_off)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    thread_tls.inside = 1;
    burn(NS_PER_MS);
    signal_tick(slot);
    signal_tick(slot);
    ck_assert_uint_eq(thread_tls.inside, 1);
    ck_assert_uint_eq(slot->cpu_last_ns, begin);
    thread_tls.inside = 0;
    signal_tick(slot);
    uint64_t end = cpu_settle(slot);
    ck_assert_uint_eq(stats_get(STAT_CPU_DROPPED_INSIDE), 2);
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), 1);
    ck_assert_uint_ge(amount_at(cpu_check_total(end - begin), 1000), NS_PER_MS);
}
END_TEST

START_TEST(a_sample_without_a_buffer_is_put_off)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    struct record_stack *claimed[SCRATCH_BUFFERS];
    uint64_t begin = slot->cpu_last_ns;
    for (int i = 0; i < SCRATCH_BUFFERS; i++)
        ck_assert_ptr_nonnull(claimed[i] = scratch_claim());
    burn(NS_PER_MS);
    signal_tick(slot);
    ck_assert_uint_eq(stats_get(STAT_CPU_DROPPED_BUSY), 1);
    ck_assert_uint_eq(thread_tls.inside, 0);
    scratch_give(claimed[63]);
    signal_tick(slot);
    uint64_t end = cpu_settle(slot);
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), 1);
    ck_assert_uint_ge(amount_at(cpu_check_total(end - begin), 1000), NS_PER_MS);
}
END_TEST

START_TEST(a_slot_that_is_not_the_threads_own_is_not_touched)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    struct thread_slot *other = thread_adopt(1);
    struct thread_slot *unborn = thread_prepare(1, NULL);
    struct thread_slot before = *other;
    signal_tick(other);
    signal_tick(unborn);
    ck_assert_mem_eq(other, &before, sizeof(before));
    ck_assert_ptr_eq(thread_tls.slot, slot);
    /* A timer that is gone left a signal, and the slot is free. */
    thread_leave();
    signal_tick(slot);
    ck_assert_ptr_null(thread_tls.slot);
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), 0);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
}
END_TEST

START_TEST(hooks_are_overhead_not_the_apps_time)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    alloc_start(1);
    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 10; j++)
            agent_allocated(slot, 64);
        if (i % 10 == 0)
            signal_tick(slot);
    }
    uint64_t end = cpu_settle(slot);
    struct window *window = cpu_check_total(end - begin);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 1000);
    /* One hook in eight is timed and stands for eight; where that is more than the thread's clock
     * went on, a tick takes it back. */
    ck_assert_uint_gt(amount_at(window, PSEUDO_OVERHEAD), 0);
    ck_assert_uint_le(amount_at(window, PSEUDO_OVERHEAD),
                      stats_get(STAT_HANDLERS_NS) + stats_get(STAT_HOOKS_NS));
}
END_TEST

START_TEST(a_sample_stands_for_a_second_at_most)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    walk_site = 1000;
    burn(NS_PER_SEC + 300 * NS_PER_MS);
    signal_tick(slot);
    uint64_t end = cpu_settle(slot);
    struct window *window = cpu_check_total(end - begin);
    ck_assert_uint_eq(amount_at(window, 1000), NS_PER_SEC);
    ck_assert_uint_ge(amount_at(window, PSEUDO_SKIPPED), 300 * NS_PER_MS);
}
END_TEST

START_TEST(flags_of_a_walk_are_counted)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    walk_flags = 0;
    signal_tick(slot);
    walk_flags = UNWIND_CUT;
    signal_tick(slot);
    walk_flags = UNWIND_COMPLETE;
    signal_tick(slot);
    ck_assert_uint_eq(stats_get(STAT_STACKS_INCOMPLETE), 1);
    ck_assert_uint_eq(stats_get(STAT_STACKS_CUT), 1);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 1);
}
END_TEST

static int check_row(const struct window_row *row, void *data)
{
    uint32_t extra = *(uint32_t *)data;
    ck_assert_uint_eq(row->generation, WALK_GENERATION);
    ck_assert_uint_eq(row->count, FIXTURE_FRAMES + extra);
    if (extra)
        ck_assert_uint_eq(row->pcs[0], PSEUDO_OVERHEAD);
    for (uint32_t i = extra; i < row->count; i++)
        ck_assert_uint_eq(row->pcs[i], 1000);
    return 0;
}

START_TEST(a_sample_in_our_own_code_says_so)
{
    start();
    uint32_t extra = _i;
    walk_frames = FIXTURE_FRAMES; /* the longest stack has room for the name, too */
    if (extra)
        walk_flags |= UNWIND_LEAF_SELF;
    signal_tick(thread_attach(0, 0));
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_rows(window), 1);
    ck_assert_int_eq(window_each(window, check_row, &extra), 0);
}
END_TEST

static uint32_t moments;

static uint32_t busy_moments;
static void count_moment(bool clean)
{
    demand(thread_tls.inside == 1);
    demand(!(thread_tls.slot->guard & 1));
    moments += clean;
    busy_moments += !clean;
}

START_TEST(a_moment_says_whether_the_stack_is_clean)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    moment_work = count_moment;
    moment_set_due_now();
    signal_tick(slot);
    ck_assert_uint_eq(moments, 0);
    ck_assert_uint_eq(busy_moments, 1);
    walk_flags |= UNWIND_CLEAN;
    signal_tick(slot);
    ck_assert_uint_eq(moments, 1);
    thread_tls.inside = 1;
    signal_tick(slot);
    ck_assert_uint_eq(moments, 1);
}
END_TEST

/* The first sample of a thread whose birth was seen stands for an interval, as far as others of its
 * kind left time. */
START_TEST(a_first_sample_stands_for_an_interval)
{
    const uint64_t interval_ns = NS_PER_SEC / 2, left_ns = 5 * NS_PER_SEC;
    start();
    struct thread_slot *slot = thread_attach(0, _i ? 4711 : 0);
    slot->interval_us = (uint32_t)(interval_ns / 1000);
    if (_i)
        ck_assert(thread_tails_add(slot, left_ns));
    uint64_t before = slot->cpu_last_ns;
    signal_tick(slot);
    uint64_t own = slot->cpu_last_ns - before,
             first = fixture_total(fixture_turn(), RECORD_CPU).amount;
    if (_i)
        ck_assert_uint_eq(first, interval_ns);
    else
        ck_assert_uint_le(first, own);
    before = slot->cpu_last_ns;
    signal_tick(slot);
    ck_assert_uint_le(fixture_total(fixture_turn(), RECORD_CPU).amount, slot->cpu_last_ns - before);
    cpu_sample_tell_ends();
    uint64_t left = amount_at(fixture_turn(), PSEUDO_TAIL);
    ck_assert_uint_ge(left, _i ? left_ns - interval_ns : 0);
    ck_assert_uint_le(left, _i ? left_ns - interval_ns + own : 0);
}
END_TEST

/* ---- known stacks ---- */

static int check_tail(const struct window_row *row, void *data)
{
    const uint64_t *roots = data;
    ck_assert_uint_eq(row->pcs[0], PSEUDO_TAIL);
    ck_assert_uint_eq(row->generation, CPU_LIST_GENERATION);
    ck_assert_uint_eq(row->values.count, 0);
    ck_assert_uint_eq(row->values.amount, 500);
    ck_assert_uint_eq(row->count, roots[row->thread->tid - 1] ? 2 : 1);
    if (row->count == 2)
        ck_assert_uint_eq(row->pcs[1], roots[row->thread->tid - 1]);
    return 0;
}

START_TEST(a_tail_has_the_place_where_its_thread_began)
{
    start();
    cpu_sample_start();
    /* The main thread, one whose birth was seen, one that was found. */
    const uint64_t roots[] = {getauxval(AT_ENTRY), 4711, 0};
    for (uint64_t i = 0; i < ARRAY_SIZE(roots); i++) {
        struct thread_slot *slot = thread_prepare(i ? roots[i] : 0, NULL);
        slot->is_main = i == 0;
        slot->label.tid = i + 1;
        slot->cpu_last_ns = 1000;
        cpu_sample_tail(slot, 1500);
        cpu_sample_tail(slot, 1500);
        cpu_sample_tail(slot, 1400); /* a clock that is behind adds nothing */
    }
    ck_assert(!recorder_has_samples());
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_rows(window), ARRAY_SIZE(roots));
    ck_assert_int_eq(window_each(window, check_tail, (void *)roots), 0);
}
END_TEST

static int check_frames(const struct window_row *row, void *data)
{
    uint32_t *frames = data;
    if (row->pcs[0] != PSEUDO_TAIL)
        return 0;
    *frames += row->count - 1;
    for (uint32_t i = 1; i < row->count; i++)
        ck_assert_uint_eq(row->pcs[i], 1000);
    return 0;
}

/* As far as its samples have told; a stack that was cut has not. */
START_TEST(a_tail_of_a_thread_that_was_found_has_its_outermost_frames)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    walk_site = 1000;
    walk_frames = (uint32_t)_i % 4;
    walk_flags = _i / 4 ? UNWIND_CUT : UNWIND_COMPLETE;
    slot->is_main = false;
    signal_tick(slot);
    cpu_sample_tail(slot, slot->cpu_last_ns + 500);
    uint32_t frames = 0;
    ck_assert_int_eq(window_each(fixture_turn(), check_frames, &frames), 0);
    ck_assert_uint_eq(frames, walk_flags == UNWIND_CUT ? 0 : MIN_OF(walk_frames, 2u));
}
END_TEST

/* Its first sample stands for it, where it is short; a second of it at most. */
START_TEST(what_a_thread_used_before_it_was_found)
{
    start();
    options.frequency = 100;
    struct thread_slot *slot = thread_attach(0, 0);
    slot->cpu_last_ns = 20 * NS_PER_MS;
    cpu_sample_before_adoption(slot);
    ck_assert_uint_eq(slot->cpu_last_ns, 0);
    cpu_sample_before_adoption(slot); /* one that has not run yet */
    ck_assert_uint_eq(slot->cpu_last_ns, 0);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
    slot->cpu_last_ns = 20 * NS_PER_MS + 1;
    cpu_sample_before_adoption(slot);
    ck_assert_uint_eq(slot->cpu_last_ns, 20 * NS_PER_MS + 1);
    ck_assert_uint_eq(amount_at(fixture_turn(), PSEUDO_UNREACHED), 20 * NS_PER_MS + 1);
}
END_TEST

START_TEST(overhead_is_moved_once)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    slot->overhead_ns[OVERHEAD_HANDLERS] = 700;
    cpu_sample_overhead(slot);
    cpu_sample_overhead(slot);
    struct thread_label label = {.tid = 3, .name = "libagent"};
    cpu_sample_add_overhead(&label, PSEUDO_AGENT, 40);
    cpu_sample_add_overhead(&label, PSEUDO_AGENT, 0);
    ck_assert(!recorder_has_samples());
    struct window *window = fixture_turn();
    ck_assert_uint_eq(amount_at(window, PSEUDO_OVERHEAD), 740);
    ck_assert_uint_eq(fixture_rows(window), 2);
}
END_TEST

/* Hooks are timed on the wall: the sum is the thread's CPU time all the same. */
START_TEST(overhead_that_was_waiting_is_taken_back)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    slot->cpu_last_ns = 1000;
    slot->overhead_ns[OVERHEAD_HANDLERS] = 700; /* of which 500 were never run: */
    cpu_sample_tail(slot, 500);                 /* the clock says so */
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HANDLERS], 200);
    cpu_sample_overhead(slot);
    /* Of what is in a window already, the next one has less. */
    slot->cpu_last_ns = 900;
    cpu_sample_tail(slot, 800);
    cpu_sample_overhead(slot);
    ck_assert_int_eq(slot->overhead_ns[OVERHEAD_HANDLERS], -100);
    slot->overhead_ns[OVERHEAD_HANDLERS] += 150;
    cpu_sample_overhead(slot);
    ck_assert_uint_eq(amount_at(fixture_turn(), PSEUDO_OVERHEAD), 250);
}
END_TEST

START_TEST(a_thread_that_no_signal_reaches_is_accounted)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    options.frequency = 1000;
    const uint64_t limit = 104 * NS_PER_MS; /* 4 periods and 100 ms */
    burn(limit + NS_PER_MS);
    uint64_t now = clock_thread_cpu_ns();
    cpu_sample_unreached(slot, now); /* there is no timer: nobody said that there are samples */
    ck_assert(!recorder_has_samples());
    slot->timer = INT32_MAX;
    ck_assert(!cpu_sample_is_unreached(slot, begin - 1));
    cpu_sample_unreached(slot, begin + limit - 1);
    ck_assert(!recorder_has_samples());
    cpu_sample_unreached(slot, now);
    ck_assert(recorder_has_samples());
    cpu_sample_unreached(slot, now);
    slot->timer = -1;
    uint64_t end = cpu_settle(slot);
    ck_assert_uint_eq(amount_at(cpu_check_total(end - begin), PSEUDO_UNREACHED), now - begin);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("cpu_sample");
    TCase *ticks = tcase_create("ticks");
    tcase_set_timeout(ticks, 60);
    tcase_add_test(ticks, a_sample_is_worth_the_time_since_the_last_one);
    tcase_add_test(ticks, a_handler_leaves_no_trace);
    tcase_add_test(ticks, a_sample_inside_the_agent_is_put_off);
    tcase_add_test(ticks, a_sample_without_a_buffer_is_put_off);
    tcase_add_test(ticks, a_slot_that_is_not_the_threads_own_is_not_touched);
    tcase_add_test(ticks, a_sample_stands_for_a_second_at_most);
    tcase_add_test(ticks, hooks_are_overhead_not_the_apps_time);
    tcase_add_test(ticks, flags_of_a_walk_are_counted);
    tcase_add_loop_test(ticks, a_sample_in_our_own_code_says_so, 0, 2);
    tcase_add_test(ticks, a_moment_says_whether_the_stack_is_clean);
    tcase_add_loop_test(ticks, a_first_sample_stands_for_an_interval, 0, 2);
    suite_add_tcase(suite, ticks);
    TCase *known = tcase_create("known");
    tcase_set_timeout(known, 60);
    tcase_add_test(known, a_tail_has_the_place_where_its_thread_began);
    tcase_add_loop_test(known, a_tail_of_a_thread_that_was_found_has_its_outermost_frames, 0, 8);
    tcase_add_test(known, what_a_thread_used_before_it_was_found);
    tcase_add_test(known, overhead_is_moved_once);
    tcase_add_test(known, overhead_that_was_waiting_is_taken_back);
    tcase_add_test(known, a_thread_that_no_signal_reaches_is_accounted);
    suite_add_tcase(suite, known);
    return suite;
}
