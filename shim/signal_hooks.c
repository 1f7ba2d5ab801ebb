/* signal_hooks.c: sigaction, for handlers on small alternate stacks, and pthread_cancel, whose
 * signal the agent shares (agent/sched/sampling_signal.h); sigaction, signal and its kin, for those
 * by which the agent may be controlled (agent/control_signals.h). */
#include <errno.h>
#include <signal.h>

#include "agent/agent.h"
#include "shim/shim.h"

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    int result;
    struct itimer_hold hold;
    if (!agent_signal_action(number, action, old, &result, &hold))
        result = NEXT(sigaction)(number, action, old);
    agent_itimer_release(&hold);
    if (result == 0)
        agent_signal_acted(number, action, old);
    return result;
}

EXPORT int pthread_cancel(unsigned long thread)
{
    if (!NEXT(pthread_cancel))
        return ENOSYS;
    agent_signal_renew();
    int error = next.pthread_cancel(thread);
    agent_signal_renew();
    return error;
}
