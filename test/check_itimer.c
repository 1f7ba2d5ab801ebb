/* The interval timer and its signal, which the agent takes and gives back beside calls of the
 * app's for them: each comes before all of a start or after it. The timer is the suite's. SIGALRM,
 * as ThreadSanitizer's flavour samples by SIGPROF. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/sched/itimer.h"
#include "test/next_libc.h"
#include "test/record_fixture.h"

/* What a call of the app's is given to get through, where it must not. */
enum { CALL_MS = 20 };

static struct itimerval timer;
static int armed;
static void (*on_arm)(void), (*on_look)(void);

static void once(void (**what)(void))
{
    void (*now)(void) = *what;
    *what = NULL;
    if (now)
        now();
}

static bool answer(long number, const long args[6], long *result)
{
    *result = 0;
    if (number == SYS_setitimer) {
        timer = *(const struct itimerval *)args[1];
        armed += timer.it_value.tv_usec != 0;
        once(&on_arm);
        return true;
    }
    if (number == SYS_getitimer) {
        *(struct itimerval *)args[1] = timer;
        once(&on_look);
        return true;
    }
    return false;
}

static void set_up(void)
{
    next_from_libc();
    fixture_start((size_t)32 << 20);
    signal(SIGALRM, SIG_DFL); /* it has Check's handler */
    options.scheduler = SCHEDULER_SIGALRM;
    options.signals = true;
    sys_override = answer;
    memset(&timer, 0, sizeof(timer));
    armed = 0;
    on_arm = on_look = NULL;
}

static int start(void)
{
    const struct sched_request request = {.period_ns = 10 * NS_PER_MS, .cpu = true};
    static struct lock life = LOCK_INIT(LOCK_LIFE);
    lock_acquire(&life);
    int error = itimer_start(&itimer_real, &request);
    lock_release(&life);
    return error;
}

static void on_alarm(int number)
{
    (void)number;
}

static bool is_default(void)
{
    struct sigaction action;
    ck_assert_int_eq(sigaction(SIGALRM, NULL, &action), 0);
    return action.sa_handler == SIG_DFL;
}

static void sleep_ms(int ms)
{
    const struct timespec time = {0, ms * 1000000l};
    nanosleep(&time, NULL);
}

/* ---- a call beside ---- */

static pthread_t caller;
static bool takes;
static int is_done; /* 1: as nobody had it; 2: it is ours, and answered */

static void *call(void *unused)
{
    (void)unused;
    struct itimer_hold hold;
    bool is_ours = itimer_hold_signal(&hold, SIGALRM, takes);
    if (takes)
        signal(SIGALRM, on_alarm);
    else
        ck_assert_int_eq(is_default(), !is_ours);
    itimer_release(&hold);
    __atomic_store_n(&is_done, is_ours ? 2 : 1, __ATOMIC_RELEASE);
    return NULL;
}

static void call_beside(void)
{
    is_done = 0;
    ck_assert_int_eq(pthread_create(&caller, NULL, call, NULL), 0);
    sleep_ms(CALL_MS);
}

static void call_within(void)
{
    call_beside();
    ck_assert_int_eq(__atomic_load_n(&is_done, __ATOMIC_ACQUIRE), 0);
}

START_TEST(test_call_while_the_timer_is_armed)
{
    set_up();
    takes = _i;
    on_arm = call_within;
    ck_assert_int_eq(start(), 0);
    pthread_join(caller, NULL);
    ck_assert_int_eq(is_done, takes ? 1 : 2);
    if (takes) { /* and not the start */
        ck_assert_ptr_eq(signal(SIGALRM, SIG_DFL), on_alarm);
        ck_assert_int_eq(timer.it_value.tv_usec, 0);
    }
    itimer_stop();
    ck_assert(is_default());
}
END_TEST

/* The timer is looked at as the first thing of a stop. */
START_TEST(test_call_while_it_stops)
{
    set_up();
    takes = _i;
    ck_assert_int_eq(start(), 0);
    on_look = call_within;
    itimer_stop();
    pthread_join(caller, NULL);
    ck_assert_int_eq(is_done, 1);
    ck_assert_int_eq(is_default(), !takes);
    signal(SIGALRM, SIG_DFL);
}
END_TEST

