#include "shim/fork_hooks.h"

#include <errno.h>
#include <stdint.h>

#include "agent/agent.h"
#include "shim/shim.h"

extern void *__dso_handle HIDDEN;

void fork_handlers_register(void)
{
    static uint32_t registered;
    if (!exchange_acq_rel(&registered, 1))
        next.__register_atfork(agent_fork_prepare, agent_fork_parent, agent_fork_child,
                               __dso_handle);
}

/* What pthread_atfork, a part of each object that calls it, comes down to. */
EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *dso)
{
    if (!NEXT(__register_atfork))
        return ENOSYS;
    fork_handlers_register();
    return next.__register_atfork(prepare, parent, child, dso);
}
