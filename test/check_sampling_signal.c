/* The one signal of the agent: ours told from others, which go where they would go without us, and
 * handlers of other signals on small alternate stacks. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/demand.h"
#include "test/next_libc.h"
#include "test/signal_fixture.h"

/* As the kernel has it on x86-64 and aarch64. */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

/* SA_RESTORER, which libc adds on x86-64 and which has no name in its headers. */
enum { FLAG_OF_LIBC = 0x04000000 };

static struct kernel_action get_kernel(int signal)
{
    struct kernel_action action;
    ck_assert_int_eq(syscall(SYS_rt_sigaction, signal, NULL, &action, 8), 0);
    return action;
}

static void some_handler(int signal)
{
    (void)signal;
}

/* Puts `handler` in as libc does for its own signal, with libc's way back. */
static void put_in_kernel(void *handler)
{
    ck_assert(signal(SIGUSR2, some_handler) != SIG_ERR);
    struct kernel_action action = get_kernel(SIGUSR2);
    action.handler = handler;
    action.flags |= SA_SIGINFO;
    ck_assert_int_eq(syscall(SYS_rt_sigaction, SAMPLING_SIGNAL, &action, NULL, 8), 0);
}

static volatile uint32_t chained;
static siginfo_t chained_info;

static void on_chained(int signal, siginfo_t *info, void *context)
{
    demand(signal == SAMPLING_SIGNAL);
    demand(context != NULL);
    chained_info = *info;
    chained++;
}

/* Signals of others, in each way that there is; the last has our code and a value of its own. */
enum { SENDERS = 4 };
static const int sender_codes[SENDERS] = {SI_TKILL, SI_USER, SI_QUEUE, SI_TIMER};

static void send_foreign(int sender)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = SAMPLING_SIGNAL;
    info.si_code = sender_codes[sender];
    info.si_value.sival_ptr = sender_codes[sender] == SI_QUEUE ? signal_own : (void *)&info;
    if (sender == 0)
        syscall(SYS_tgkill, getpid(), sys_tid(), SAMPLING_SIGNAL);
    else if (sender == 1)
        kill(getpid(), SAMPLING_SIGNAL);
    else
        syscall(SYS_rt_tgsigqueueinfo, getpid(), sys_tid(), SAMPLING_SIGNAL, &info);
    signals_come();
}

static int status_of_child(void (*body)(int), int argument)
{
    pid_t child = fork();
    if (child == 0) {
        body(argument);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

/* ---- which signal ---- */

START_TEST(no_signal_of_the_apps_is_touched)
{
    struct kernel_action before[65];
    for (int i = 1; i <= 64; i++)
        before[i] = get_kernel(i);
    signal_fixture_start();
    for (int i = 1; i <= 64; i++) {
        struct kernel_action now = get_kernel(i);
        ck_assert_int_eq(memcmp(&before[i], &now, sizeof(now)) != 0, i == SAMPLING_SIGNAL);
    }
    const int expected = SA_SIGINFO | SA_RESTART;
    ck_assert_int_eq((int)get_kernel(SAMPLING_SIGNAL).flags & expected, expected);
    /* libc does not let it be touched. */
    struct sigaction action = {.sa_handler = SIG_DFL};
    ck_assert_int_eq(sigaction(SAMPLING_SIGNAL, &action, NULL), -1);
}
END_TEST

START_TEST(a_thread_that_blocks_all_signals_gets_ours)
{
    sigset_t all, now;
    signal_fixture_start();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
    pthread_sigmask(SIG_BLOCK, &all, &now);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 2);
    ck_assert_int_eq(sigismember(&now, SIGPROF), 1);
}
END_TEST

START_TEST(it_is_unblocked_at_the_start)
{
    const uint64_t ours = (uint64_t)1 << (SAMPLING_SIGNAL - 1);
    ck_assert_int_eq(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ours, NULL, 8), 0);
    signal_fixture_start();
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
}
END_TEST

static long refused;
static bool is_refused(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EPERM;
    return number == refused;
}

START_TEST(a_refusal_is_an_error)
{
    static const long calls[] = {SYS_rt_sigaction, SYS_rt_sigprocmask};
    refused = calls[_i];
    sys_override = is_refused;
    int error = signal_fixture_try();
    sys_override = NULL;
    ck_assert_int_eq(error, -EPERM);
}
END_TEST

