/* How long threads ran, as the kernel tells it, where ticks see the same thing each time. How a
 * blocked thread is read is a stand-in (for real: check_blocked.c). */
#include "test/check.h"

#include "agent/sched/run_balance.h"
#include "test/wall_fixture.h"

/* The first look, at 100, which finds the thread at 10. */
static void start_at_10(uint64_t cpu_ns)
{
    start(false);
    moved(100, cpu_ns);
}

static void seen(enum blocked what, uint64_t after, uint64_t cpu_ns)
{
    does = what;
    moved(after, cpu_ns);
}

START_TEST(who_is_never_seen_running_has_run_all_the_same)
{
    delay_ns = 0;
    start_at_10(50);
    blocked_at = 20;
    seen(BLOCKED_READ, 200, 80);
    seen(BLOCKED_READ, 300, 110);
    sample(40);
    flush(300, 110, false);
    check_row(10, state_of(10), 100, 1);
    check_row(20, state_of(20), 140, 2);
    check_row(40, RECORD_RUNNING, 60, 1);
    check_all(300);
}
END_TEST

START_TEST(who_is_always_seen_running_has_waited_all_the_same)
{
    delay_ns = 0;
    start_at_10(50);
    seen(BLOCKED_NOT, 200, 80);
    delay_ns = 5;
    seen(BLOCKED_NOT, 300, 110);
    sample(40);
    flush(300, 110, false);
    check_row(10, state_of(10), 100 + 70 + 65, 3);
    check_row(40, RECORD_RUNNING, 30 + 35, 1);
    check_all(300);
}
END_TEST

/* What the kernel counts late, as it does with a thread that is still ready. */
START_TEST(what_there_was_no_time_for_is_made_up_for)
{
    delay_ns = 0;
    start_at_10(50);
    seen(BLOCKED_NOT, 200, 60);
    delay_ns = 120;
    seen(BLOCKED_NOT, 300, 70);
    seen(BLOCKED_READ, 400, 70);
    sample(40);
    seen(BLOCKED_READ, 500, 71);
    sample(41);
    flush(500, 71, false);
    check_row(40, RECORD_RUNNING, 10 + 100 + 30, 1);
    check_row(41, RECORD_RUNNING, 1, 1);
    check_row(10, state_of(10), 100 + 90 + 70 + 99, 4);
    check_all(500);
}
END_TEST

/* Who never waited runs; what was too much is not given again. */
START_TEST(who_has_not_waited_yet)
{
    struct run_balance balance = {0};
    delay_ns = 7;
    ck_assert_uint_eq(run_balance_take(&balance, TID, 50, 100, true), 100);
    ck_assert_uint_eq(run_balance_take(&balance, TID, 90, 100, true), 40);
    run_balance_give(&balance, 60);
    ck_assert_uint_eq(run_balance_take(&balance, TID, 150, 100, false), 0);
    ck_assert_uint_eq(run_balance_take(&balance, TID, 151, 100, false), 1);
}
END_TEST

START_TEST(who_goes_on_while_labels_are_kept)
{
    delay_ns = 0;
    start_at_10(50);
    blocked_at = 20;
    has_gone_on = true;
    seen(BLOCKED_READ, 200, 80);
    has_gone_on = false;
    blocked_at = 30;
    seen(BLOCKED_READ, 300, 90);
    sample(40);
    flush(300, 90, false);
    check_row(10, state_of(10), 100, 1);
    check_row(30, state_of(30), 160, 1);
    check_row(40, RECORD_RUNNING, 40, 1);
    check_all(300);
}
END_TEST

START_TEST(where_the_kernel_tells_nothing)
{
    struct run_balance balance = {0};
    delay_ns = UINT64_MAX;
    for (uint64_t cpu_ns = 10; cpu_ns < 100; cpu_ns += 10) {
        ck_assert_uint_eq(run_balance_take(&balance, TID, cpu_ns, 100, true), 100);
        run_balance_give(&balance, 50);
        ck_assert_uint_eq(run_balance_take(&balance, TID, cpu_ns, 100, false), 0);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("run_balance");
    TCase *balances = tcase_create("balances");
    tcase_add_test(balances, who_is_never_seen_running_has_run_all_the_same);
    tcase_add_test(balances, who_is_always_seen_running_has_waited_all_the_same);
    tcase_add_test(balances, what_there_was_no_time_for_is_made_up_for);
    tcase_add_test(balances, who_has_not_waited_yet);
    tcase_add_test(balances, who_goes_on_while_labels_are_kept);
    tcase_add_test(balances, where_the_kernel_tells_nothing);
    suite_add_tcase(suite, balances);
    return suite;
}
