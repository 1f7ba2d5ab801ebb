/* What a thread's account of wall time makes of what ticks tell. How a blocked thread is read is a
 * stand-in here (for real: check_blocked.c); times are the suite's, so that all sums are exact. */
#include "test/check.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "agent/base/arena.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/kept_stacks.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/wall.h"
#include "agent/unwind/modules.h"
#include "test/demand.h"
#include "test/wall_fixture.h"

static void still(uint64_t after, uint64_t cpu)
{
    wall_visitor.still(slot, BEGIN + after, cpu);
}

START_TEST(a_thread_that_waits_is_asked_once)
{
    start(false);
    moved(100, 1);
    for (uint64_t at = 200; at <= 100000; at += 100)
        still(at, 1);
    ck_assert_uint_eq(looks, 1);
    turn();
    ck_assert_uint_eq(row_count, 0);
    flush(100050, 1, false);
    check_row(10, state_of(10), 100050, 1);
    check_all(100050);
    /* In the next window it goes on. */
    flush(300000, 1, false);
    check_row(10, state_of(10), 199950, 1);
    ck_assert_uint_eq(looks, 1);
    ck_assert_uint_eq(rows[0].generation, GENERATION);
    ck_assert_uint_eq(rows[0].count, 2);
    ck_assert_uint_eq(rows[0].thread->tid, TID);
}
END_TEST

START_TEST(a_process_that_is_idle)
{
    start(false);
    moved(100, 1);
    wall_visitor.done(BEGIN + 100, 1);
    for (uint64_t at = 200; at <= 1000; at += 100)
        wall_visitor.done(BEGIN + at, 0);
    blocked_at = 20;
    moved(1100, 2);
    wall_visitor.done(BEGIN + 1100, 1);
    flush(1150, 3, false);
    check_row(10, state_of(10), 1000, 1);
    check_row(20, state_of(20), 100, 1);
    /* What was not visited by the tick before may have moved since. */
    wall_visitor.done(BEGIN + 1200, 1);
    wall_visitor.done(BEGIN + 1300, 0);
    wall_thread_end(slot, BEGIN + 1400);
    turn();
    check_row(PSEUDO_TAIL, RECORD_UNTOLD, 300, 1);
    check_all(300);
}
END_TEST

/* ---- ticks, in a process of that one thread ---- */

static uint64_t thread_ns;

static bool answer_clocks(long number, const long args[6], long *result)
{
    if (number != SYS_clock_gettime || args[0] == CLOCK_MONOTONIC)
        return false;
    uint64_t ns = args[0] == CLOCK_THREAD_CPUTIME_ID ? 0 : thread_ns; /* that of ticks */
    *(struct timespec *)args[1] = (struct timespec){0, (long)ns};
    *result = 0;
    return true;
}

static void start_ticks(void)
{
    const struct sched_request request = {.period_ns = NS_PER_MS, .wall = &wall_visitor};
    start(false);
    sys_override = answer_clocks;
    ck_assert_int_eq(tick_start(&request, &event_source, false), 0);
}

static bool tick(uint64_t after, uint64_t ran_ns)
{
    thread_ns += ran_ns;
    return tick_visit(BEGIN + after);
}

/* It is told by clocks alone that it waits: as soon as they stand, though nothing moves then. */
START_TEST(a_process_that_comes_to_rest_and_shows_nothing)
{
    start_ticks();
    does = BLOCKED_REFUSED;
    untold = true;
    ck_assert(tick(100, 50000));
    sample(50);
    ck_assert(tick(200, 50000));
    ck_assert(tick(300, 0));
    for (uint64_t at = 400; at <= 5000; at += 100)
        ck_assert(!tick(at, 0));
    sample(60); /* the first after the wait */
    ck_assert(tick(5100, 50000));
    sample(61);
    flush(5100, thread_ns, false);
    check_row(50, RECORD_RUNNING, 100, 1);
    check_row(50, RECORD_BLOCKED | RECORD_APPROXIMATE, 4800, 1);
    check_row(60, RECORD_RUNNING, 100, 1);
    check_row(61, RECORD_RUNNING, 100, 1);
    check_all(5100);
}
END_TEST