/* ---- ours and others' ---- */

START_TEST(others_go_to_the_handler_before_ours)
{
    put_in_kernel(on_chained);
    signal_fixture_start();
    for (int sender = 0; sender < SENDERS; sender++) {
        signal_tick(signal_own);
        send_foreign(sender);
        ck_assert_uint_eq(chained, (uint32_t)sender + 1);
        ck_assert_uint_eq(signal_samples, (uint32_t)sender + 1);
        ck_assert_int_eq(chained_info.si_code, sender_codes[sender]);
    }
}
END_TEST

START_TEST(a_handler_that_libc_puts_in_later_is_kept)
{
    signal_fixture_start();
    put_in_kernel(on_chained);
    signal_tick(signal_own); /* libc's handler has it, and knows it is not meant */
    ck_assert_uint_eq(signal_samples, 0);
    for (int i = 1; i <= 3; i++) {
        sampling_signal_renew();
        signal_tick(signal_own);
        ck_assert_uint_eq(signal_samples, (uint32_t)i);
        send_foreign(0);
        ck_assert_uint_eq(chained, (uint32_t)i + 1);
    }
}
END_TEST

START_TEST(nothing_is_renewed_before_a_start)
{
    struct kernel_action before = get_kernel(SAMPLING_SIGNAL);
    sampling_signal_renew();
    struct kernel_action now = get_kernel(SAMPLING_SIGNAL);
    ck_assert_int_eq(memcmp(&before, &now, sizeof(now)), 0);
}
END_TEST

START_TEST(an_ignored_signal_is_ignored)
{
    put_in_kernel((void *)SIG_IGN);
    signal_fixture_start();
    for (int sender = 0; sender < SENDERS; sender++)
        send_foreign(sender);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
}
END_TEST

START_TEST(the_default_action_ends_the_process_with_this_signal)
{
    put_in_kernel((void *)SIG_DFL); /* libc starts programs with it ignored */
    signal_fixture_start();
    for (int round = 0; round < 2; round++) {
        int status = status_of_child(send_foreign, _i);
        ck_assert(WIFSIGNALED(status));
        ck_assert_int_eq(WTERMSIG(status), SAMPLING_SIGNAL);
        sampling_signal_stop(); /* also while the agent is stopped */
    }
}
END_TEST

START_TEST(after_a_stop_our_signals_do_nothing)
{
    signal_fixture_start();
    signal_tick(signal_own);
    sampling_signal_stop();
    for (int i = 0; i < 10; i++)
        signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
    signal_fixture_start();
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 2);
}
END_TEST

START_TEST(a_signal_is_ours_by_code_and_slot)
{
    put_in_kernel(on_chained);
    signal_fixture_start();
    /* A timer that is gone may have left one: the slot need not be in use. (The handler of this
     * suite takes the own slot only.) */
    sampling_signal_stop();
    signal_tick(signal_own + 5);
    ck_assert_uint_eq(chained, 0);
    signal_tick(NULL);
    ck_assert_uint_eq(chained, 1);
    signal_tick((struct thread_slot *)(void *)((char *)signal_own + 1));
    ck_assert_uint_eq(chained, 2);
}
END_TEST

/* ---- other signals, on alternate stacks ---- */

static struct sigaction action_of(void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    return action;
}

/* Handler, mask and flags, but for the one of libc. */
static void check_same(const struct sigaction *a, const struct sigaction *b)
{
    ck_assert(a->sa_handler == b->sa_handler);
    ck_assert_int_eq(a->sa_flags & ~FLAG_OF_LIBC, b->sa_flags & ~FLAG_OF_LIBC);
    ck_assert_int_eq(memcmp(&a->sa_mask, &b->sa_mask, 8), 0);
}

/* The address sanitizer sets an ample one for every thread. */
static void have_no_alternate_stack(void)
{
    ck_assert_int_eq(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL), 0);
}

/* The app's sigaction for another signal, as the shim does it. */
static struct sigaction set_other(int signal, const struct sigaction *action)
{
    struct sigaction old;
    int result;
    if (sampling_signal_action(signal, action, &old, &result))
        ck_assert_int_eq(result, 0);
    else
        ck_assert_int_eq(sigaction(signal, action, &old), 0);
    return old;
}

