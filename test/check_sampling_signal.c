/* The one signal of the agent: which one it is, what the app sees of it, what becomes of signals
 * that are not ours. The suite stands for the shim: where an app would call sigaction it calls
 * sampling_signal_action. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "agent/sched/sampling_signal.h"
#include "test/next_libc.h"
#include "test/record_fixture.h"

static const int candidates[] = {SIGPROF, SIGVTALRM, SIGSTKFLT, SIGPWR};
enum { CANDIDATES = ARRAY_SIZE(candidates) };

static struct thread_slot *own;
static uint32_t samples;

static void on_sample(struct thread_slot *slot, void *context)
{
    ck_assert_ptr_eq(slot, own);
    ck_assert_ptr_nonnull(context);
    samples++;
}

static void start(void)
{
    fixture_threads();
    own = thread_attach(0, 0);
    ck_assert_int_eq(sampling_signal_start(on_sample), 0);
}

/* ---- signals of each kind ---- */

/* ThreadSanitizer keeps a signal until a function that it knows is called. */
static void let_signals_come(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
}

/* What a timer of ours sends. */
static void tick(void)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = sampling_signal_number();
    info.si_code = SI_TIMER;
    info.si_value.sival_ptr = own;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), sys_tid(), info.si_signo, &info);
    let_signals_come();
}

/* What others send: raise, kill, sigqueue (with the address of a slot, by a wild chance), and a
 * timer of the app. */
enum { SENDERS = 4 };

static void send_by(int sender)
{
    int signal = sampling_signal_number();
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, signal);
    switch (sender) {
    case 0:
        raise(signal);
        break;
    case 1:
        kill(getpid(), signal);
        break;
    case 2:
        sigqueue(getpid(), signal, (union sigval){.sival_ptr = own});
        break;
    case 3: {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
        struct itimerspec at_once = {.it_value = {.tv_nsec = 1}};
        timer_t timer;
        pthread_sigmask(SIG_BLOCK, &set, &before);
        ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
        ck_assert_int_eq(timer_settime(timer, 0, &at_once, NULL), 0);
        for (sigset_t pending = {0}; !sigismember(&pending, signal);)
            sigpending(&pending);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        timer_delete(timer);
        break;
    }
    }
    let_signals_come();
}

/* ---- the app's handlers ---- */

static uint32_t handled, depth, deepest;
static siginfo_t seen;
static bool raises_again, blocked_inside[NSIG];

static void note_mask(void)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int i = 1; i < NSIG; i++)
        blocked_inside[i] = sigismember(&mask, i) == 1;
}

static void plain_handler(int signal)
{
    ck_assert_int_eq(signal, sampling_signal_number());
    depth++;
    deepest = MAX_OF(deepest, depth);
    if (++handled == 1 && raises_again)
        raise(signal);
    note_mask();
    depth--;
}

static void info_handler(int signal, siginfo_t *info, void *context)
{
    seen = *info;
    ck_assert_ptr_nonnull(context);
    ck_assert_ptr_nonnull(((ucontext_t *)context)->uc_stack.ss_sp);
    plain_handler(signal);
}

static struct sigaction app_action(void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    return action;
}

/* The app's sigaction. */
static struct sigaction set(struct sigaction action)
{
    struct sigaction old;
    int result = -1;
    ck_assert(sampling_signal_action(sampling_signal_number(), &action, &old, &result));
    ck_assert_int_eq(result, 0);
    return old;
}

static struct sigaction get(void)
{
    struct sigaction now;
    int result = -1;
    ck_assert(sampling_signal_action(sampling_signal_number(), NULL, &now, &result));
    ck_assert_int_eq(result, 0);
    return now;
}

static void check_same(const struct sigaction *a, const struct sigaction *b)
{
    ck_assert_ptr_eq((void *)a->sa_handler, (void *)b->sa_handler);
    ck_assert_int_eq(a->sa_flags, b->sa_flags);
    for (int i = 1; i < NSIG; i++)
        ck_assert_int_eq(sigismember(&a->sa_mask, i), sigismember(&b->sa_mask, i));
}

