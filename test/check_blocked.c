/* Threads that are looked at from outside, for real: what waits, what runs, what goes on meanwhile,
 * and what the kernel refuses to tell. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/record/scratch.h"
#include "agent/sched/blocked.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"
#include "test/demand.h"
#include "test/record_fixture.h"

static int gate[2];
static int tid;
static bool stop;
static pthread_t other;
static struct record_stack *stack;
static uint32_t count;

static __attribute__((noinline)) void wait_at_gate(void)
{
    char byte;
    ck_assert_int_eq(read(gate[0], &byte, 1), 1);
    __asm__ volatile("" ::: "memory");
}

static void *waiter(void *name)
{
    if (name)
        prctl(PR_SET_NAME, name);
    store_release(&tid, sys_tid());
    wait_at_gate();
    wait_at_gate();
    return NULL;
}

static void *runner(void *unused)
{
    store_release(&tid, sys_tid());
    while (!load_relaxed(&stop))
        ;
    return unused;
}

static void start(void)
{
    fixture_start((size_t)32 << 20);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    ck_assert_int_eq(blocked_start(), 0);
    ck_assert_ptr_nonnull(stack = scratch_claim());
}

static void start_thread(void *(*routine)(void *), void *argument)
{
    ck_assert_int_eq(pipe(gate), 0);
    tid = 0;
    ck_assert_int_eq(pthread_create(&other, NULL, routine, argument), 0);
    while (!load_acquire(&tid))
        usleep(100);
}

static void open_gate(void)
{
    ck_assert_int_eq(write(gate[1], "", 1), 1);
}

static enum blocked look(void)
{
    return blocked_read(tid, clock_thread_cpu_of_ns(tid), stack, &count);
}

/* It may not have come to rest yet. */
static void wait_until_it_waits(void)
{
    while (blocked_runs(tid, true) || look() != BLOCKED_READ)
        usleep(100);
}

static void end_waiter(void)
{
    open_gate();
    open_gate();
    pthread_join(other, NULL);
}

START_TEST(a_thread_that_waits)
{
    start();
    start_thread(waiter, NULL);
    wait_until_it_waits();
    uint32_t state = (uint32_t)(stack->generation >> RECORD_STATE_SHIFT);
    ck_assert_uint_eq(state & ~RECORD_APPROXIMATE, RECORD_SYSTEM_CALL + SYS_read);
    ck_assert_uint_eq((uint32_t)stack->generation, modules_generation);
    bool found = false;
    for (uint32_t i = 0; i < count; i++)
        found |= stack->pcs[i] - (uintptr_t)wait_at_gate < 256;
    ck_assert(found);
    ck_assert(!blocked_runs(tid, true));
    end_waiter();
    ck_assert_int_eq(look(), BLOCKED_GONE);
}
END_TEST

START_TEST(a_thread_that_runs)
{
    start();
    start_thread(runner, NULL);
    ck_assert_int_eq(look(), BLOCKED_NOT);
    ck_assert(blocked_runs(tid, false));
    store_relaxed(&stop, true);
    pthread_join(other, NULL);
}
END_TEST

/* A clock that stood elsewhere when the stack was taken. */
START_TEST(a_clock_that_went_on)
{
    start();
    start_thread(waiter, NULL);
    wait_until_it_waits();
    ck_assert_int_eq(blocked_read(tid, clock_thread_cpu_of_ns(tid) - 1, stack, &count),
                     BLOCKED_MOVED);
    end_waiter();
}
END_TEST

static int copies;

static bool wake_it_up(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    if (number != SYS_process_vm_readv || copies++ != 0)
        return false;
    uint64_t before = clock_thread_cpu_of_ns(tid);
    open_gate();
    while (clock_thread_cpu_of_ns(tid) == before || blocked_runs(tid, true))
        usleep(100);
    return false;
}