static bool kernel_masks_ours(int signal)
{
    return get_kernel(signal).mask >> (SAMPLING_SIGNAL - 1) & 1;
}

START_TEST(a_handler_on_an_alternate_stack_is_not_interrupted)
{
    signal_fixture_start();
    have_no_alternate_stack();
    struct sigaction plain = action_of(some_handler, SA_RESTART);
    struct sigaction on_stack = action_of(some_handler, SA_ONSTACK);
    sigaddset(&on_stack.sa_mask, SIGUSR2);
    static const int signals[] = {SIGUSR1, SIGHUP, 64};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        int signal = signals[i];
        set_other(signal, &plain);
        ck_assert(!kernel_masks_ours(signal));
        struct sigaction old = set_other(signal, &on_stack);
        check_same(&old, &plain);
        ck_assert(kernel_masks_ours(signal));
        /* The app does not see it, also when it only asks. */
        old = set_other(signal, NULL);
        check_same(&old, &on_stack);
        ck_assert(kernel_masks_ours(signal));
        old = set_other(signal, &plain);
        check_same(&old, &on_stack);
        ck_assert(!kernel_masks_ours(signal));
        old = set_other(signal, NULL);
        check_same(&old, &plain);
    }
}
END_TEST

START_TEST(a_handler_on_an_ample_stack_may_be_interrupted)
{
    static char memory[1 << 17];
    signal_fixture_start();
    struct sigaction on_stack = action_of(some_handler, SA_ONSTACK);
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
    set_other(SIGUSR1, &on_stack);
    ck_assert(!kernel_masks_ours(SIGUSR1));
    stack.ss_size = 8192; /* SIGSTKSZ of old */
    ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
    set_other(SIGUSR1, &on_stack);
    ck_assert(kernel_masks_ours(SIGUSR1));
    have_no_alternate_stack();
}
END_TEST

START_TEST(wrong_signal_numbers_are_left_to_libc)
{
    signal_fixture_start();
    have_no_alternate_stack();
    struct sigaction on_stack = action_of(some_handler, SA_ONSTACK);
    int result = 0;
    ck_assert(!sampling_signal_action(0, &on_stack, NULL, &result));
    ck_assert(!sampling_signal_action(-1, &on_stack, NULL, &result));
    ck_assert(!sampling_signal_action(65, &on_stack, NULL, &result));
    /* libc's refusal is the app's, and nothing is remembered of it. */
    errno = 0;
    ck_assert(sampling_signal_action(SIGKILL, &on_stack, NULL, &result));
    ck_assert_int_eq(result, -1);
    ck_assert_int_eq(errno, EINVAL);
    ck_assert(!sampling_signal_action(SIGKILL, NULL, NULL, &result));
}
END_TEST

/* A child that was made without the handlers of fork (vfork, _Fork) remembers nothing of what it
 * sets: the memory may be its parent's. */
START_TEST(a_vfork_child_sets_its_own_dispositions)
{
    signal_fixture_start();
    have_no_alternate_stack();
    struct sigaction on_stack = action_of(some_handler, SA_ONSTACK);
    set_other(SIGUSR1, &on_stack);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction plain = action_of(SIG_IGN, 0);
        struct sigaction old = set_other(SIGUSR1, &plain);
        check_same(&old, &on_stack);
        /* Still taken for one of ours. */
        int result;
        ck_assert(sampling_signal_action(SIGUSR1, NULL, NULL, &result));
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    struct sigaction now = set_other(SIGUSR1, NULL);
    check_same(&now, &on_stack);
}
END_TEST

/* ThreadSanitizer puts its own sigaction between, which knows nothing of libc's signals. */
#ifdef __SANITIZE_THREAD__
enum { SIGNAL_IS_LIBCS = false };
#else
enum { SIGNAL_IS_LIBCS = true };
#endif

/* ---- handlers that are left by a jump ---- */

static const uint64_t sampling_bit = (uint64_t)1 << (SAMPLING_SIGNAL - 1);