/* What the kernel has. */
static struct sigaction in_kernel(int signal)
{
    struct sigaction action;
    ck_assert_int_eq(sigaction(signal, NULL, &action), 0);
    return action;
}

/* ---- which signal ---- */

START_TEST(sigprof_is_taken)
{
    start();
    ck_assert_int_eq(sampling_signal_number(), SIGPROF);
    struct sigaction kernel = in_kernel(SIGPROF);
    ck_assert(kernel.sa_handler != SIG_DFL && kernel.sa_handler != SIG_IGN);
    ck_assert_int_eq(kernel.sa_flags & (SA_SIGINFO | SA_RESTART), SA_SIGINFO | SA_RESTART);
    for (size_t i = 1; i < CANDIDATES; i++)
        ck_assert(in_kernel(candidates[i]).sa_handler == SIG_DFL);
    /* A second start (after a stop) keeps the number. */
    sampling_signal_stop();
    ck_assert_int_eq(sampling_signal_start(on_sample), 0);
    ck_assert_int_eq(sampling_signal_number(), SIGPROF);
    tick();
    ck_assert_uint_eq(samples, 1);
}
END_TEST

START_TEST(what_the_app_uses_is_left_alone)
{
    int used = _i % CANDIDATES;
    void (*handler)(int) = _i < CANDIDATES ? plain_handler : SIG_IGN;
    struct sigaction action = app_action(handler, SA_RESETHAND);
    for (int i = 0; i <= used; i++)
        sigaction(candidates[i], &action, NULL);
    fixture_threads();
    own = thread_attach(0, 0);
    int error = sampling_signal_start(on_sample);
    for (int i = 0; i <= used; i++)
        ck_assert(in_kernel(candidates[i]).sa_handler == handler);
    if (used == CANDIDATES - 1) {
        int result;
        ck_assert_int_eq(error, -EBUSY);
        ck_assert_int_eq(sampling_signal_number(), 0);
        ck_assert(!sampling_signal_action(SIGPROF, NULL, NULL, &result));
        return;
    }
    ck_assert_int_eq(error, 0);
    ck_assert_int_eq(sampling_signal_number(), candidates[used + 1]);
    tick();
    ck_assert_uint_eq(samples, 1);
}
END_TEST

START_TEST(without_sigaction_there_is_no_signal)
{
    int result;
    ck_assert(!sampling_signal_action(SIGPROF, NULL, NULL, &result));
    next_from_libc();
    next.sigaction = NULL;
    ck_assert_int_eq(sampling_signal_start(on_sample), -ENOSYS);
    ck_assert_int_eq(sampling_signal_number(), 0);
}
END_TEST

/* ---- the app's view ---- */

START_TEST(sigaction_reports_what_was_set)
{
    start();
    struct sigaction now = get();
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
        struct sigaction next_one = app_action(i % 3 == 2 ? SIG_IGN : plain_handler, with);
        if (with & SA_SIGINFO)
            next_one.sa_sigaction = info_handler;
        sigaddset(&next_one.sa_mask, 1 + i);
        struct sigaction old = set(next_one);
        check_same(&old, &last);
        now = get();
        check_same(&now, &next_one);
        last = next_one;
    }
    /* The same place for both, as POSIX allows. */
    struct sigaction both = app_action(SIG_IGN, 0);
    int result;
    ck_assert(sampling_signal_action(SIGPROF, &both, &both, &result));
    check_same(&both, &last);
    ck_assert(get().sa_handler == SIG_IGN);
    ck_assert(sampling_signal_action(SIGPROF, NULL, NULL, &result));
    ck_assert_uint_eq(handled, 0);
}
END_TEST