/* Where the look was put off, or came too early, there is another. */
START_TEST(a_process_that_comes_to_rest_unseen)
{
    start_ticks();
    ck_assert(tick(100, 50000));
    puts_off = true;
    ck_assert(tick(200, 50000));
    puts_off = false;
    does = BLOCKED_MOVED;
    ck_assert(tick(300, 0));
    does = BLOCKED_NOT;
    ck_assert(tick(400, 1000));
    does = BLOCKED_READ;
    blocked_at = 20;
    ck_assert(tick(500, 0));
    for (uint64_t at = 600; at <= 5000; at += 100)
        ck_assert(!tick(at, 0));
    ck_assert_uint_eq(looks, 4);
    does = BLOCKED_NOT;
    ck_assert(tick(5100, 50000));
    sample(60);
    flush(5100, thread_ns, false);
    check_row(10, state_of(10), 100, 1);
    check_row(20, state_of(20), 4600, 1);
    check_row(60, RECORD_RUNNING, 400, 1);
    check_all(5100);
}
END_TEST

START_TEST(a_thread_that_goes_elsewhere)
{
    start(false);
    moved(100, 1);
    still(200, 1);
    still(300, 1);
    blocked_at = 20;
    moved(400, 2);
    still(500, 2);
    /* It has moved again, and nobody has looked yet: that time is the next window's. */
    flush(550, 3, false);
    check_row(10, state_of(10), 300, 1);
    check_row(20, state_of(20), 200, 1);
    check_all(500);
    blocked_at = 30;
    moved(600, 3);
    flush(700, 3, false);
    check_row(30, state_of(30), 200, 1);
    check_all(200);
}
END_TEST

START_TEST(a_thread_that_runs_has_its_sample_s_stack)
{
    start(false);
    does = BLOCKED_NOT;
    moved(100, 1);
    still(200, 1); /* it waits for a processor */
    sample(40);
    sample(41);
    does = BLOCKED_READ;
    moved(300, 2);
    does = BLOCKED_NOT;
    moved(400, 3);
    flush(400, 3, false);
    check_row(40, RECORD_RUNNING, 200, 1);
    check_row(41, RECORD_RUNNING, 0, 0);
    check_row(10, state_of(10), 100, 1);
    check_all(300);
    sample(42);
    flush(500, 3, true);
    check_row(42, RECORD_RUNNING, 100, 1);
    check_row(PSEUDO_TAIL, RECORD_UNTOLD, 100, 1);
    ck_assert_uint_eq(looks, 4);
}
END_TEST

START_TEST(a_thread_that_runs_without_signals)
{
    start(false);
    options.signals = false;
    does = BLOCKED_NOT;
    moved(100, 1);
    flush(150, 2, false);
    check_row(PSEUDO_RUNNING, RECORD_RUNNING, 100, 1);
    moved(200, 3);
    flush(210, 4, true);
    check_row(PSEUDO_RUNNING, RECORD_RUNNING, 100, 1);
    check_row(PSEUDO_TAIL, RECORD_UNTOLD, 10, 1);
    check_all(110);
}
END_TEST

START_TEST(a_thread_that_moves_while_it_is_read)
{
    start(false);
    moved(100, 1);
    does = BLOCKED_MOVED;
    moved(200, 2);
    moved(300, 3);
    flush(300, 3, false);
    check_all(100);
    does = BLOCKED_READ;
    blocked_at = 20;
    moved(400, 4);
    flush(400, 4, false);
    check_row(20, state_of(20), 300, 1);
    check_all(300);
    ck_assert_uint_eq(stats_get(STAT_BLOCKED_MOVED), 2);
}
END_TEST