static void set_blocked(bool blocked)
{
    syscall(SYS_rt_sigprocmask, blocked ? SIG_BLOCK : SIG_UNBLOCK, &sampling_bit, NULL, 8);
}

static bool is_blocked(void)
{
    uint64_t mask;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
    return mask & sampling_bit;
}

/* Pending are ticks, and but for the first run one of another sender's between them. */
START_TEST(unblocking_drops_ticks_and_keeps_others)
{
    put_in_kernel((void *)on_chained);
    signal_fixture_start();
    set_blocked(true);
    signal_tick(signal_own);
    if (_i > 0)
        send_foreign(_i - 1);
    signal_tick(signal_own);
    sampling_signal_unblock();
    signals_come();
    ck_assert(!is_blocked());
    ck_assert_uint_eq(signal_samples, 0);
    ck_assert_uint_eq(chained, _i > 0);
    if (_i > 0) {
        ck_assert_int_eq(chained_info.si_code, sender_codes[_i - 1]);
        if (sender_codes[_i - 1] == SI_TKILL)
            ck_assert_int_eq(chained_info.si_pid, getpid()); /* libc looks at it */
    }
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
}
END_TEST

static volatile bool stays_on_stack, leaves_stack;
static jmp_buf outside;

static void jump_within_or_out(int signal)
{
    (void)signal;
    jmp_buf inside;
    if (setjmp(inside) == 0) {
        stays_on_stack = !sampling_signal_would_stay_blocked(inside);
        leaves_stack = sampling_signal_would_stay_blocked(outside);
    }
}

START_TEST(only_a_jump_off_the_alternate_stack_unblocks)
{
    static char memory[65536];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    const struct sigaction action = {.sa_handler = jump_within_or_out, .sa_flags = SA_ONSTACK};
    signal_fixture_start();
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    if (setjmp(outside) != 0)
        ck_abort();
    ck_assert(!sampling_signal_would_stay_blocked(outside));
    set_blocked(true);
    ck_assert(sampling_signal_would_stay_blocked(outside));
    raise(SIGUSR1);
    ck_assert(stays_on_stack);
    ck_assert(leaves_stack);
    ck_assert(is_blocked());
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("sampling_signal");
    TCase *ours = tcase_create("ours");
    tcase_set_timeout(ours, 60);
    tcase_add_test(ours, it_is_unblocked_at_the_start);
    tcase_add_test(ours, nothing_is_renewed_before_a_start);
    tcase_add_loop_test(ours, the_default_action_ends_the_process_with_this_signal, 0, SENDERS);
    tcase_add_test(ours, after_a_stop_our_signals_do_nothing);
    if (SIGNAL_IS_LIBCS) {
        tcase_add_test(ours, no_signal_of_the_apps_is_touched);
        tcase_add_test(ours, a_thread_that_blocks_all_signals_gets_ours);
        tcase_add_loop_test(ours, a_refusal_is_an_error, 0, 2);
        tcase_add_test(ours, others_go_to_the_handler_before_ours);
        tcase_add_test(ours, a_handler_that_libc_puts_in_later_is_kept);
        tcase_add_test(ours, an_ignored_signal_is_ignored);
        tcase_add_test(ours, a_signal_is_ours_by_code_and_slot);
    }
    suite_add_tcase(suite, ours);
    TCase *stacks = tcase_create("alternate stacks");
    tcase_set_timeout(stacks, 60);
    if (SIGNAL_IS_LIBCS) {
        tcase_add_test(stacks, a_handler_on_an_alternate_stack_is_not_interrupted);
        tcase_add_test(stacks, a_handler_on_an_ample_stack_may_be_interrupted);
        tcase_add_test(stacks, wrong_signal_numbers_are_left_to_libc);
        tcase_add_test(stacks, a_vfork_child_sets_its_own_dispositions);
    }
    TCase *jumps = tcase_create("jumps");
    if (SIGNAL_IS_LIBCS) {
        tcase_add_loop_test(jumps, unblocking_drops_ticks_and_keeps_others, 0, SENDERS + 1);
        tcase_add_test(jumps, only_a_jump_off_the_alternate_stack_unblocks);
    }
    suite_add_tcase(suite, stacks);
    suite_add_tcase(suite, jumps);
    return suite;
}