/* It runs, and waits in the same call at the same place again, while its stack is copied. */
START_TEST(a_thread_that_goes_on_meanwhile)
{
    start();
    start_thread(waiter, NULL);
    wait_until_it_waits();
    sys_override = wake_it_up;
    ck_assert_int_eq(look(), BLOCKED_MOVED);
    sys_override = NULL;
    ck_assert_int_ge(copies, 1);
    open_gate();
    pthread_join(other, NULL);
}
END_TEST

static long refused_call, refused_error;

static bool refuse(long number, const long args[6], long *result)
{
    (void)args;
    *result = refused_error;
    return number == refused_call;
}

START_TEST(what_the_kernel_refuses)
{
    static const long calls[][2] = {{SYS_openat, -EACCES},
                                    {SYS_openat, -EMFILE},
                                    {SYS_pread64, -EPERM},
                                    {SYS_process_vm_readv, -EPERM},
                                    {SYS_process_vm_readv, -ENOSYS}};
    start();
    start_thread(waiter, NULL);
    wait_until_it_waits();
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        refused_call = calls[i][0];
        refused_error = calls[i][1];
        sys_override = refuse;
        enum blocked result = look();
        bool otherwise = blocked_runs(tid, true);
        sys_override = NULL;
        ck_assert_msg(result == BLOCKED_REFUSED, "%ld: %d", refused_call, (int)result);
        ck_assert_int_eq(otherwise, refused_call != SYS_process_vm_readv);
        ck_assert_int_eq(look(), BLOCKED_READ);
    }
    /* A /proc that is another namespace's. */
    refused_call = SYS_readlinkat;
    sys_override = refuse;
    ck_assert_int_eq(blocked_start(), 0);
    sys_override = NULL;
    ck_assert_int_eq(look(), BLOCKED_REFUSED);
    ck_assert(blocked_runs(tid, true) && !blocked_runs(tid, false));
    end_waiter();
}
END_TEST

START_TEST(names_that_look_like_states)
{
    static const char *const names[] = {"a) R (b", ") R 1 2 3 4 5 6", ")))))))))))))))", ""};
    start();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        start_thread(waiter, (void *)names[i]);
        wait_until_it_waits();
        ck_assert(!blocked_runs(tid, true));
        end_waiter();
    }
}
END_TEST

static const char *shown;
static uint32_t opened;

static bool show_instead(long number, const long args[6], long *result)
{
    if (number == SYS_openat && strstr((const char *)args[1], "/schedstat")) {
        opened++;
        *result = -ENOENT;
        return !shown;
    }
    if (number != SYS_pread64)
        return false;
    *result = (long)strlen(shown);
    memcpy((void *)args[1], shown, strlen(shown));
    return true;
}

START_TEST(how_long_a_thread_was_ready)
{
    start();
    start_thread(runner, NULL);
    while (blocked_delay_ns(tid) == UINT64_MAX) /* it has had no processor yet */
        demand(clock_thread_cpu_of_ns(tid) < NS_PER_SEC);
    ck_assert_uint_lt(blocked_delay_ns(tid), 60 * NS_PER_SEC);
    sys_override = show_instead;
    shown = "123456 18446744073 9\n";
    ck_assert_uint_eq(blocked_delay_ns(tid), 18446744073u);
    shown = "0 0 0\n";
    ck_assert_uint_eq(blocked_delay_ns(tid), UINT64_MAX);
    /* A kernel without it is asked once. */
    shown = NULL;
    opened = 0;
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(blocked_delay_ns(tid), UINT64_MAX);
    ck_assert_uint_eq(opened, 1);
    sys_override = NULL;
    store_relaxed(&stop, true);
    pthread_join(other, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("blocked");
    TCase *threads = tcase_create("threads");
    tcase_set_timeout(threads, 60);
    tcase_add_test(threads, a_thread_that_waits);
    tcase_add_test(threads, a_thread_that_runs);
    tcase_add_test(threads, a_clock_that_went_on);
    tcase_add_test(threads, a_thread_that_goes_on_meanwhile);
    tcase_add_test(threads, what_the_kernel_refuses);
    tcase_add_test(threads, names_that_look_like_states);
    tcase_add_test(threads, how_long_a_thread_was_ready);
    suite_add_tcase(suite, threads);
    return suite;
}
