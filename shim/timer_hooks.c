/* timer_hooks.c: interval timers and the functions that set a signal's action beside sigaction. The
 * schedulers sigprof and sigalrm have one timer and its signal; an app that wants them gets them as
 * if nobody had had them (agent/sched/itimer.h). */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

#include "agent/agent.h"
#include "shim/shim.h"

typedef void (*handler)(int);

int hooked_setitimer(int which, const struct itimerval *value,
                     struct itimerval *old) __asm__("setitimer");
int hooked_getitimer(int which, struct itimerval *value) __asm__("getitimer");
unsigned hooked_alarm(unsigned seconds) __asm__("alarm");
unsigned hooked_ualarm(unsigned first, unsigned interval) __asm__("ualarm");

EXPORT int hooked_setitimer(int which, const struct itimerval *value, struct itimerval *old)
{
    struct itimer_hold hold;
    (void)agent_itimer_hold(&hold, which, true);
    int result = NEXT(setitimer)(which, value, old);
    agent_itimer_release(&hold);
    return result;
}

EXPORT int hooked_getitimer(int which, struct itimerval *value)
{
    struct itimer_hold hold;
    bool is_ours = agent_itimer_hold(&hold, which, false);
    int result = NEXT(getitimer)(which, value);
    if (result == 0 && is_ours)
        memset(value, 0, sizeof(*value));
    agent_itimer_release(&hold);
    return result;
}

EXPORT unsigned hooked_alarm(unsigned seconds)
{
    struct itimer_hold hold;
    (void)agent_itimer_hold(&hold, ITIMER_REAL, true);
    unsigned left = NEXT(alarm)(seconds);
    agent_itimer_release(&hold);
    return left;
}

EXPORT unsigned hooked_ualarm(unsigned first, unsigned interval)
{
    struct itimer_hold hold;
    (void)agent_itimer_hold(&hold, ITIMER_REAL, true);
    unsigned left = NEXT(ualarm)(first, interval);
    agent_itimer_release(&hold);
    return left;
}

/* What waits for signals takes those that are blocked, ours too. Tail calls: they are points of
 * cancellation, and one that waits is to look as without us. */
int hooked_sigwait(const sigset_t *set, int *number) __asm__("sigwait");
int hooked_sigwaitinfo(const sigset_t *set, siginfo_t *info) __asm__("sigwaitinfo");
int hooked_sigtimedwait(const sigset_t *set, siginfo_t *info,
                        const struct timespec *limit) __asm__("sigtimedwait");
int hooked_signalfd(int fd, const sigset_t *set, int flags) __asm__("signalfd");

EXPORT int hooked_sigwait(const sigset_t *set, int *number)
{
    agent_signals_awaited(set);
    return NEXT(sigwait)(set, number);
}

EXPORT int hooked_sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    agent_signals_awaited(set);
    return NEXT(sigwaitinfo)(set, info);
}

EXPORT int hooked_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *limit)
{
    agent_signals_awaited(set);
    return NEXT(sigtimedwait)(set, info, limit);
}

EXPORT int hooked_signalfd(int fd, const sigset_t *set, int flags)
{
    agent_signals_awaited(set);
    return NEXT(signalfd)(fd, set, flags);
}

/* Each is an entry of its own in libc, and none of them calls sigaction by its name. */
/* NOLINTBEGIN(bugprone-macro-parentheses): declarations can have none */
#define SIGNAL_HOOK(name)                                                                          \
    handler hooked_##name(int number, handler action) __asm__(#name);                              \
    EXPORT handler hooked_##name(int number, handler action)                                       \
    {                                                                                              \
        if (!NEXT(name)) {                                                                         \
            errno = ENOSYS;                                                                        \
            return SIG_ERR;                                                                        \
        }                                                                                          \
        struct itimer_hold hold;                                                                   \
        agent_signal_hold(&hold, number);                                                          \
        handler old = next.name(number, action);                                                   \
        agent_itimer_release(&hold);                                                               \
        return (handler)agent_signal_set(number, (uintptr_t)action, (uintptr_t)old);               \
    }

SIGNAL_HOOK(signal)
SIGNAL_HOOK(bsd_signal)
SIGNAL_HOOK(ssignal)
SIGNAL_HOOK(sysv_signal)
SIGNAL_HOOK(__sysv_signal)
SIGNAL_HOOK(sigset)
/* NOLINTEND(bugprone-macro-parentheses) */
