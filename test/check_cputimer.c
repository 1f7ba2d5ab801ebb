/* Real timers on threads' CPU clocks: that they fire, that nothing is lost between them, and what
 * happens when the kernel refuses one. The walk is a stand-in. Each test burns CPU time until
 * enough samples came; the sum of what was recorded is exact to the nanosecond. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/sched.h"
#include "agent/sched/thread_timer.h"
#include "agent/thread/libc_thread.h"
#include "test/cpu_fixture.h"
#include "test/demand.h"
#include "test/own_log.h"
#include "test/record_fixture.h"
#include "test/signal_fixture.h"
#include "test/stand_in_walk.h"

/* The kernel's tick is 4 ms on many machines: this asks for more than that gives. */
enum { PERIOD_NS = 1000000, ENOUGH = 10 };

static void start(void)
{
    cpu_fixture_start(PERIOD_NS);
}

/* Burns CPU time until the counter has grown by ENOUGH. */
static void burn_until_enough(enum stat_id stat)
{
    uint64_t wanted = stats_get(stat) + ENOUGH;
    while (stats_get(stat) < wanted)
        cpu_burn();
}

/* Until the thread has been sampled so often. */
static void burn_for_samples(struct thread_slot *slot)
{
    uint32_t guard = load_relaxed(&slot->guard);
    while (load_relaxed(&slot->guard) < guard + 2 * ENOUGH)
        cpu_burn();
}

/* ---- accounts ---- */

START_TEST(samples_and_tail_sum_up_to_the_threads_clock)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    scheduler_cputimer.thread_begin(slot);
    ck_assert_int_ge(slot->timer, 0);
    burn_until_enough(STAT_CPU_SAMPLES);
    cpu_check_total(cpu_settle(slot) - begin);
    ck_assert_int_eq(slot->timer, -1);
    ck_assert_uint_eq(stats_get(STAT_TIMERS_REFUSED), 0);
}
END_TEST

enum { THREADS = 4 };

static struct account {
    uint64_t tid;
    uint64_t clock_ns;
} accounts[THREADS];

static void *burn_in_thread(void *argument)
{
    struct account *account = argument;
    struct thread_slot *slot = thread_prepare((uintptr_t)burn_in_thread, NULL);
    thread_attach_prepared(slot);
    scheduler_cputimer.thread_begin(slot);
    burn_for_samples(slot);
    account->tid = (uint64_t)slot->tid;
    account->clock_ns = cpu_settle(slot); /* from its birth on */
    return NULL;
}

struct thread_sum {
    uint64_t tid;
    uint64_t amount, samples;
};

static int add_thread_row(const struct window_row *row, void *data)
{
    struct thread_sum *sum = data;
    if (row->thread->tid == sum->tid) {
        sum->amount += row->values.amount;
        sum->samples += row->values.count >> RECORD_FRACTION_BITS;
    }
    return 0;
}

START_TEST(every_thread_has_its_own_account)
{
    start();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, burn_in_thread, &accounts[i]), 0);
    uint64_t all = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += accounts[i].clock_ns;
    }
    struct window *window = cpu_check_total(all);
    for (int i = 0; i < THREADS; i++) {
        struct thread_sum sum = {.tid = accounts[i].tid};
        ck_assert_int_eq(window_each(window, add_thread_row, &sum), 0);
        ck_assert_uint_eq(sum.amount, accounts[i].clock_ns);
        ck_assert_uint_ge(sum.samples, ENOUGH);
    }
}
END_TEST

START_TEST(what_is_put_off_is_not_lost)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    scheduler_cputimer.thread_begin(slot);
    thread_tls.inside = 1;
    burn_until_enough(STAT_CPU_DROPPED_INSIDE);
    thread_tls.inside = 0;
    burn_until_enough(STAT_CPU_SAMPLES);
    cpu_check_total(cpu_settle(slot) - begin);
}
END_TEST

/* ---- threads whose birth was not seen ---- */

static pthread_barrier_t barrier;
static int found_tid;
static struct thread_slot *found;

static void *be_found(void *argument)
{
    store_relaxed(&found_tid, sys_tid());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    demand(thread_tls.slot == NULL);
    burn_for_samples(found);
    demand(thread_tls.slot == found);
    scheduler_cputimer.thread_end(found);
    return argument;
}

START_TEST(a_thread_that_was_found_is_sampled_and_takes_its_slot)
{
    start();
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, be_found, NULL);
    pthread_barrier_wait(&barrier);
    found = thread_adopt(found_tid);
    scheduler_cputimer.thread_begin(found);
    ck_assert_int_ge(found->timer, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    ck_assert_uint_ge(stats_get(STAT_CPU_SAMPLES), ENOUGH);
    ck_assert_uint_eq(found->state, SLOT_FREE); /* it ended like any other */
}
END_TEST

static uintptr_t foreign[8];

static bool has_foreign_pointer(long number, const long args[6], long *result)
{
    if (number != LIBC_THREAD_POINTER_CALL)
        return false;
    *(uintptr_t *)args[1] = (uintptr_t)foreign;
    *result = 0;
    return true;
}