START_TEST(a_look_that_is_put_off)
{
    start(false);
    moved(100, 1);
    puts_off = true;
    blocked_at = 20;
    moved(200, 2);
    still(300, 2);
    ck_assert_uint_eq(looks, 1);
    puts_off = false;
    still(400, 2);
    flush(400, 2, false);
    check_row(10, state_of(10), 100, 1);
    check_row(20, state_of(20), 300, 1);
    check_all(400);
}
END_TEST

START_TEST(the_end_has_what_is_left)
{
    start(false);
    wall_thread_end(slot, BEGIN + 70);
    moved(100, 1); /* it has ended */
    turn();
    check_row(PSEUDO_TAIL, RECORD_UNTOLD, 70, 1);
    ck_assert_uint_eq(rows[0].pcs[1], 31);
    /* Another thread in that slot. */
    slot->tid = TID + 1;
    wall_thread_begin(slot, BEGIN + 200);
    moved(300, 1);
    still(400, 1);
    does = BLOCKED_NOT;
    moved(450, 2);
    wall_thread_end(slot, BEGIN + 500);
    flush(600, 2, true);
    check_row(10, state_of(10), 200, 1);
    check_row(PSEUDO_TAIL, RECORD_UNTOLD, 100, 1);
    check_all(300);
    /* One that attached itself unseen. */
    slot->tid = TID + 2;
    does = BLOCKED_READ;
    moved(700, 1);
    moved(800, 2);
    still(900, 2);
    /* And went unseen. */
    slot->state = SLOT_FREE;
    wall_flushed();
    wall_flushed();
    turn();
    check_all(200);
}
END_TEST

START_TEST(a_process_that_shows_nothing)
{
    const uint32_t approximate = RECORD_BLOCKED | RECORD_APPROXIMATE;
    start(false);
    does = BLOCKED_REFUSED;
    moved(100, 1);
    still(200, 1);
    runs = true;
    moved(300, 2);
    sample(50);
    runs = false;
    moved(400, 3);
    still(500, 3);
    flush(500, 3, false);
    check_row(PSEUDO_UNREACHED, approximate, 200, 1);
    ck_assert_uint_eq(stats_get(STAT_BLOCKED_REFUSED), 3);
    check_row(50, RECORD_RUNNING, 100, 1);
    check_row(50, approximate, 200, 1);
    check_all(500);
    sample(51);
    moved(600, 4);
    flush(700, 4, false);
    check_row(51, approximate, 200, 1);
}
END_TEST

static int sent;

static bool answer_signals(long number, const long args[6], long *result)
{
    if (number != SYS_rt_tgsigqueueinfo)
        return false;
    const siginfo_t *info = (const siginfo_t *)args[3];
    demand(args[1] == TID && args[2] == SAMPLING_SIGNAL);
    demand(info->si_code == SI_TIMER && info->si_value.sival_ptr == slot);
    sent++;
    *result = 0;
    return true;
}

START_TEST(a_directed_signal_where_it_is_allowed)
{
    start(true);
    sys_override = answer_signals;
    does = BLOCKED_REFUSED;
    moved(100, 1);
    ck_assert_int_eq(sent, 1);
    sample(60);
    moved(200, 2); /* by the signal */
    for (uint64_t at = 300; at < 1000; at += 100)
        still(at, 2);
    ck_assert_int_eq(sent, 1);
    moved(1000, 3);
    sample(61);
    ck_assert_int_eq(sent, 2);
    moved(1100, 4);
    /* No answer for eight ticks: as without. */
    for (uint64_t tick = 1; tick <= 9; tick++)
        moved(1100 + 100 * tick / 5, 4 + tick);
    ck_assert_int_eq(sent, 3);
    sys_override = NULL;
    flush(1300, 13, false);
    check_row(60, RECORD_BLOCKED, 900, 1);
    check_row(61, RECORD_BLOCKED, 200, 1);
    check_row(61, RECORD_BLOCKED | RECORD_APPROXIMATE, 200, 1);
    check_all(1300);
}
END_TEST