START_TEST(other_signals_are_not_answered)
{
    start();
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
    start();
    struct sigaction ours = in_kernel(SIGPROF);
    static const int flags[] = {0, SA_RESTART, SA_NODEFER, SA_ONSTACK, SA_ONSTACK | SA_RESTART};
    const int shared = SA_RESTART | SA_NODEFER | SA_ONSTACK;
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        struct sigaction action = app_action(plain_handler, flags[i] | (int)SA_RESETHAND);
        sigaddset(&action.sa_mask, SIGUSR1 + (int)i);
        set(action);
        struct sigaction kernel = in_kernel(SIGPROF);
        ck_assert_ptr_eq((void *)kernel.sa_sigaction, (void *)ours.sa_sigaction);
        ck_assert_int_eq(kernel.sa_flags & shared, flags[i]);
        ck_assert_int_eq(kernel.sa_flags & (int)SA_RESETHAND, 0);
        for (int s = 1; s < NSIG; s++)
            ck_assert_int_eq(sigismember(&kernel.sa_mask, s), sigismember(&action.sa_mask, s));
    }
    /* Without a handler of the app's, a timer of ours must not end a read early. */
    set(app_action(_i ? SIG_IGN : SIG_DFL, 0));
    struct sigaction kernel = in_kernel(SIGPROF);
    ck_assert_ptr_eq((void *)kernel.sa_sigaction, (void *)ours.sa_sigaction);
    ck_assert_int_eq(kernel.sa_flags & shared, SA_RESTART);
    ck_assert_int_eq(sigismember(&kernel.sa_mask, SIGUSR1), 0);
}
END_TEST

/* ---- foreign signals ---- */

START_TEST(a_plain_handler_gets_foreign_signals)
{
    start();
    set(app_action(plain_handler, SA_RESTART));
    for (int sender = 0; sender < SENDERS; sender++) {
        tick();
        send_by(sender);
        ck_assert_uint_eq(handled, (uint32_t)sender + 1);
        ck_assert_uint_eq(samples, (uint32_t)sender + 1);
    }
}
END_TEST

START_TEST(a_handler_with_information_gets_it)
{
    start();
    struct sigaction action = app_action(NULL, SA_SIGINFO | SA_RESTART);
    action.sa_sigaction = info_handler;
    set(action);
    static const int codes[SENDERS] = {SI_TKILL, SI_USER, SI_QUEUE, SI_TIMER};
    for (int sender = 0; sender < SENDERS; sender++) {
        tick();
        send_by(sender);
        ck_assert_uint_eq(handled, (uint32_t)sender + 1);
        ck_assert_int_eq(seen.si_code, codes[sender]);
        ck_assert_int_eq(seen.si_signo, SIGPROF);
        if (codes[sender] == SI_QUEUE)
            ck_assert_ptr_eq(seen.si_value.sival_ptr, own);
        else if (codes[sender] != SI_TIMER)
            ck_assert_int_eq(seen.si_pid, getpid());
    }
    ck_assert_uint_eq(samples, SENDERS);
}
END_TEST

START_TEST(an_interval_timer_of_the_app_counts)
{
    start();
    set(app_action(plain_handler, SA_RESTART));
    struct itimerval each_ms = {{0, 1000}, {0, 1000}};
    ck_assert_int_eq(setitimer(ITIMER_PROF, &each_ms, NULL), 0);
    while (handled < 3)
        let_signals_come();
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &none, NULL);
    ck_assert_uint_eq(samples, 0);
}
END_TEST

START_TEST(an_ignored_signal_is_ignored)
{
    start();
    set(app_action(SIG_IGN, 0));
    for (int sender = 0; sender < SENDERS; sender++)
        send_by(sender);
    tick();
    ck_assert_uint_eq(samples, 1);
}
END_TEST

