/* The one signal of the agent: which one it is, what the app sees of it, and ours told from others.
 * What becomes of the others: check_foreign_signals.c. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/demand.h"
#include "test/next_libc.h"
#include "test/signal_fixture.h"

static volatile uint32_t samples_since;

static void sample_since(struct thread_slot *slot, void *context)
{
    demand(slot == signal_own);
    demand(context != NULL);
    samples_since++;
}

/* ---- which signal ---- */

START_TEST(sigprof_is_taken)
{
    signal_fixture_start();
    ck_assert_int_eq(sampling_signal_number(), SIGPROF);
    struct sigaction kernel = signal_in_kernel(SIGPROF);
    ck_assert(kernel.sa_handler != SIG_DFL && kernel.sa_handler != SIG_IGN);
    ck_assert_int_eq(kernel.sa_flags & (SA_SIGINFO | SA_RESTART), SA_SIGINFO | SA_RESTART);
    for (size_t i = 1; i < SIGNAL_CANDIDATES; i++)
        ck_assert(signal_in_kernel(signal_candidates[i]).sa_handler == SIG_DFL);
    /* A second start (after a stop) keeps the number. */
    sampling_signal_stop();
    ck_assert_int_eq(sampling_signal_start(sample_since), 0);
    ck_assert_int_eq(sampling_signal_number(), SIGPROF);
    signal_tick(signal_own);
    ck_assert_uint_eq(samples_since, 1);
}
END_TEST

START_TEST(what_the_app_uses_is_left_alone)
{
    int used = _i % SIGNAL_CANDIDATES;
    void (*handler)(int) = _i < SIGNAL_CANDIDATES ? signal_plain : SIG_IGN;
    struct sigaction action = signal_action(handler, SA_RESETHAND);
    for (int i = 0; i <= used; i++)
        sigaction(signal_candidates[i], &action, NULL);
    int error = signal_fixture_try();
    for (int i = 0; i <= used; i++)
        ck_assert(signal_in_kernel(signal_candidates[i]).sa_handler == handler);
    if (used == SIGNAL_CANDIDATES - 1) {
        int result;
        ck_assert_int_eq(error, -EBUSY);
        ck_assert_int_eq(sampling_signal_number(), 0);
        ck_assert(!sampling_signal_action(SIGPROF, NULL, NULL, &result));
        return;
    }
    ck_assert_int_eq(error, 0);
    ck_assert_int_eq(sampling_signal_number(), signal_candidates[used + 1]);
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_samples, 1);
}
END_TEST

START_TEST(without_sigaction_there_is_no_signal)
{
    int result;
    ck_assert(!sampling_signal_action(SIGPROF, NULL, NULL, &result));
    next_from_libc();
    next.sigaction = NULL;
    ck_assert_int_eq(sampling_signal_start(sample_since), -ENOSYS);
    ck_assert_int_eq(sampling_signal_number(), 0);
}
END_TEST

/* ---- the app's view ---- */

START_TEST(sigaction_reports_what_was_set)
{
    signal_fixture_start();
    struct sigaction now = signal_get();
    ck_assert(now.sa_handler == SIG_DFL);
    ck_assert_int_eq(now.sa_flags & (SA_SIGINFO | SA_RESTART), 0);
    struct sigaction last = now;
    static const int flags[] = {0,
                                SA_RESTART,
                                SA_NODEFER,
                                SA_ONSTACK,
                                SA_SIGINFO,
                                SA_NOCLDSTOP,
                                SA_RESETHAND,
                                SA_SIGINFO | SA_RESTART,
                                SA_RESTART,
                                SA_RESTART | SA_NODEFER | SA_ONSTACK};
    for (int i = 0; i < 30; i++) {
        int with = flags[i % (int)ARRAY_SIZE(flags)];
        struct sigaction next_one = signal_action(i % 3 == 2 ? SIG_IGN : signal_plain, with);
        sigaddset(&next_one.sa_mask, 1 + i);
        struct sigaction old = signal_set(next_one);
        signal_check_same(&old, &last);
        now = signal_get();
        signal_check_same(&now, &next_one);
        last = next_one;
    }
    /* The same place for both, as POSIX allows. */
    struct sigaction both = signal_action(SIG_IGN, 0);
    int result;
    ck_assert(sampling_signal_action(SIGPROF, &both, &both, &result));
    signal_check_same(&both, &last);
    ck_assert(signal_get().sa_handler == SIG_IGN);
    ck_assert(sampling_signal_action(SIGPROF, NULL, NULL, &result));
    ck_assert_uint_eq(signal_handled, 0);
}
END_TEST

