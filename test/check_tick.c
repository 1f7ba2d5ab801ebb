/* Ticks: which threads they visit, which they leave alone, what they cost, and that nothing is
 * armed once they are stopped. Clocks, timers and their settings are counted on their way to the
 * kernel; the clocks are the suite's, so that nothing hangs on time. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/sched/sched.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"
#include "test/record_fixture.h"
#include "test/stand_in_walk.h"

enum {
    SLOTS = 400,
    FIRST_TID = 1 << 20,  /* beyond all real ones */
    PERIOD_NS = 10000000, /* 100 visits */
    VISITS = 100,         /* PERIOD_NS / 200 / 500 ns: see tick.c */
    FIRST_TIMER = 1000,
};

static struct thread_slot *slots[SLOTS];
static uint64_t clocks[SLOTS], process_ns;
static uint32_t clock_reads, deleted, armed_at_once[SLOTS], armed_to_repeat[SLOTS];
static int timers_made;

static long read_clock(int clock, struct timespec *time)
{
    uint64_t value = process_ns;
    for (int i = 0; i < SLOTS; i++) {
        if (clock_id_of_thread(FIRST_TID + i) == clock) {
            clock_reads++;
            value = clocks[i];
        }
    }
    if (clock == CLOCK_THREAD_CPUTIME_ID)
        value = 0;
    *time = (struct timespec){(time_t)(value / NS_PER_SEC), (long)(value % NS_PER_SEC)};
    return 0;
}

static void set_timer(int index, const struct itimerspec *times)
{
    bool repeats = times->it_interval.tv_nsec != 0;
    if (times->it_value.tv_nsec == 1 && !repeats)
        armed_at_once[index]++;
    else if (times->it_value.tv_nsec && repeats)
        armed_to_repeat[index]++;
}

/* A timer's number tells its slot: they are made in order. */
static bool answer(long number, const long args[6], long *result)
{
    *result = 0;
    switch (number) {
    case SYS_clock_gettime:
        *result = read_clock((int)args[0], (struct timespec *)args[1]);
        return true;
    case SYS_timer_create:
        *(int *)args[2] = FIRST_TIMER + timers_made++;
        return true;
    case SYS_timer_settime:
        set_timer((int)args[0] - FIRST_TIMER, (const struct itimerspec *)args[2]);
        return true;
    case SYS_timer_delete:
        deleted++;
        return true;
    default:
        return false;
    }
}

static uint32_t still, moved, done, done_visits, lasts;
static bool asks;

static void on_still(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns)
{
    (void)now_ns;
    ck_assert_uint_eq(cpu_ns, clocks[slot->tid - FIRST_TID]);
    still++;
    if (asks)
        tick_visit_again();
}

static void on_moved(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns)
{
    (void)now_ns;
    ck_assert_uint_eq(cpu_ns, clocks[slot->tid - FIRST_TID]);
    moved++;
}

static void on_done(uint64_t now_ns, uint32_t visits)
{
    (void)now_ns;
    done++;
    done_visits = visits;
}

static void on_last(void)
{
    lasts++;
}

static const struct tick_visitor visitor = {
    .still = on_still, .moved = on_moved, .done = on_done, .last = on_last};

static void start(int count, const struct tick_visitor *wall)
{
    fixture_start((size_t)32 << 20);
    sys_override = answer;
    const struct sched_request request = {.period_ns = PERIOD_NS, .cpu = true, .wall = wall};
    ck_assert_int_eq(tick_start(&request, &event_source, true), 0);
    for (int i = 0; i < count; i++) {
        clocks[i] = 1 + (uint64_t)i;
        slots[i] = thread_adopt(FIRST_TID + i);
        slots[i]->thread = SLOT_OF_OURS;
        tick_thread_begin(slots[i]);
        ck_assert_int_eq(slots[i]->timer, FIRST_TIMER + i);
    }
    memset(armed_to_repeat, 0, sizeof(armed_to_repeat));
    clock_reads = 0; /* each adoption was one */
}

static void go_on(int index)
{
    clocks[index] += NS_PER_MS;
    process_ns += NS_PER_MS;
}

/* It has been sampled where that was asked for. */
static void move(int index)
{
    slots[index]->asked_ns = 0;
    go_on(index);
}

/* So often that each has been seen where it stands. */
static void settle(int ticks)
{
    for (int i = 0; i < ticks; i++) {
        process_ns += NS_PER_MS;
        ck_assert(tick_visit(1));
    }
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        thread_slot_at(i)->asked_ns = 0; /* it was sampled */
    memset(armed_at_once, 0, sizeof(armed_at_once));
    clock_reads = still = moved = done = 0;
}

