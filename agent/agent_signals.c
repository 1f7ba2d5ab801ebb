/* agent_signals.c: the part of agent.h that gives the app its signals and interval timers, whatever
 * the agent has of them (agent/sched/sampling_signal.h, agent/sched/itimer.h). */
#include "agent/agent.h"
#include "agent/control_signals.h"
#include "agent/sched/itimer.h"
#include "agent/sched/sampling_signal.h"
#include "agent/thread/thread_context.h"

bool agent_signal_action(int number, const struct sigaction *action, struct sigaction *old,
                         int *result, struct itimer_hold *hold)
{
    /* The default action is what the app has already where the agent has the signal. */
    bool takes = action && (action->sa_handler != SIG_DFL || action->sa_flags != 0);
    if (itimer_hold_signal(hold, number, takes)) {
        if (old)
            itimer_previous_action(old);
        *result = 0;
        return true;
    }
    return sampling_signal_action(number, action, old, result);
}

bool agent_itimer_hold(struct itimer_hold *hold, int which, bool takes)
{
    return itimer_hold(hold, which, takes);
}

void agent_signal_hold(struct itimer_hold *hold, int number)
{
    (void)!itimer_hold_signal(hold, number, true);
}

void agent_itimer_release(const struct itimer_hold *hold)
{
    itimer_release(hold);
}

void agent_signals_awaited(const sigset_t *set)
{
    itimer_signals_awaited(set);
}

static void follow_profilers(int number)
{
    if (number == SIGPROF || number == SIGVTALRM)
        agent_signal_renew();
}

void agent_signal_acted(int number, const struct sigaction *action, struct sigaction *old)
{
    if (action)
        follow_profilers(number);
    control_signals_acted(number, action, old);
}

uintptr_t agent_signal_set(int number, uintptr_t handler, uintptr_t old)
{
    follow_profilers(number);
    return control_signals_set(number, handler, old);
}

void agent_signal_renew(void)
{
    if (thread_in_process())
        sampling_signal_renew();
}

void agent_exec_failed(void)
{
    itimer_exec_failed();
}