/* The truth about flags is what libc shows for another signal. (ThreadSanitizer puts its own
 * sigaction in front, which shows something else.) */
#ifdef __SANITIZE_THREAD__
enum { LIBC_HAS_ITS_SIGACTION = false };
#else
enum { LIBC_HAS_ITS_SIGACTION = true };
#endif

START_TEST(sigaction_shows_what_libc_would_show)
{
    signal_fixture_start();
    for (int i = 0; i < 32; i++) {
        int flags = (i & 1 ? SA_RESTART : 0) | (i & 2 ? SA_NODEFER : 0) | (i & 4 ? SA_ONSTACK : 0) |
                    (i & 8 ? SA_SIGINFO : 0) | (i & 16 ? (int)SA_RESETHAND : 0);
        struct sigaction action = signal_action(signal_plain, flags);
        sigaddset(&action.sa_mask, SIGUSR1);
        ck_assert_int_eq(sigaction(SIGUSR2, &action, NULL), 0);
        signal_set(action);
        struct sigaction truth = signal_in_kernel(SIGUSR2), shown = signal_get();
        signal_check_same(&shown, &truth);
        ck_assert_int_eq(shown.sa_flags, truth.sa_flags);
    }
}
END_TEST

START_TEST(other_signals_are_not_answered)
{
    signal_fixture_start();
    int result = 4711;
    for (int i = 1; i < NSIG; i++) {
        if (i != SIGPROF)
            ck_assert(!sampling_signal_action(i, NULL, NULL, &result));
    }
    ck_assert_int_eq(result, 4711);
}
END_TEST

START_TEST(the_kernel_has_what_the_app_could_notice)
{
    signal_fixture_start();
    struct sigaction ours = signal_in_kernel(SIGPROF);
    static const int flags[] = {0, SA_RESTART, SA_NODEFER, SA_ONSTACK, SA_ONSTACK | SA_RESTART};
    const int shared = SA_RESTART | SA_NODEFER | SA_ONSTACK;
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        struct sigaction action = signal_action(signal_plain, flags[i] | (int)SA_RESETHAND);
        sigaddset(&action.sa_mask, SIGUSR1 + (int)i);
        signal_set(action);
        struct sigaction kernel = signal_in_kernel(SIGPROF);
        ck_assert_ptr_eq((void *)kernel.sa_sigaction, (void *)ours.sa_sigaction);
        ck_assert_int_eq(kernel.sa_flags & shared, flags[i]);
        ck_assert_int_eq(kernel.sa_flags & (int)SA_RESETHAND, 0);
        for (int s = 1; s < NSIG; s++)
            ck_assert_int_eq(sigismember(&kernel.sa_mask, s), sigismember(&action.sa_mask, s));
    }
    /* Without a handler of the app's, a timer of ours must not end a read early. */
    signal_set(signal_action(_i ? SIG_IGN : SIG_DFL, 0));
    struct sigaction kernel = signal_in_kernel(SIGPROF);
    ck_assert_ptr_eq((void *)kernel.sa_sigaction, (void *)ours.sa_sigaction);
    ck_assert_int_eq(kernel.sa_flags & shared, SA_RESTART);
    ck_assert_int_eq(sigismember(&kernel.sa_mask, SIGUSR1), 0);
}
END_TEST

/* ---- other signals, on alternate stacks ---- */

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
    struct sigaction kernel = signal_in_kernel(signal);
    return sigismember(&kernel.sa_mask, sampling_signal_number()) == 1;
}