START_TEST(only_threads_that_moved_are_sampled)
{
    start(10, &visitor);
    settle(1);
    move(3);
    move(7);
    ck_assert(tick_visit(1));
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(armed_at_once[i], i == 3 || i == 7);
    ck_assert_uint_eq(moved, 2);
    ck_assert_uint_eq(still, 8);
    ck_assert_uint_eq(done, 1);
    ck_assert_uint_eq(done_visits, 10);
}
END_TEST

START_TEST(an_idle_process_is_one_read_of_its_clock)
{
    start(10, &visitor);
    settle(1);
    for (int i = 0; i < 5; i++)
        ck_assert(!tick_visit(1));
    ck_assert_uint_eq(clock_reads, 0);
    ck_assert_uint_eq(moved + still, 0);
    ck_assert_uint_eq(done, 5);
    ck_assert_uint_eq(done_visits, 0);
    /* Instants that are too short for one tick add up. */
    for (int i = 0; i < 10; i++) {
        clocks[4] += 250;
        process_ns += 250;
        (void)tick_visit(1);
    }
    ck_assert_uint_eq(armed_at_once[4], 1);
}
END_TEST

START_TEST(an_idle_process_is_visited_where_that_is_asked_for)
{
    start(10, &visitor);
    settle(1);
    asks = true;
    process_ns += NS_PER_MS;
    ck_assert(tick_visit(1));
    ck_assert(tick_visit(1));
    asks = false;
    ck_assert(tick_visit(1));
    ck_assert(!tick_visit(1));
    ck_assert_uint_eq(still, 30);
    ck_assert_uint_eq(done, 4);
    ck_assert_uint_eq(done_visits, 0);
}
END_TEST

START_TEST(a_tick_reads_so_many_clocks_and_all_have_their_turn)
{
    start(SLOTS, &visitor);
    process_ns += NS_PER_MS;
    ck_assert(tick_visit(1));
    ck_assert_uint_eq(clock_reads, VISITS);
    settle(SLOTS / (VISITS / 4));
    /* None moves: each is visited once before any is twice. */
    for (int i = 0; i < SLOTS / VISITS; i++) {
        process_ns += NS_PER_MS;
        ck_assert(tick_visit(1));
    }
    ck_assert_uint_eq(clock_reads, SLOTS);
    ck_assert_uint_eq(still, SLOTS);
}
END_TEST

START_TEST(a_thread_that_goes_on_is_visited_at_each_tick)
{
    start(SLOTS, NULL);
    settle(4 * SLOTS / VISITS);
    for (int i = 0; i < 50; i++) {
        move(SLOTS / 2);
        ck_assert(tick_visit(1));
    }
    /* Until it was found the rotation may have needed one round. */
    ck_assert_uint_ge(armed_at_once[SLOTS / 2], 50 - 4 * SLOTS / VISITS / 3);
    ck_assert_uint_eq(armed_at_once[1], 0);
}
END_TEST

/* A timer that the kernel has just found due, and whose signal is yet to come, would lose that by
 * being set again. (Four of the kernel's ticks of 1 to 10 ms later it is taken for lost.) */
START_TEST(a_timer_that_is_to_go_off_is_left_alone)
{
    start(1, NULL);
    settle(1);
    int lost = (int)(4 * clock_tick_ns() / NS_PER_MS);
    ck_assert_int_ge(lost, 4);
    for (int i = 0; i < lost; i++) {
        go_on(0);
        ck_assert(tick_visit(1));
        ck_assert_uint_eq(armed_at_once[0], 1);
    }
    go_on(0);
    ck_assert(tick_visit(1));
    ck_assert_uint_eq(armed_at_once[0], 2);
    move(0);
    ck_assert(tick_visit(1));
    ck_assert_uint_eq(armed_at_once[0], 3);
}
END_TEST

START_TEST(ticks_are_no_more_than_bring_anything)
{
    fixture_start((size_t)32 << 20);
    sys_override = answer;
    struct sched_request request = {.period_ns = 100000, .cpu = true};
    ck_assert_int_eq(tick_start(&request, &event_source, true), 0);
    uint64_t least = MAX_OF(clock_tick_ns() / 2, (uint64_t)NS_PER_MS);
    ck_assert_uint_eq(tick_period_ns(), least);
    tick_set_period(PERIOD_NS);
    ck_assert_uint_eq(tick_period_ns(), PERIOD_NS);
    tick_set_period(100000);
    ck_assert_uint_eq(tick_period_ns(), least);
    tick_stop();
    request.wall = &visitor;
    ck_assert_int_eq(tick_start(&request, &event_source, true), 0);
    ck_assert_uint_eq(tick_period_ns(), NS_PER_MS);
}
END_TEST

START_TEST(after_the_stop_no_timer_is_left)
{
    start(10, NULL);
    settle(1);
    tick_stop();
    ck_assert_uint_eq(deleted, 10);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(slots[i]->timer, TIMER_STOPPED);
        move(i);
    }
    ck_assert(tick_visit(1));
    struct thread_slot *late = thread_adopt(FIRST_TID + 11);
    tick_thread_begin(late);
    ck_assert_int_eq(late->timer, TIMER_STOPPED);
    ck_assert_uint_eq(deleted, 11);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(armed_at_once[i], 0);
}
END_TEST