/* Runs `body` in a fork child; returns its wait status. */
static int in_child(void (*body)(int), int argument)
{
    pid_t child = fork();
    if (child == 0) {
        thread_reset_in_child();
        body(argument);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static void check_killed(int status)
{
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF, "status %x", status);
}

START_TEST(the_default_action_ends_the_process_with_this_signal)
{
    start();
    check_killed(in_child(send_by, _i));
    /* Also after other dispositions, and while the agent is stopped. */
    set(app_action(plain_handler, SA_NODEFER));
    set(app_action(SIG_DFL, 0));
    check_killed(in_child(send_by, _i));
    sampling_signal_stop();
    check_killed(in_child(send_by, _i));
}
END_TEST

static void send_three(int unused)
{
    (void)unused;
    send_by(0);
    ck_assert_uint_eq(handled, 1);
    ck_assert(get().sa_handler == SIG_DFL);
    tick();
    ck_assert_uint_eq(samples, 1);
    if (write(STDOUT_FILENO, "", 0) != 0)
        _exit(1);
    send_by(0);
    _exit(2);
}

START_TEST(a_handler_that_is_reset_is_called_once)
{
    start();
    struct sigaction action = app_action(plain_handler, (int)SA_RESETHAND | (_i ? SA_SIGINFO : 0));
    if (_i)
        action.sa_sigaction = info_handler;
    set(action);
    check_killed(in_child(send_three, 0));
}
END_TEST

START_TEST(a_handler_nests_only_where_it_wants_to)
{
    start();
    raises_again = true;
    set(app_action(plain_handler, _i ? SA_NODEFER : 0));
    send_by(0);
    let_signals_come();
    ck_assert_uint_eq(handled, 2);
    ck_assert_uint_eq(deepest, _i ? 2 : 1);
}
END_TEST

START_TEST(a_handlers_mask_is_in_force_in_it)
{
    start();
    struct sigaction action = app_action(plain_handler, 0);
    sigaddset(&action.sa_mask, SIGUSR1);
    set(action);
    send_by(0);
    ck_assert(blocked_inside[SIGUSR1]);
    ck_assert(blocked_inside[SIGPROF]);
    ck_assert(!blocked_inside[SIGUSR2]);
    note_mask();
    ck_assert(!blocked_inside[SIGUSR1] && !blocked_inside[SIGPROF]);
}
END_TEST

/* ---- ours ---- */

START_TEST(after_a_stop_our_signals_do_nothing)
{
    start();
    tick();
    sampling_signal_stop();
    for (int i = 0; i < 10; i++)
        tick(); /* with the default action in the app's view: nobody dies of it */
    ck_assert_uint_eq(samples, 1);
    set(app_action(plain_handler, 0));
    tick();
    ck_assert_uint_eq(handled, 0);
    send_by(0);
    ck_assert_uint_eq(handled, 1);
}
END_TEST

START_TEST(a_signal_is_ours_by_code_and_slot)
{
    start();
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_value.sival_ptr = own;
    static const int foreign[] = {SI_USER, SI_TKILL, SI_QUEUE, SI_KERNEL, SI_MESGQ, SI_ASYNCIO};
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
        info.si_code = foreign[i];
        ck_assert(!sampling_signal_is_ours(&info));
    }
    info.si_code = SI_TIMER;
    ck_assert(sampling_signal_is_ours(&info));
    /* A timer that is gone may have left one: the slot need not be in use. */
    info.si_value.sival_ptr = own + 5;
    ck_assert(sampling_signal_is_ours(&info));
    info.si_value.sival_ptr = NULL;
    ck_assert(!sampling_signal_is_ours(&info));
    info.si_value.sival_ptr = (char *)own + 1;
    ck_assert(!sampling_signal_is_ours(&info));
    info.si_value.sival_int = 7;
    ck_assert(!sampling_signal_is_ours(&info));
}
END_TEST

/* A child that was made without the handlers of fork (vfork, _Fork): its dispositions are its
 * own, the view stays the parent's. */
