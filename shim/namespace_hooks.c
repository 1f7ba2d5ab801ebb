/* namespace_hooks.c: unshare and setns, some forms of which the kernel refuses to a process that
 * has a second thread: the agent's are ended first. By syscall: shim/syscall_hooks.c. */
#include <errno.h>

#include "agent/agent.h"
#include "shim/shim.h"

EXPORT int unshare(int flags)
{
    if (!NEXT(unshare)) {
        errno = ENOSYS;
        return -1;
    }
    bool paused = agent_pause(false);
    int result = next.unshare(flags);
    agent_go_on(paused);
    return result;
}

EXPORT int setns(int fd, int kind)
{
    if (!NEXT(setns)) {
        errno = ENOSYS;
        return -1;
    }
    bool paused = agent_pause(false);
    int result = next.setns(fd, kind);
    agent_go_on(paused);
    return result;
}