static void *be_foreign(void *argument)
{
    store_relaxed(&found_tid, sys_tid());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    burn_until_enough(STAT_CPU_SAMPLES);
    demand(thread_tls.slot == NULL && !thread_tls.inside);
    demand(!cpu_sample_is_unreached(found, clock_thread_cpu_ns()));
    demand(load_relaxed(&found->state) == SLOT_USED);
    return argument;
}

START_TEST(a_thread_of_another_runtime_is_sampled_without_its_data)
{
    start();
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, be_foreign, NULL);
    pthread_barrier_wait(&barrier);
    found = thread_adopt(found_tid);
    options.frequency = 100;
    sys_override = has_foreign_pointer;
    scheduler_cputimer.thread_begin(found);
    ck_assert_int_ge(found->timer, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    sys_override = NULL;
    ck_assert_uint_ge(stats_get(STAT_CPU_SAMPLES), ENOUGH);
    ck_assert_uint_eq(stats_get(STAT_THREADS_FOREIGN), 1);
    ck_assert_int_eq(found->thread, SLOT_OF_FOREIGN);
    /* No scan adopts it again while it lives. */
    ck_assert_int_eq(found->state, SLOT_USED);
    thread_release_slot(found);
    ck_assert_ptr_eq(thread_prepare(1, NULL), found);
    ck_assert_int_eq(found->thread, SLOT_OF_OURS);
}
END_TEST

/* By the system call, as on a kernel that keeps the instruction from user space. */
START_TEST(a_thread_with_another_pointer_for_a_while_is_sampled_without_its_data)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    scheduler_cputimer.thread_begin(slot);
    sys_override = has_foreign_pointer;
    thread_tls.inside = 1; /* where that was looked at, no sample would be taken */
    burn_until_enough(STAT_CPU_SAMPLES);
    /* A handler that has put that pointer there came in the middle of a sample. */
    thread_guard_enter(slot);
    burn_until_enough(STAT_CPU_DROPPED_INSIDE);
    thread_guard_leave(slot);
    sys_override = NULL;
    burn_until_enough(STAT_CPU_DROPPED_INSIDE);
    thread_tls.inside = 0;
    ck_assert_int_eq(slot->thread, SLOT_OF_OURS);
    ck_assert_uint_eq(stats_get(STAT_THREADS_FOREIGN), 0);
    burn_until_enough(STAT_CPU_SAMPLES);
}
END_TEST

/* ---- end ---- */

START_TEST(after_the_end_no_timer_is_left)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    scheduler_cputimer.thread_begin(slot);
    int timer = slot->timer;
    scheduler_cputimer.thread_end(slot);
    ck_assert_int_eq((int)sys_call1(SYS_timer_delete, timer), -EINVAL);
    scheduler_cputimer.thread_end(slot); /* harmless */
    ck_assert_int_eq(slot->timer, -1);
}
END_TEST

START_TEST(a_thread_on_hold_gets_no_tick_until_it_goes_on)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    scheduler_cputimer.thread_hold(slot); /* without a timer: harmless */
    scheduler_cputimer.thread_begin(slot);
    burn_until_enough(STAT_CPU_SAMPLES);
    scheduler_cputimer.thread_hold(slot);
    uint64_t before = stats_get(STAT_CPU_SAMPLES);
    for (uint64_t end = clock_thread_cpu_ns() + 20 * NS_PER_MS; clock_thread_cpu_ns() < end;)
        cpu_burn();
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), before);
    scheduler_cputimer.thread_go_on(slot);
    burn_until_enough(STAT_CPU_SAMPLES);
}
END_TEST

START_TEST(after_a_stop_no_sample_is_taken)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    scheduler_cputimer.thread_begin(slot);
    burn_until_enough(STAT_CPU_SAMPLES);
    int timer = slot->timer;
    scheduler_cputimer.stop();
    uint64_t before = stats_get(STAT_CPU_SAMPLES);
    uint64_t until = clock_thread_cpu_ns() + 20 * NS_PER_MS; /* ticks come, and do nothing */
    while (clock_thread_cpu_ns() < until)
        cpu_burn();
    ck_assert_uint_eq(stats_get(STAT_CPU_SAMPLES), before);
    /* Accounted as before, and not as one that never had a timer. */
    ck_assert_int_eq(slot->timer, TIMER_STOPPED);
    ck_assert_int_eq((int)sys_call1(SYS_timer_delete, timer), -EINVAL);
    struct thread_slot *late = thread_adopt(sys_tid());
    scheduler_cputimer.thread_begin(late);
    ck_assert_int_eq(late->timer, TIMER_STOPPED);
}
END_TEST

/* ---- refusals ---- */

static long refused_call;
static int deletions;

static bool refuse(long number, const long args[6], long *result)
{
    (void)args;
    deletions += number == SYS_timer_delete;
    *result = -EAGAIN;
    return number == refused_call;
}

