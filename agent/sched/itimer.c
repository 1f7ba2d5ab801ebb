#include "agent/sched/itimer.h"

#include <errno.h>
#include <string.h>
#include <sys/time.h>

#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/nap.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/signal_sets.h"
#include "agent/base/sys.h"
#include "agent/sched/thread_timer.h"
#include "agent/sched/tick.h"

enum itimer_state { ITIMER_OFF, ITIMER_ARMED, ITIMER_CHANGES };

static const struct itimer_kind *kind; /* while `state` is not ITIMER_OFF */
static uint64_t period_ns;
static struct sigaction previous;
static struct timeval interval; /* as the kernel tells that of ours */
static uint32_t state;          /* an enum itimer_state */
static uint32_t signals, signals_seen;
static bool is_armed;    /* changed within a change; else an exec is under way */
static uint32_t calls;   /* of the app's that are under way: step 2 */
static uint32_t execs;   /* the same */
static bool was_awaited; /* the app takes the signal by sigwait or its kin, or did */

/* So much later at most it is seen that the program has set the timer past the hooks. */
static const uint64_t look_every_ns = NS_PER_SEC;
/* So long the start waits for calls under way, which take microseconds. */
static const uint64_t calls_end_ns = 20 * NS_PER_MS;

/* What a start takes, before any has been as well. */
static const struct itimer_kind *kind_chosen(void)
{
    if (likely(options.scheduler != SCHEDULER_SIGPROF && options.scheduler != SCHEDULER_SIGALRM))
        return NULL;
    return options.scheduler == SCHEDULER_SIGPROF ? &itimer_prof : &itimer_real;
}

static uint64_t signal_bit(void)
{
    return SIGNAL_BIT(kind->signal);
}

static void block_all(uint64_t *mask)
{
    static const uint64_t all = ~(uint64_t)0;
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all, mask, sizeof(all));
}

static void unblock(const uint64_t *mask)
{
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, mask, NULL, sizeof(*mask));
}

static void on_signal(int number, siginfo_t *info, void *context);

/* Sent by somebody. The default action, or, where another thread has given the signal back since
 * this one was sent, what the app has for it now. */
static void pass_on(int number, siginfo_t *info)
{
    struct sigaction now;
    if (load_acquire(&state) != ITIMER_OFF || next.sigaction(number, NULL, &now) != 0 ||
        now.sa_sigaction == on_signal)
        sys_default_action(number);
    else
        sys_call4(SYS_rt_tgsigqueueinfo, sys_pid(), sys_tid(), number, info);
}

/* Any thread, also one that is not libc's: no thread-local data. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (likely(info->si_code == SI_KERNEL)) {
        __atomic_fetch_add(&signals, 1, __ATOMIC_RELEASE);
        tick_ring();
        return;
    }
    pass_on(number, info);
}

/* An odd number of microseconds, as no program asks for: so one of the program's is known. */
static long set_itimer(uint64_t ns)
{
    struct timeval time = {(time_t)(ns / NS_PER_SEC), (suseconds_t)(ns % NS_PER_SEC / 1000)};
    time.tv_usec |= ns != 0;
    struct itimerval value = {time, time};
    return sys_call3(SYS_setitimer, kind->which, &value, NULL);
}

static long arm(void)
{
    struct itimerval value = {0};
    long error = set_itimer(period_ns);
    if (!error)
        error = sys_call2(SYS_getitimer, kind->which, &value);
    interval = value.it_interval;
    is_armed = !error;
    return error;
}

/* Within a change: not while an exec is under way. */
static long arm_unless_exec(void)
{
    is_armed = false;
    return __atomic_load_n(&execs, __ATOMIC_SEQ_CST) == 0 ? arm() : 0;
}

static bool has_own_interval(const struct itimerval *value)
{
    return is_armed && value->it_interval.tv_sec == interval.tv_sec &&
           value->it_interval.tv_usec == interval.tv_usec;
}