START_TEST(a_vfork_child_sets_its_own_dispositions)
{
    start();
    struct sigaction action = app_action(plain_handler, SA_RESTART);
    set(action);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction old = set(app_action(SIG_DFL, 0));
        check_same(&old, &action);
        ck_assert(in_kernel(SIGPROF).sa_handler == SIG_DFL);
        old = set(app_action(SIG_IGN, 0));
        ck_assert(old.sa_handler == SIG_DFL);
        ck_assert(get().sa_handler == SIG_IGN);
        /* What it does not change is as in the parent. */
        raise(SIGPROF);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    struct sigaction now = get();
    check_same(&now, &action);
}
END_TEST

static void change_and_die(int unused)
{
    (void)unused;
    sampling_signal_reset_in_child();
    set(app_action(plain_handler, 0));
    send_by(0);
    ck_assert_uint_eq(handled, 1);
    set(app_action(SIG_DFL, 0));
    send_by(0);
}

START_TEST(a_fork_child_goes_on_like_its_parent)
{
    start();
    check_killed(in_child(change_and_die, 0));
}
END_TEST

/* ---- many threads ---- */

enum { CHANGERS = 3, CHANGES = 2000 };
static uint32_t changers_left = CHANGERS;

static void *change(void *argument)
{
    for (int i = 0; i < CHANGES; i++) {
        struct sigaction old = set(app_action(i % 2 ? SIG_IGN : plain_handler, i % 2));
        /* Never a mixture of two. */
        ck_assert(old.sa_handler == SIG_IGN || old.sa_handler == plain_handler);
        ck_assert_int_eq(old.sa_flags, old.sa_handler == SIG_IGN);
    }
    add_relaxed(&changers_left, -1);
    return argument;
}

START_TEST(changes_in_many_threads_do_not_mix)
{
    start();
    set(app_action(SIG_IGN, 1));
    pthread_t threads[CHANGERS];
    for (int i = 0; i < CHANGERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, change, NULL), 0);
    while (load_relaxed(&changers_left)) {
        raise(SIGPROF);
        tick();
    }
    for (int i = 0; i < CHANGERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_gt(samples, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("sampling_signal");
    TCase *choice = tcase_create("choice");
    tcase_add_test(choice, sigprof_is_taken);
    tcase_add_loop_test(choice, what_the_app_uses_is_left_alone, 0, 2 * CANDIDATES);
    tcase_add_test(choice, without_sigaction_there_is_no_signal);
    suite_add_tcase(suite, choice);
    TCase *view = tcase_create("view");
    tcase_add_test(view, sigaction_reports_what_was_set);
    tcase_add_test(view, other_signals_are_not_answered);
    tcase_add_loop_test(view, the_kernel_has_what_the_app_could_notice, 0, 2);
    suite_add_tcase(suite, view);
    TCase *foreign = tcase_create("foreign");
    tcase_add_test(foreign, a_plain_handler_gets_foreign_signals);
    tcase_add_test(foreign, a_handler_with_information_gets_it);
    tcase_add_test(foreign, an_interval_timer_of_the_app_counts);
    tcase_add_test(foreign, an_ignored_signal_is_ignored);
    tcase_add_loop_test(foreign, the_default_action_ends_the_process_with_this_signal, 0, SENDERS);
    tcase_add_loop_test(foreign, a_handler_that_is_reset_is_called_once, 0, 2);
    tcase_add_loop_test(foreign, a_handler_nests_only_where_it_wants_to, 0, 2);
    tcase_add_test(foreign, a_handlers_mask_is_in_force_in_it);
    suite_add_tcase(suite, foreign);
    TCase *ours = tcase_create("ours");
    tcase_add_test(ours, after_a_stop_our_signals_do_nothing);
    tcase_add_test(ours, a_signal_is_ours_by_code_and_slot);
    tcase_add_test(ours, a_vfork_child_sets_its_own_dispositions);
    tcase_add_test(ours, a_fork_child_goes_on_like_its_parent);
    tcase_add_test(ours, changes_in_many_threads_do_not_mix);
    suite_add_tcase(suite, ours);
    return suite;
}
