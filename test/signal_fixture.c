#include "test/signal_fixture.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/check.h"
#include "test/demand.h"
#include "test/record_fixture.h"

const int signal_candidates[SIGNAL_CANDIDATES] = {SIGPROF, SIGVTALRM, SIGSTKFLT, SIGPWR};
struct thread_slot *signal_own;
volatile uint32_t signal_samples;
volatile uint32_t signal_handled, signal_deepest;
volatile bool signal_raises_again;
siginfo_t signal_seen;
sigset_t signal_mask_inside;
static volatile uint32_t depth;

static void on_sample(struct thread_slot *slot, void *context)
{
    demand(slot == signal_own);
    demand(context != NULL);
    signal_samples++;
}

int signal_fixture_try(void)
{
    fixture_threads();
    signal_own = thread_attach(0, 0);
    return sampling_signal_start(on_sample);
}

void signal_fixture_start(void)
{
    ck_assert_int_eq(signal_fixture_try(), 0);
}

void signals_come(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
}

void signal_tick(struct thread_slot *slot)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = sampling_signal_number();
    info.si_code = SI_TIMER;
    info.si_value.sival_ptr = slot;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), sys_tid(), info.si_signo, &info);
    signals_come();
}

static void send_by_timer(int signal)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct itimerspec at_once = {.it_value = {.tv_nsec = 1}};
    timer_t timer;
    sigset_t set, before, pending;
    sigemptyset(&set);
    sigemptyset(&pending);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    ck_assert_int_eq(timer_settime(timer, 0, &at_once, NULL), 0);
    while (!sigismember(&pending, signal))
        sigpending(&pending);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    timer_delete(timer);
}

void signal_send(int sender)
{
    int signal = sampling_signal_number();
    if (sender == 0)
        raise(signal);
    else if (sender == 1)
        kill(getpid(), signal);
    else if (sender == 2)
        sigqueue(getpid(), signal, (union sigval){.sival_ptr = signal_own});
    else
        send_by_timer(signal);
    signals_come();
}

void signal_plain(int signal)
{
    demand(signal == sampling_signal_number());
    depth++;
    if (depth > signal_deepest)
        signal_deepest = depth;
    if (++signal_handled == 1 && signal_raises_again)
        raise(signal);
    pthread_sigmask(SIG_BLOCK, NULL, &signal_mask_inside);
    depth--;
}

void signal_info(int signal, siginfo_t *info, void *context)
{
    demand(context != NULL);
    signal_seen = *info;
    signal_plain(signal);
}

struct sigaction signal_action(void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    if (handler == signal_plain && (flags & SA_SIGINFO))
        action.sa_sigaction = signal_info;
    else
        action.sa_handler = handler;
    action.sa_flags = flags;
    return action;
}

static struct sigaction call(const struct sigaction *action)
{
    struct sigaction old;
    int result = -1;
    demand(sampling_signal_action(sampling_signal_number(), action, &old, &result));
    demand(result == 0);
    return old;
}

struct sigaction signal_set(struct sigaction action)
{
    return call(&action);
}

struct sigaction signal_get(void)
{
    return call(NULL);
}

struct sigaction signal_in_kernel(int signal)
{
    struct sigaction action;
    ck_assert_int_eq(sigaction(signal, NULL, &action), 0);
    return action;
}

void signal_check_same(const struct sigaction *a, const struct sigaction *b)
{
    ck_assert(a->sa_handler == b->sa_handler);
    ck_assert_int_eq(a->sa_flags & ~SIGNAL_FLAG_OF_LIBC, b->sa_flags & ~SIGNAL_FLAG_OF_LIBC);
    for (int i = 1; i < NSIG; i++)
        ck_assert_int_eq(sigismember(&a->sa_mask, i), sigismember(&b->sa_mask, i));
}

int signal_in_child(void (*body)(int), int argument)
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

void signal_check_killed(int status)
{
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == sampling_signal_number(), "status %x",
                  status);
}