static const char *what_the_app_has(void)
{
    struct sigaction action;
    struct itimerval value = {0};
    if (next.sigaction(kind->signal, NULL, &action) != 0 || action.sa_handler != SIG_DFL)
        return "an action of its own for";
    if (sys_call2(SYS_getitimer, kind->which, &value) != 0 || value.it_value.tv_sec ||
        value.it_value.tv_usec)
        return "a timer of its own with";
    if (__atomic_load_n(&was_awaited, __ATOMIC_SEQ_CST))
        return "waited for";
    /* A start from outside comes by a thread of ours, which blocks all. */
    if (!thread_tls.internal && (lock_signal_mask() & signal_bit()))
        return "blocked";
    return NULL;
}

/* The agent is to be controlled by that signal, for all of the process's life. */
static const char *option_that_has_it(void)
{
    const uint32_t signal = (uint32_t)kind->signal;
    if (options.toggle_signal == signal)
        return "LIBAGENT_TOGGLE_SIGNAL";
    return options.flush_signal == signal ? "LIBAGENT_FLUSH_SIGNAL" : NULL;
}

static int install(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    memset(&action.sa_mask, 0xff, sizeof(action.sa_mask));
    return next.sigaction(kind->signal, &action, &previous) == 0 ? 0 : -EINVAL;
}

/* Pending ones that an interval timer sent are ours; the app had none. */
static void take_pending(void)
{
    static const struct timespec none = {0, 0};
    const uint64_t bit = signal_bit();
    siginfo_t info, kept;
    bool has_kept = false;
    while (sys_call4(SYS_rt_sigtimedwait, &bit, &info, &none, sizeof(bit)) == kind->signal) {
        if (info.si_code != SI_KERNEL) {
            kept = info;
            has_kept = true;
        }
    }
    if (has_kept)
        sys_call3(SYS_rt_sigqueueinfo, sys_pid(), kind->signal, &kept);
}

static void put_back_action(void)
{
    struct sigaction now;
    if (next.sigaction(kind->signal, NULL, &now) == 0 && now.sa_sigaction == on_signal)
        next.sigaction(kind->signal, &previous, NULL);
}

static bool calls_have_ended(void)
{
    uint64_t deadline_ns = clock_monotonic_ns() + calls_end_ns;
    while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) != 0)
        if (!nap_before(deadline_ns))
            return false;
    return true;
}

/* `state` keeps calls of the app's away. */
static int take_alone(const char **found)
{
    *found = calls_have_ended() ? what_the_app_has() : "a call under way that concerns";
    if (*found)
        return -EBUSY;
    long error = install();
    if (error)
        return (int)error;
    error = arm_unless_exec();
    if (error)
        put_back_action();
    return (int)error;
}

/* Signals wait, as in every change. */
static int take(const char **found)
{
    uint64_t mask;
    block_all(&mask);
    __atomic_store_n(&state, ITIMER_CHANGES, __ATOMIC_SEQ_CST);
    int error = take_alone(found);
    __atomic_store_n(&state, error ? ITIMER_OFF : ITIMER_ARMED, __ATOMIC_SEQ_CST);
    unblock(&mask);
    return error;
}

static void say_it_is_not_used(const char *found)
{
    log_warn_once("LIBAGENT_SCHEDULER=%s is not used, event is: the program has %s %s",
                  kind->scheduler, found, kind->signal_name);
}

static bool itimer_wait(uint32_t bell, uint64_t *next_ns);
static const struct tick_source source = {.wait = itimer_wait};

int itimer_start(const struct itimer_kind *chosen, const struct sched_request *request)
{
    kind = chosen;
    period_ns = request->period_ns;
    if (!next.sigaction)
        return -ENOSYS;
    const char *option = option_that_has_it();
    if (option) {
        log_warn_once("LIBAGENT_SCHEDULER=%s is not used, event is: %s has %s", kind->scheduler,
                      option, kind->signal_name);
        return -EBUSY;
    }
    const char *found = what_the_app_has();
    if (found) {
        say_it_is_not_used(found);
        return -EBUSY;
    }
    int error = tick_start(request, &source, true);
    if (error)
        return error;
    error = take(&found);
    if (error)
        tick_stop();
    if (found)
        say_it_is_not_used(found);
    return error;
}