START_TEST(a_refusal_is_counted_and_said_once)
{
    own_log_start();
    start();
    sys_override = refuse;
    refused_call = _i ? SYS_timer_settime : SYS_timer_create;
    for (int i = 0; i < 3; i++) {
        struct thread_slot *slot = thread_adopt(sys_tid());
        scheduler_cputimer.thread_begin(slot);
        ck_assert_int_eq(slot->timer, TIMER_REFUSED);
        /* Its time is told from the first period on, as no sample tells it. */
        uint64_t period = NS_PER_SEC / options.frequency;
        ck_assert(!cpu_sample_is_unreached(slot, slot->cpu_last_ns + period - 1));
        ck_assert(cpu_sample_is_unreached(slot, slot->cpu_last_ns + period));
        scheduler_cputimer.thread_end(slot);
    }
    sys_override = NULL;
    ck_assert_uint_eq(stats_get(STAT_TIMERS_REFUSED), 3);
    /* A timer that could not be set is not left behind. */
    ck_assert_int_eq(deletions, _i ? 3 : 0);
    ck_assert_int_eq(own_log_lines("timers are refused (errno 11"), 1);
    own_log_remove();
}
END_TEST

static uint64_t pending_limit;

static bool limit_pending(long number, const long args[6], long *result)
{
    if (number != SYS_prlimit64 || args[1] != RLIMIT_SIGPENDING)
        return false;
    ((uint64_t *)args[3])[0] = pending_limit;
    *result = 0;
    return true;
}

START_TEST(half_of_the_pending_signals_are_left_to_the_app)
{
    struct thread_slot *slots[5];
    own_log_start();
    sys_override = limit_pending;
    pending_limit = 7;
    start();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            slots[i] = thread_adopt(sys_tid());
            scheduler_cputimer.thread_begin(slots[i]);
            ck_assert_int_eq(slots[i]->timer >= 0, i < 3);
        }
        ck_assert_uint_eq(stats_get(STAT_TIMERS_REFUSED), 2 * ((uint64_t)round + 1));
        /* Those that are given back can be had again, the refused ones count for none. */
        for (int i = 0; i < 5; i++)
            scheduler_cputimer.thread_end(slots[i]);
    }
    sys_override = NULL;
    ck_assert_int_eq(own_log_lines("half of RLIMIT_SIGPENDING"), 1);
    own_log_remove();
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* there the handler goes in by libc's function */
static bool handlers_are_refused(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOSYS;
    return number == SYS_rt_sigaction;
}

START_TEST(without_a_signal_there_is_no_scheduler)
{
    fixture_threads();
    sys_override = handlers_are_refused;
    int error = scheduler_cputimer.start(&(struct sched_request){.period_ns = PERIOD_NS});
    sys_override = NULL;
    ck_assert_int_eq(error, -ENOSYS);
}
END_TEST
#endif

/* ---- fork ---- */

static void sample_in_child(void)
{
    struct thread_slot *slot = thread_tls.slot;
    thread_reset_in_child();
    recorder_reset_in_child(1, 1);
    stats_reset();
    uint64_t begin = slot->cpu_last_ns;
    scheduler_cputimer.reset_in_child(slot);
    ck_assert_int_ge(slot->timer, 0);
    burn_until_enough(STAT_CPU_SAMPLES);
    cpu_check_total(cpu_settle(slot) - begin);
}

START_TEST(a_fork_child_has_a_timer_of_its_own)
{
    start();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t begin = slot->cpu_last_ns;
    scheduler_cputimer.thread_begin(slot);
    burn_until_enough(STAT_CPU_SAMPLES);
    pid_t child = fork();
    if (child == 0) {
        sample_in_child();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    burn_until_enough(STAT_CPU_SAMPLES);
    cpu_check_total(cpu_settle(slot) - begin);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("cputimer");
    TCase *timers = tcase_create("timers");
    tcase_set_timeout(timers, 60);
    tcase_add_test(timers, samples_and_tail_sum_up_to_the_threads_clock);
    tcase_add_test(timers, every_thread_has_its_own_account);
    tcase_add_test(timers, what_is_put_off_is_not_lost);
    tcase_add_test(timers, a_thread_that_was_found_is_sampled_and_takes_its_slot);
    tcase_add_test(timers, a_thread_of_another_runtime_is_sampled_without_its_data);
    tcase_add_test(timers, a_thread_with_another_pointer_for_a_while_is_sampled_without_its_data);
    tcase_add_test(timers, a_thread_on_hold_gets_no_tick_until_it_goes_on);
    tcase_add_test(timers, after_the_end_no_timer_is_left);
    tcase_add_test(timers, after_a_stop_no_sample_is_taken);
    tcase_add_loop_test(timers, a_refusal_is_counted_and_said_once, 0, 2);
    tcase_add_test(timers, half_of_the_pending_signals_are_left_to_the_app);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(timers, without_a_signal_there_is_no_scheduler);
#endif
    tcase_add_test(timers, a_fork_child_has_a_timer_of_its_own);
    suite_add_tcase(suite, timers);
    return suite;
}