START_TEST(a_handler_on_an_alternate_stack_is_not_interrupted)
{
    signal_fixture_start();
    struct sigaction plain = signal_action(signal_plain, SA_RESTART);
    struct sigaction on_stack = signal_action(signal_plain, SA_ONSTACK);
    sigaddset(&on_stack.sa_mask, SIGUSR2);
    static const int signals[] = {SIGUSR1, SIGHUP, 64};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        int signal = signals[i];
        set_other(signal, &plain);
        ck_assert(!kernel_masks_ours(signal));
        struct sigaction old = set_other(signal, &on_stack);
        signal_check_same(&old, &plain);
        ck_assert(kernel_masks_ours(signal));
        /* The app does not see it, also when it only asks. */
        old = set_other(signal, NULL);
        signal_check_same(&old, &on_stack);
        ck_assert(kernel_masks_ours(signal));
        old = set_other(signal, &plain);
        signal_check_same(&old, &on_stack);
        ck_assert(!kernel_masks_ours(signal));
        old = set_other(signal, NULL);
        signal_check_same(&old, &plain);
    }
}
END_TEST

START_TEST(a_handler_on_an_ample_stack_may_be_interrupted)
{
    static char memory[1 << 17];
    signal_fixture_start();
    struct sigaction on_stack = signal_action(signal_plain, SA_ONSTACK);
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

START_TEST(a_mask_that_has_our_signal_already_is_shown_as_it_is)
{
    signal_fixture_start();
    struct sigaction on_stack = signal_action(signal_plain, SA_ONSTACK);
    struct sigaction masking = on_stack;
    sigaddset(&masking.sa_mask, SIGPROF);
    set_other(SIGUSR1, &on_stack);
    struct sigaction old = set_other(SIGUSR1, &masking);
    signal_check_same(&old, &on_stack);
    old = set_other(SIGUSR1, NULL);
    signal_check_same(&old, &masking);
    struct sigaction ignored = signal_action(SIG_IGN, SA_ONSTACK);
    set_other(SIGUSR1, &ignored);
    ck_assert(!LIBC_HAS_ITS_SIGACTION || !kernel_masks_ours(SIGUSR1));
}
END_TEST

START_TEST(wrong_signal_numbers_are_left_to_libc)
{
    signal_fixture_start();
    struct sigaction on_stack = signal_action(signal_plain, SA_ONSTACK);
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

START_TEST(it_is_known_whether_the_app_has_a_handler)
{
    ck_assert(!sampling_signal_is_handled());
    signal_fixture_start();
    ck_assert(!sampling_signal_is_handled());
    signal_set(signal_action(signal_plain, 0));
    ck_assert(sampling_signal_is_handled());
    signal_set(signal_action(SIG_IGN, 0));
    ck_assert(!sampling_signal_is_handled());
}
END_TEST

/* ---- ours ---- */

START_TEST(after_a_stop_our_signals_do_nothing)
{
    signal_fixture_start();
    signal_tick(signal_own);
    sampling_signal_stop();
    for (int i = 0; i < 10; i++)
        signal_tick(signal_own); /* with the default action in the app's view: nobody dies of it */
    ck_assert_uint_eq(signal_samples, 1);
    signal_set(signal_action(signal_plain, 0));
    signal_tick(signal_own);
    ck_assert_uint_eq(signal_handled, 0);
    signal_send(0);
    ck_assert_uint_eq(signal_handled, 1);
}
END_TEST

START_TEST(a_signal_is_ours_by_code_and_slot)
{
    signal_fixture_start();
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_value.sival_ptr = signal_own;
    static const int foreign[] = {SI_USER, SI_TKILL, SI_QUEUE, SI_KERNEL, SI_MESGQ, SI_ASYNCIO};
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
        info.si_code = foreign[i];
        ck_assert(!sampling_signal_is_ours(&info));
    }
    info.si_code = SI_TIMER;
    ck_assert(sampling_signal_is_ours(&info));
    /* A timer that is gone may have left one: the slot need not be in use. */
    info.si_value.sival_ptr = signal_own + 5;
    ck_assert(sampling_signal_is_ours(&info));
    info.si_value.sival_ptr = NULL;
    ck_assert(!sampling_signal_is_ours(&info));
    info.si_value.sival_ptr = (char *)signal_own + 1;
    ck_assert(!sampling_signal_is_ours(&info));
    info.si_value.sival_int = 7;
    ck_assert(!sampling_signal_is_ours(&info));
}
END_TEST

/* A child that was made without the handlers of fork (vfork, _Fork): its dispositions are its
 * own, the view stays the parent's. */
START_TEST(a_vfork_child_sets_its_own_dispositions)
{
    signal_fixture_start();
    struct sigaction action = signal_action(signal_plain, SA_RESTART);
    signal_set(action);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction old = signal_set(signal_action(SIG_DFL, 0));
        signal_check_same(&old, &action);
        ck_assert(signal_in_kernel(SIGPROF).sa_handler == SIG_DFL);
        old = signal_set(signal_action(SIG_IGN, 0));
        ck_assert(old.sa_handler == SIG_DFL);
        ck_assert(signal_get().sa_handler == SIG_IGN);
        raise(SIGPROF);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    struct sigaction now = signal_get();
    signal_check_same(&now, &action);
}
END_TEST

static void change_and_die(int unused)
{
    (void)unused;
    sampling_signal_reset_in_child();
    signal_set(signal_action(signal_plain, 0));
    signal_send(0);
    ck_assert_uint_eq(signal_handled, 1);
    signal_set(signal_action(SIG_DFL, 0));
    signal_send(0);
}

START_TEST(a_fork_child_goes_on_like_its_parent)
{
    signal_fixture_start();
    signal_check_killed(signal_in_child(change_and_die, 0));
}
END_TEST

/* ---- many threads ---- */

enum { CHANGERS = 3, CHANGES = 2000 };
static uint32_t changers_left = CHANGERS;

static void *change(void *argument)
{
    for (int i = 0; i < CHANGES; i++) {
        struct sigaction old = signal_set(signal_action(i % 2 ? SIG_IGN : signal_plain, i % 2));
        /* Never a mixture of two. */
        demand(old.sa_handler == SIG_IGN || old.sa_handler == signal_plain);
        demand((old.sa_flags & ~SIGNAL_FLAG_OF_LIBC) == (old.sa_handler == SIG_IGN));
    }
    add_relaxed(&changers_left, -1);
    return argument;
}

START_TEST(changes_in_many_threads_do_not_mix)
{
    signal_fixture_start();
    signal_set(signal_action(SIG_IGN, 1));
    pthread_t threads[CHANGERS];
    for (int i = 0; i < CHANGERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, change, NULL), 0);
    while (load_relaxed(&changers_left))
        signal_tick(signal_own);
    for (int i = 0; i < CHANGERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_gt(signal_samples, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("sampling_signal");
    TCase *choice = tcase_create("choice");
    tcase_set_timeout(choice, 60);
    tcase_add_test(choice, sigprof_is_taken);
    tcase_add_loop_test(choice, what_the_app_uses_is_left_alone, 0, 2 * SIGNAL_CANDIDATES);
    tcase_add_test(choice, without_sigaction_there_is_no_signal);
    suite_add_tcase(suite, choice);
    TCase *view = tcase_create("view");
    tcase_set_timeout(view, 60);
    tcase_add_test(view, sigaction_reports_what_was_set);
    if (LIBC_HAS_ITS_SIGACTION)
        tcase_add_test(view, sigaction_shows_what_libc_would_show);
    tcase_add_test(view, other_signals_are_not_answered);
    tcase_add_loop_test(view, the_kernel_has_what_the_app_could_notice, 0, 2);
    suite_add_tcase(suite, view);
    TCase *stacks = tcase_create("alternate stacks");
    tcase_set_timeout(stacks, 60);
    tcase_add_checked_fixture(stacks, have_no_alternate_stack, NULL);
    tcase_add_test(stacks, a_handler_on_an_alternate_stack_is_not_interrupted);
    tcase_add_test(stacks, a_handler_on_an_ample_stack_may_be_interrupted);
    tcase_add_test(stacks, a_mask_that_has_our_signal_already_is_shown_as_it_is);
    tcase_add_test(stacks, wrong_signal_numbers_are_left_to_libc);
    tcase_add_test(stacks, it_is_known_whether_the_app_has_a_handler);
    suite_add_tcase(suite, stacks);
    TCase *ours = tcase_create("ours");
    tcase_set_timeout(ours, 60);
    tcase_add_test(ours, after_a_stop_our_signals_do_nothing);
    tcase_add_test(ours, a_signal_is_ours_by_code_and_slot);
    tcase_add_test(ours, a_vfork_child_sets_its_own_dispositions);
    tcase_add_test(ours, a_fork_child_goes_on_like_its_parent);
    tcase_add_test(ours, changes_in_many_threads_do_not_mix);
    suite_add_tcase(suite, ours);
    return suite;
}