/* Signals wait from before, so that no handler waits for the frame under it. True: it is the
 * caller's to change. */
static bool begin_change(void)
{
    for (;;) {
        uint32_t now = ITIMER_ARMED;
        if (__atomic_compare_exchange_n(&state, &now, ITIMER_CHANGES, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return true;
        if (now == ITIMER_OFF)
            return false;
        (void)!nap_before(UINT64_MAX);
    }
}

static bool give_up(void)
{
    uint64_t mask;
    block_all(&mask);
    bool is_mine = begin_change();
    if (is_mine) {
        struct itimerval value = {0};
        sys_call2(SYS_getitimer, kind->which, &value);
        if (has_own_interval(&value))
            set_itimer(0);
        take_pending();
        put_back_action();
        store_release(&state, ITIMER_OFF);
        tick_ring();
    }
    unblock(&mask);
    return is_mine;
}

void itimer_stop(void)
{
    tick_stop();
    (void)give_up();
}

static void say_it_yields(void)
{
    log_warn_once(
        "LIBAGENT_SCHEDULER=%s yields %s and %s to the program; ticks go on as those of event",
        kind->scheduler, kind->name, kind->signal_name);
}

void itimer_yield(void)
{
    if (give_up())
        say_it_yields();
}

/* In our thread, which must not call libc's sigaction: the action was the default. */
static void put_back_default(void)
{
    /* The kernel's struct sigaction begins with the handler. */
    uint64_t action[4] = {0};
    if (sys_call4(SYS_rt_sigaction, kind->signal, NULL, action, sizeof(uint64_t)) != 0 ||
        action[0] != (uint64_t)(uintptr_t)on_signal)
        return;
    memset(action, 0, sizeof(action)); /* SIG_DFL */
    sys_call4(SYS_rt_sigaction, kind->signal, action, NULL, sizeof(uint64_t));
}

/* Within a change: another period is in force. */
static void follow_period(void)
{
    uint64_t wanted = tick_period_ns();
    if (wanted == period_ns)
        return;
    period_ns = wanted;
    if (is_armed)
        (void)!arm();
}

/* True: the program has set the timer by a system call, which no hook sees. Else `*left` is what is
 * left until the next signal. */
static bool was_taken(struct timeval *left)
{
    struct itimerval value = {0};
    if (!begin_change())
        return false;
    bool taken =
        is_armed && sys_call2(SYS_getitimer, kind->which, &value) == 0 && !has_own_interval(&value);
    if (taken) {
        /* Where the program's has gone off already what is pending is the program's. */
        if (value.it_value.tv_sec || value.it_value.tv_usec)
            take_pending();
        put_back_default();
    } else {
        follow_period();
    }
    *left = value.it_value;
    store_release(&state, taken ? ITIMER_OFF : ITIMER_ARMED);
    return taken;
}

static uint64_t to_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * NS_PER_SEC + (uint64_t)time.tv_usec * 1000;
}

/* When the tick of a signal is to be. Where processors are few, the signal reaches its thread, and
 * that thread's ring ours, when another one begins to wait and leaves its processor: a tick at that
 * moment sees more waits than there are, and the thread that took the signal is yet to go back into
 * its own. Midway between two signals our own timer tells the time, whatever all of them do. */
static uint64_t due_ns(struct timeval left)
{
    uint64_t now_ns = clock_monotonic_ns(), period = to_ns(interval);
    uint64_t ahead = to_ns(left) + period / 2;
    if (kind->which != ITIMER_REAL) /* in CPU time, and nothing is looked at */
        return now_ns;
    return now_ns + (ahead < period ? ahead : ahead - period);
}

static bool itimer_wait(uint32_t bell, uint64_t *next_ns)
{
    struct timeval left = {0};
    if (load_acquire(&state) == ITIMER_OFF)
        return event_source.wait(bell, next_ns);
    if (load_acquire(&signals) == signals_seen)
        (void)!sys_futex_wait(&tick_bell, bell, clock_monotonic_ns() + look_every_ns);
    if (was_taken(&left))
        say_it_yields();
    uint32_t now = load_acquire(&signals);
    if (now == signals_seen)
        return false;
    if (*next_ns == 0)
        *next_ns = due_ns(left);
    if (!event_source.wait(bell, next_ns))
        return false;
    signals_seen = now;
    *next_ns = 0;
    return true;
}

/* Ends a call. In the child of a handler on top of it, it is forgotten already. */
static bool was_last(uint32_t *count)
{
    uint32_t now = load_relaxed(count);
    while (now && !__atomic_compare_exchange_n(count, &now, now - 1, false, __ATOMIC_SEQ_CST,
                                               __ATOMIC_RELAXED))
        continue;
    return now == 1;
}

static bool wait_for_hold(bool takes)
{
    for (;;) {
        __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
        uint32_t now = __atomic_load_n(&state, __ATOMIC_SEQ_CST);
        if (now == ITIMER_OFF || (now == ITIMER_ARMED && !takes))
            return now == ITIMER_ARMED;
        (void)was_last(&calls);
        if (takes)
            itimer_yield();
        else
            (void)!nap_before(UINT64_MAX);
    }
}

bool itimer_hold(struct itimer_hold *hold, int which, bool takes)
{
    const struct itimer_kind *chosen = kind_chosen();
    hold->is_held = unlikely(chosen) && chosen->which == which && thread_in_process();
    return hold->is_held && wait_for_hold(takes);
}

bool itimer_hold_signal(struct itimer_hold *hold, int signal, bool takes)
{
    const struct itimer_kind *chosen = kind_chosen();
    hold->is_held = unlikely(chosen) && chosen->signal == signal && thread_in_process();
    return hold->is_held && wait_for_hold(takes);
}

void itimer_release(const struct itimer_hold *hold)
{
    if (hold->is_held)
        (void)was_last(&calls);
}

void itimer_signals_awaited(const sigset_t *set)
{
    const struct itimer_kind *chosen = kind_chosen();
    if (likely(!chosen) || !set)
        return;
    uint64_t bits;
    memcpy(&bits, set, sizeof(bits)); /* the rest are no signals */
    if (!(bits & SIGNAL_BIT(chosen->signal)) || !thread_in_process())
        return;
    __atomic_store_n(&was_awaited, true, __ATOMIC_SEQ_CST);
    itimer_yield();
}

void itimer_previous_action(struct sigaction *old)
{
    *old = previous;
}

void itimer_before_exec(void)
{
    if (likely(!kind_chosen()) || !thread_in_process())
        return;
    /* A start that does not see it is seen here. */
    __atomic_fetch_add(&execs, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == ITIMER_OFF)
        return;
    uint64_t mask;
    block_all(&mask);
    if (begin_change()) {
        set_itimer(0);
        is_armed = false;
        take_pending();
        store_release(&state, ITIMER_ARMED);
    }
    unblock(&mask);
}

void itimer_exec_failed(void)
{
    if (likely(!kind_chosen()) || !thread_in_process() || !was_last(&execs))
        return;
    uint64_t mask;
    block_all(&mask);
    if (begin_change()) {
        if (!is_armed)
            (void)!arm_unless_exec();
        store_release(&state, ITIMER_ARMED);
    }
    unblock(&mask);
}

void itimer_forget_calls_in_child(void)
{
    execs = 0;
    calls = 0;
}

void itimer_reset_in_child(struct thread_slot *own)
{
    tick_reset_in_child(own);
    if (state == ITIMER_CHANGES) { /* in another thread of the parent */
        put_back_default();
        state = ITIMER_OFF;
    }
    if (state == ITIMER_ARMED)
        (void)!arm();
}
