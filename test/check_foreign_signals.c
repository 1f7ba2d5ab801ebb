/* Signals under our number that are not ours: each kind of disposition gets what it would get
 * without us. */
#include "test/check.h"

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include "test/signal_fixture.h"

/* ThreadSanitizer calls handlers with all signals blocked. */
#ifdef __SANITIZE_THREAD__
enum { HANDLERS_HAVE_MASKS = false };
#else
enum { HANDLERS_HAVE_MASKS = true };
#endif

START_TEST(a_plain_handler_gets_foreign_signals)
{
    signal_fixture_start();
    signal_set(signal_action(signal_plain, SA_RESTART));
    for (int sender = 0; sender < SENDERS; sender++) {
        signal_tick(signal_own);
        signal_send(sender);
        ck_assert_uint_eq(signal_handled, (uint32_t)sender + 1);
        ck_assert_uint_eq(signal_samples, (uint32_t)sender + 1);
    }
}
END_TEST

START_TEST(a_handler_with_information_gets_it)
{
    signal_fixture_start();
    signal_set(signal_action(signal_plain, SA_SIGINFO | SA_RESTART));
    static const int codes[SENDERS] = {SI_TKILL, SI_USER, SI_QUEUE, SI_TIMER};
    for (int sender = 0; sender < SENDERS; sender++) {
        signal_tick(signal_own);
        signal_send(sender);
        ck_assert_uint_eq(signal_handled, (uint32_t)sender + 1);
        ck_assert_int_eq(signal_seen.si_code, codes[sender]);
        ck_assert_int_eq(signal_seen.si_signo, SIGPROF);
        if (codes[sender] == SI_QUEUE)
            ck_assert_ptr_eq(signal_seen.si_value.sival_ptr, signal_own);
        else if (codes[sender] != SI_TIMER)
            ck_assert_int_eq(signal_seen.si_pid, getpid());
    }
    ck_assert_uint_eq(signal_samples, SENDERS);
}
END_TEST

START_TEST(an_interval_timer_of_the_app_counts)
{
    signal_fixture_start();
    signal_set(signal_action(signal_plain, SA_RESTART));
    struct itimerval each_ms = {{0, 1000}, {0, 1000}};
    ck_assert_int_eq(setitimer(ITIMER_PROF, &each_ms, NULL), 0);
    while (signal_handled < 3)
        signals_come();
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &none, NULL);
    ck_assert_uint_eq(signal_samples, 0);
}
END_TEST

START_TEST(an_ignored_signal_is_ignored)
{
    signal_fixture_start();
    signal_set(signal_action(SIG_IGN, 0));
    for (int sender = 0; sender < SENDERS; sender++)
        signal_send(sender);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
}
END_TEST

START_TEST(the_default_action_ends_the_process_with_this_signal)
{
    signal_fixture_start();
    signal_check_killed(signal_in_child(signal_send, _i));
    /* Also after other dispositions, and while the agent is stopped. */
    signal_set(signal_action(signal_plain, SA_NODEFER));
    signal_set(signal_action(SIG_DFL, 0));
    signal_check_killed(signal_in_child(signal_send, _i));
    sampling_signal_stop();
    signal_check_killed(signal_in_child(signal_send, _i));
}
END_TEST

static void send_two(int unused)
{
    (void)unused;
    signal_send(0);
    ck_assert_uint_eq(signal_handled, 1);
    ck_assert(signal_get().sa_handler == SIG_DFL);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
    signal_send(0);
}

START_TEST(a_handler_that_is_reset_is_called_once)
{
    signal_fixture_start();
    signal_set(signal_action(signal_plain, (int)SA_RESETHAND | (_i ? SA_SIGINFO : 0)));
    signal_check_killed(signal_in_child(send_two, 0));
}
END_TEST

START_TEST(a_handler_nests_only_where_it_wants_to)
{
    signal_fixture_start();
    signal_raises_again = true;
    signal_set(signal_action(signal_plain, _i ? SA_NODEFER : 0));
    signal_send(0);
    signals_come();
    ck_assert_uint_eq(signal_handled, 2);
    ck_assert_uint_eq(signal_deepest, _i ? 2 : 1);
}
END_TEST

START_TEST(a_handlers_mask_is_in_force_in_it)
{
    signal_fixture_start();
    struct sigaction action = signal_action(signal_plain, 0);
    sigaddset(&action.sa_mask, SIGUSR1);
    signal_set(action);
    signal_send(0);
    ck_assert(sigismember(&signal_mask_inside, SIGUSR1));
    ck_assert(sigismember(&signal_mask_inside, SIGPROF));
    ck_assert(!sigismember(&signal_mask_inside, SIGUSR2));
    sigset_t after;
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    ck_assert(!sigismember(&after, SIGUSR1) && !sigismember(&after, SIGPROF));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("foreign_signals");
    TCase *foreign = tcase_create("foreign");
    tcase_set_timeout(foreign, 60);
    tcase_add_test(foreign, a_plain_handler_gets_foreign_signals);
    tcase_add_test(foreign, a_handler_with_information_gets_it);
    tcase_add_test(foreign, an_interval_timer_of_the_app_counts);
    tcase_add_test(foreign, an_ignored_signal_is_ignored);
    tcase_add_loop_test(foreign, the_default_action_ends_the_process_with_this_signal, 0, SENDERS);
    tcase_add_loop_test(foreign, a_handler_that_is_reset_is_called_once, 0, 2);
    if (HANDLERS_HAVE_MASKS) {
        tcase_add_loop_test(foreign, a_handler_nests_only_where_it_wants_to, 0, 2);
        tcase_add_test(foreign, a_handlers_mask_is_in_force_in_it);
    }
    suite_add_tcase(suite, foreign);
    return suite;
}
