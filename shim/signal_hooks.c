/* signal_hooks.c: what the app sees and sets of the sampling signal is its own view of it
 * (agent/sched/sampling_signal.h); every other signal goes straight to libc. */
#include <signal.h>
#include <string.h>

#include "agent/agent.h"
#include "shim/shim.h"

/* These have the system's declarations (signal.h is needed for its types). */
sighandler_t bsd_signal(int number, sighandler_t handler);
sighandler_t __sysv_signal(int number, sighandler_t handler);

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    int result;
    if (agent_signal_action(number, action, old, &result))
        return result;
    return NEXT(sigaction)(number, action, old);
}

/* signal and its kin for our signal, with the flags and the mask that libc's have. */
static sighandler_t set_handler(int number, sighandler_t handler, int flags, bool masks_itself)
{
    struct sigaction action;
    struct sigaction old;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    if (masks_itself)
        sigaddset(&action.sa_mask, number);
    return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

/* siginterrupt's word on our signal, which signal follows. */
static bool interrupts;

EXPORT sighandler_t signal(int number, sighandler_t handler)
{
    return agent_is_signal(number) ? set_handler(number, handler, interrupts ? 0 : SA_RESTART, true)
                                   : NEXT(signal)(number, handler);
}

EXPORT sighandler_t bsd_signal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

EXPORT sighandler_t ssignal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
    return agent_is_signal(number) || !NEXT(__sysv_signal)
               ? set_handler(number, handler, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT),
                             false)
               : next.__sysv_signal(number, handler);
}

EXPORT sighandler_t sysv_signal(int number, sighandler_t handler)
{
    return __sysv_signal(number, handler);
}

/* sigset also changes the mask, as System V has it. */
EXPORT sighandler_t sigset(int number, sighandler_t disposition)
{
    if (!agent_is_signal(number))
        return NEXT(sigset)(number, disposition);
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    sigaddset(&set, number);
    bool holds = disposition == SIG_HOLD;
    if (sigprocmask(holds ? SIG_BLOCK : SIG_UNBLOCK, &set, &before) != 0)
        return SIG_ERR;
    struct sigaction old;
    sighandler_t handler;
    if (holds)
        handler = sigaction(number, NULL, &old) == 0 ? old.sa_handler : SIG_ERR;
    else
        handler = set_handler(number, disposition, 0, false);
    return sigismember(&before, number) == 1 ? SIG_HOLD : handler;
}

EXPORT int sigignore(int number)
{
    if (agent_is_signal(number))
        return set_handler(number, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
    return NEXT(sigignore)(number);
}

EXPORT int siginterrupt(int number, int flag)
{
    if (!agent_is_signal(number))
        return NEXT(siginterrupt)(number, flag);
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0)
        return -1;
    interrupts = flag != 0;
    action.sa_flags = flag ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    return sigaction(number, &action, NULL);
}
