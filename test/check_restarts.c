/* A thread whose system call is begun anew by each sample: told from one that gets on, and sampled
 * less often. Samples are made of contexts that this suite writes. */
#include "test/check.h"

#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "agent/base/sys.h"
#include "agent/sched/restarts.h"
#include "agent/sched/sched.h"
#include "agent/sched/thread_timer.h"
#include "test/cpu_fixture.h"

enum { PERIOD_NS = 10000000 };

/* Two system calls, and code that is none. */
#if defined(__x86_64__)
static const uint8_t code[] = {0x0f, 0x05, 0x0f, 0x05, 0x90, 0x90};
enum { FIRST = 0, SECOND = 2, NEITHER = 4 };
#elif defined(__aarch64__)
static const uint32_t code[] = {0xd4000001, 0xd4000001, 0xd503201f};
enum { FIRST = 0, SECOND = 4, NEITHER = 8 };
#endif

static struct thread_slot *slot;

static void setup(void)
{
    cpu_fixture_start(PERIOD_NS);
    slot = thread_attach(0, 0);
    /* Its timer is read, and is not to go off: no tick comes but those of this suite. */
    thread_timer_begin(slot, false);
    ck_assert_int_ge(slot->timer, 0);
    slot->last_waits = 12345; /* not by chance what it is */
}

/* Where the instruction takes the call's number from. */
static uint64_t number_register = 57;

static const void *at(size_t place)
{
    static ucontext_t context;
    uintptr_t pc = (uintptr_t)code + place;
#if defined(__x86_64__)
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
    context.uc_mcontext.gregs[REG_RAX] = (greg_t)number_register;
#elif defined(__aarch64__)
    context.uc_mcontext.pc = pc;
    context.uc_mcontext.regs[8] = number_register;
#endif
    return &context;
}

static uint64_t interval_after(size_t place, int samples)
{
    for (int i = 0; i < samples; i++)
        restarts_at_sample(slot, at(place));
    return restarts_interval_ns(slot, PERIOD_NS);
}

START_TEST(each_restart_doubles_the_interval)
{
    /* One sample to be there, one to note the waits, two by chance. */
    ck_assert_uint_eq(interval_after(FIRST, 4), PERIOD_NS);
    for (uint64_t stretch = 2; stretch <= 512; stretch *= 2)
        ck_assert_uint_eq(interval_after(FIRST, 1), stretch * PERIOD_NS);
    ck_assert_uint_eq(interval_after(FIRST, 100), 512ull * PERIOD_NS);
}
END_TEST

START_TEST(a_thread_that_goes_on_is_sampled_as_before)
{
    ck_assert_uint_gt(interval_after(FIRST, 10), PERIOD_NS);
    ck_assert_uint_eq(interval_after(SECOND, 1), PERIOD_NS);
    ck_assert_uint_gt(interval_after(SECOND, 10), PERIOD_NS);
    ck_assert_uint_eq(interval_after(NEITHER, 1), PERIOD_NS);
}
END_TEST

START_TEST(code_that_runs_in_place_is_no_restart)
{
    ck_assert_uint_eq(interval_after(NEITHER, 100), PERIOD_NS);
}
END_TEST

static bool forbid_probes(long number, const long arguments[6], long *result)
{
    (void)arguments;
    (void)result;
    ck_assert_int_ne(number, SYS_rt_sigprocmask);
    return false;
}

/* A loop is met at the same place by chance, with anything in the registers: at no cost. */
START_TEST(what_holds_no_number_is_not_looked_at)
{
    number_register = 0x7f0012345678;
    sys_override = forbid_probes;
    ck_assert_uint_eq(interval_after(FIRST, 100), PERIOD_NS);
    sys_override = NULL;
    number_register = 219;
    ck_assert_uint_gt(interval_after(FIRST, 10), PERIOD_NS);
}
END_TEST

START_TEST(a_call_that_waits_gets_on)
{
    static const struct timespec pause = {0, 1000};
    for (int i = 0; i < 20; i++) {
        ck_assert_uint_eq(interval_after(FIRST, 1), PERIOD_NS);
        nanosleep(&pause, NULL);
    }
}
END_TEST

static uint64_t timers_interval(void)
{
    struct itimerspec times;
    ck_assert_int_eq(sys_call2(SYS_timer_gettime, slot->timer, &times), 0);
    return (uint64_t)times.it_interval.tv_sec * 1000000000u + (uint64_t)times.it_interval.tv_nsec;
}

START_TEST(the_timer_follows)
{
    for (int i = 0; i < 6; i++)
        thread_timer_follow(slot, at(FIRST));
    ck_assert_uint_eq(timers_interval(), 4 * PERIOD_NS);
    thread_timer_follow(slot, at(NEITHER));
    ck_assert_uint_eq(timers_interval(), PERIOD_NS);
    /* And another rate. */
    scheduler_cputimer.set_period(3 * PERIOD_NS);
    ck_assert_uint_eq(timers_interval(), PERIOD_NS);
    thread_timer_follow(slot, at(FIRST));
    ck_assert_uint_eq(timers_interval(), 3 * PERIOD_NS);
    ck_assert_uint_eq(slot->interval_us, 3 * PERIOD_NS / 1000);
    /* A late signal for another slot changes nothing. */
    struct thread_slot other = {.timer = slot->timer};
    thread_timer_follow(&other, at(FIRST));
    ck_assert_uint_eq(timers_interval(), 3 * PERIOD_NS);
}
END_TEST

START_TEST(ticks_leave_it_out)
{
    for (uint32_t number = 0; number < 8; number++)
        ck_assert(restarts_allow(slot, number));
    ck_assert_uint_eq(interval_after(FIRST, 6), 4ull * PERIOD_NS);
    for (uint32_t number = 0; number < 8; number++)
        ck_assert(restarts_allow(slot, number) == (number % 4 == 0));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("restarts");
    TCase *tcase = tcase_create("samples");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, each_restart_doubles_the_interval);
    tcase_add_test(tcase, a_thread_that_goes_on_is_sampled_as_before);
    tcase_add_test(tcase, code_that_runs_in_place_is_no_restart);
    tcase_add_test(tcase, what_holds_no_number_is_not_looked_at);
    tcase_add_test(tcase, a_call_that_waits_gets_on);
    tcase_add_test(tcase, the_timer_follows);
    tcase_add_test(tcase, ticks_leave_it_out);
    suite_add_tcase(suite, tcase);
    return suite;
}
