/* A tick that comes together with a signal of the app's: the wait that both end returns after the
 * app's handler has run, and that handler may leave by a jump. */
#include "test/check.h"

#include <errno.h>
#include <setjmp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/signal_fixture.h"

static sigjmp_buf back;
static volatile int calls;
static volatile bool jumps;

static void on_alarm(int signal)
{
    (void)signal;
    calls++;
    if (jumps)
        siglongjmp(back, 1);
}

static const uint64_t all = ~(uint64_t)0, none;

static void set_mask(const uint64_t *mask)
{
    ck_assert_int_eq(syscall(SYS_rt_sigprocmask, SIG_SETMASK, mask, NULL, sizeof(*mask)), 0);
}

static uint64_t get_mask(void)
{
    uint64_t mask;
    ck_assert_int_eq(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &mask, sizeof(mask)), 0);
    return mask;
}

/* Both are pending: the app's for the process, the tick for the thread, which the kernel gives
 * first. */
static void make_both_pending(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    signal_fixture_start();
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    set_mask(&all);
    signal_tick(signal_own);
    kill(getpid(), SIGALRM);
    ck_assert_int_eq(calls, 0);
    ck_assert_uint_eq(signal_samples, 0);
}

START_TEST(a_wait_returns_after_the_apps_handler)
{
    make_both_pending();
    uint64_t blocked = get_mask(); /* not SIGKILL and SIGSTOP; an emulator has fewer than 64 */
    ck_assert_int_eq((int)syscall(SYS_rt_sigsuspend, &none, sizeof(none)), -1);
    ck_assert_int_eq(errno, EINTR);
    ck_assert_int_eq(calls, 1);
    ck_assert_uint_eq(signal_samples, 1);
    ck_assert_uint_eq(get_mask(), blocked);
    set_mask(&none);
}
END_TEST

/* The tick's handler is left at its first instruction: that sample is lost, the next one is not,
 * and nothing is blocked. */
START_TEST(the_apps_handler_may_jump)
{
    make_both_pending();
    jumps = true;
    set_mask(&all);
    if (sigsetjmp(back, 0) == 0) {
        syscall(SYS_rt_sigsuspend, &none, sizeof(none));
        ck_abort_msg("the handler did not jump");
    }
    ck_assert_int_eq(calls, 1);
    ck_assert_uint_eq(signal_samples, 0);
    set_mask(&none);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
    ck_assert_uint_eq(get_mask(), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("signal_order");
    TCase *tcase = tcase_create("order");
#ifndef __SANITIZE_THREAD__ /* it gives signals in its own order */
    tcase_add_test(tcase, a_wait_returns_after_the_apps_handler);
    tcase_add_test(tcase, the_apps_handler_may_jump);
#endif
    suite_add_tcase(suite, tcase);
    return suite;
}