/* More stacks than are kept: nothing is lost, and after a flush they are kept again. */
START_TEST(stacks_without_end)
{
    enum { STACKS = 200000 };
    uint64_t samples, total = 0, at = 0;
    start(false);
    for (uint64_t i = 0; i < STACKS; i++) {
        blocked_at = 10 + i;
        moved(at += 10, i + 1);
    }
    ck_assert(kept_stacks_are_many());
    still(at += 10, STACKS);
    ck_assert_uint_eq(looks, STACKS + 1); /* not kept: asked again */
    wall_flush(slot, BEGIN + at, STACKS, false);
    wall_flushed();
    struct window *window = fixture_turn();
    total = fixture_total(window, RECORD_WALL).amount;
    samples = fixture_total(window, RECORD_WALL).count >> RECORD_FRACTION_BITS;
    ck_assert_uint_eq(total, at);
    ck_assert_uint_eq(samples, STACKS + 1);
    ck_assert(!kept_stacks_are_many());
    still(at + 10, STACKS);
    still(at + 20, STACKS);
    ck_assert_uint_eq(looks, STACKS + 2);
    recorder_clear(window);
    flush(at + 20, STACKS, false);
    check_all(20);
}
END_TEST

/* Whatever comes, in whatever order: the samples of a thread are its life. */
START_TEST(nothing_is_lost)
{
    uint64_t random = 0x9e3779b97f4a7c15u + (uint64_t)_i, at = 0, cpu = 1, total = 0;
    start(false);
    sys_override = NULL;
    for (int i = 0; i < 20000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        at += random >> 54;
        does = (enum blocked)(random >> 40 & 3);
        runs = random >> 39 & 1;
        puts_off = (random >> 36 & 7) == 0;
        blocked_at = 10 + (random >> 44 & 15);
        if (random >> 50 & 1)
            moved(at, ++cpu);
        else
            still(at, cpu);
        if ((random >> 20 & 3) == 0)
            sample(500 + (random >> 44 & 15));
        if ((random >> 22 & 255) == 0) {
            uint64_t samples;
            flush(at + 3, cpu, false);
            total += sum(0, UINT32_MAX, &samples);
        }
    }
    uint64_t samples;
    wall_thread_end(slot, BEGIN + at + 100);
    turn();
    total += sum(0, UINT32_MAX, &samples);
    ck_assert_uint_eq(total, at + 100);
}
END_TEST

START_TEST(a_child_begins_anew)
{
    start(false);
    moved(100, 1);
    still(200, 1);
    wall_reset_in_child(slot, BEGIN + 1000);
    moved(1100, 2);
    flush(1200, 2, false);
    check_row(10, state_of(10), 200, 1);
    check_all(200);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("wall");
    TCase *accounts = tcase_create("accounts");
    tcase_set_timeout(accounts, 60);
    tcase_add_test(accounts, a_thread_that_waits_is_asked_once);
    tcase_add_test(accounts, a_process_that_is_idle);
    tcase_add_test(accounts, a_process_that_comes_to_rest_and_shows_nothing);
    tcase_add_test(accounts, a_process_that_comes_to_rest_unseen);
    tcase_add_test(accounts, a_thread_that_goes_elsewhere);
    tcase_add_test(accounts, a_thread_that_runs_has_its_sample_s_stack);
    tcase_add_test(accounts, a_thread_that_runs_without_signals);
    tcase_add_test(accounts, a_thread_that_moves_while_it_is_read);
    tcase_add_test(accounts, a_look_that_is_put_off);
    tcase_add_test(accounts, the_end_has_what_is_left);
    tcase_add_test(accounts, a_process_that_shows_nothing);
    tcase_add_test(accounts, a_directed_signal_where_it_is_allowed);
    tcase_add_test(accounts, stacks_without_end);
    tcase_add_loop_test(accounts, nothing_is_lost, 0, 5);
    tcase_add_test(accounts, a_child_begins_anew);
    suite_add_tcase(suite, accounts);
    return suite;
}