static void call_to_its_end(void)
{
    call_beside();
    pthread_join(caller, NULL);
    ck_assert_int_eq(is_done, 1);
}

/* After the look of a start, and before it takes anything. */
START_TEST(test_call_between_look_and_start)
{
    set_up();
    takes = true;
    on_look = call_to_its_end;
    ck_assert_int_eq(start(), -EBUSY);
    ck_assert_int_eq(armed, 0);
    ck_assert_ptr_eq(signal(SIGALRM, SIG_DFL), on_alarm);
}
END_TEST

START_TEST(test_call_that_does_not_end)
{
    struct itimer_hold hold;
    set_up();
    ck_assert(!itimer_hold(&hold, ITIMER_REAL, _i));
    ck_assert_int_eq(start(), -EBUSY);
    ck_assert_int_eq(armed, 0);
    ck_assert(is_default());
    itimer_release(&hold);
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(armed, 1);
    itimer_stop();
}
END_TEST

START_TEST(test_calls_of_no_concern)
{
    struct itimer_hold hold;
    set_up();
    ck_assert(!itimer_hold(&hold, ITIMER_PROF, true));
    ck_assert(!hold.is_held);
    ck_assert(!itimer_hold_signal(&hold, SIGPROF, true));
    ck_assert(!hold.is_held);
    ck_assert_int_eq(start(), 0);
    itimer_stop();
}
END_TEST

/* The new program would have the timer, and no handler. */
START_TEST(test_exec_that_began_before)
{
    set_up();
    itimer_before_exec();
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(armed, 0);
    itimer_before_exec();
    itimer_exec_failed();
    ck_assert_int_eq(armed, 0);
    itimer_exec_failed();
    ck_assert_int_eq(armed, 1);
    itimer_stop();
    ck_assert_int_eq(timer.it_value.tv_usec, 0);
}
END_TEST

START_TEST(test_signal_that_was_waited_for)
{
    sigset_t set;
    set_up();
    sigemptyset(&set);
    sigaddset(&set, SIGPROF);
    itimer_signals_awaited(&set);
    ck_assert_int_eq(start(), 0);
    itimer_stop();
    sigaddset(&set, SIGALRM);
    itimer_signals_awaited(&set);
    ck_assert_int_eq(start(), -EBUSY);
    ck_assert(is_default());
}
END_TEST

/* Sent while it was ours, and given back before the handler looked: here by a call within it. */
static int passed_on;

static void on_passed(int number)
{
    (void)number;
    passed_on++;
}

START_TEST(test_signal_on_its_way)
{
    struct sigaction ours;
    struct itimer_hold hold;
    siginfo_t info = {.si_signo = SIGALRM, .si_code = SI_TKILL};
    set_up();
    ck_assert_int_eq(start(), 0);
    ck_assert_int_eq(sigaction(SIGALRM, NULL, &ours), 0);
    ck_assert(!itimer_hold_signal(&hold, SIGALRM, true));
    signal(SIGALRM, on_passed);
    itimer_release(&hold);
    ours.sa_sigaction(SIGALRM, &info, NULL);
    usleep(1); /* ThreadSanitizer keeps signals back until a call that waits */
    ck_assert_int_eq(passed_on, 1);
    signal(SIGALRM, SIG_DFL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("itimer");
    TCase *tcase = tcase_create("calls beside");
    tcase_add_loop_test(tcase, test_call_while_the_timer_is_armed, 0, 2);
    tcase_add_loop_test(tcase, test_call_while_it_stops, 0, 2);
    tcase_add_test(tcase, test_call_between_look_and_start);
    tcase_add_loop_test(tcase, test_call_that_does_not_end, 0, 2);
    tcase_add_test(tcase, test_calls_of_no_concern);
    tcase_add_test(tcase, test_exec_that_began_before);
    tcase_add_test(tcase, test_signal_that_was_waited_for);
    tcase_add_test(tcase, test_signal_on_its_way);
    suite_add_tcase(suite, tcase);
    return suite;
}