START_TEST(a_thread_on_hold_is_not_sampled)
{
    start(2, NULL);
    settle(1);
    thread_timer_hold(slots[0]);
    move(0);
    move(1);
    ck_assert(tick_visit(1));
    ck_assert_uint_eq(armed_at_once[0], 0);
    ck_assert_uint_eq(armed_at_once[1], 1);
    thread_timer_go_on(slots[0]);
    ck_assert_uint_eq(armed_to_repeat[0], 1);
    move(0);
    ck_assert(tick_visit(1));
    ck_assert_uint_eq(armed_at_once[0], 1);
}
END_TEST

START_TEST(at_rest_the_timers_go_on_by_themselves)
{
    start(5, NULL);
    tick_rest();
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(armed_to_repeat[i], 1);
    ck_assert(!tick_runs_at_once());
}
END_TEST

START_TEST(without_signals_time_is_told_by_the_clocks)
{
    fixture_start((size_t)32 << 20);
    options.signals = false;
    sys_override = answer;
    const struct sched_request request = {.period_ns = PERIOD_NS, .cpu = true};
    ck_assert_int_eq(tick_start(&request, &event_source, true), 0);
    ck_assert(tick_runs_at_once());
    slots[0] = thread_adopt(FIRST_TID);
    tick_thread_begin(slots[0]);
    ck_assert_int_eq(slots[0]->timer, TIMER_NONE);
    for (int i = 0; i < 5; i++) {
        move(0);
        ck_assert(tick_visit(1));
    }
    ck_assert_int_eq(timers_made, 0);
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_at(window, RECORD_CPU, PSEUDO_RUNNING).amount, 5 * NS_PER_MS);
    ck_assert_uint_eq(fixture_total(window, RECORD_CPU).amount, 5 * NS_PER_MS);
    ck_assert_uint_gt(window->real_samples, 0);
}
END_TEST

static bool goes_not_on(void)
{
    return false;
}

/* At a pause nobody is looked at, at a stop all but the thread that stops, however many they are.
 */
START_TEST(a_stop_looks_at_all_threads_once_more)
{
    start(SLOTS, &visitor);
    tick_run(goes_not_on);
    ck_assert_uint_eq(still + moved + lasts, 0);
    tick_run_ends(FIRST_TID + 7);
    tick_run(goes_not_on);
    ck_assert_uint_eq(lasts, 1);
    ck_assert_uint_eq(still + moved, SLOTS - 1);
    ck_assert_uint_eq(done, 0);
}
END_TEST

START_TEST(missed_ticks_are_skipped)
{
    enum { UNIT = PERIOD_NS / 10 };
    static const struct {
        uint64_t next, now, then;
    } ticks[] = {{0, 1000, 1010},    {1010, 1009, 1010}, {1010, 1010, 1020},
                 {1010, 1019, 1020}, {1010, 1020, 1030}, {1010, 5555, 5560}};
    const struct sched_request request = {.period_ns = PERIOD_NS, .cpu = true};
    fixture_start((size_t)32 << 20);
    ck_assert_int_eq(tick_start(&request, &event_source, true), 0);
    for (size_t i = 0; i < ARRAY_SIZE(ticks); i++)
        ck_assert_uint_eq(tick_next(ticks[i].next * UNIT, ticks[i].now * UNIT),
                          ticks[i].then * UNIT);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("tick");
    TCase *tcase = tcase_create("ticks");
    tcase_add_test(tcase, only_threads_that_moved_are_sampled);
    tcase_add_test(tcase, an_idle_process_is_one_read_of_its_clock);
    tcase_add_test(tcase, an_idle_process_is_visited_where_that_is_asked_for);
    tcase_add_test(tcase, a_tick_reads_so_many_clocks_and_all_have_their_turn);
    tcase_add_test(tcase, a_thread_that_goes_on_is_visited_at_each_tick);
    tcase_add_test(tcase, a_timer_that_is_to_go_off_is_left_alone);
    tcase_add_test(tcase, ticks_are_no_more_than_bring_anything);
    tcase_add_test(tcase, after_the_stop_no_timer_is_left);
    tcase_add_test(tcase, a_thread_on_hold_is_not_sampled);
    tcase_add_test(tcase, a_stop_looks_at_all_threads_once_more);
    tcase_add_test(tcase, at_rest_the_timers_go_on_by_themselves);
    tcase_add_test(tcase, without_signals_time_is_told_by_the_clocks);
    tcase_add_test(tcase, missed_ticks_are_skipped);
    suite_add_tcase(suite, tcase);
    return suite;
}
