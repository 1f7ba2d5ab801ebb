/* pipe_hooks.c: pipe2, which libunwind calls when the agent starts to use it: the program would
 * find other numbers free, and write to that pipe what it writes to a closed standard output. */
#include <errno.h>

#include "agent/agent.h"
#include "shim/shim.h"

EXPORT int pipe2(int ends[2], int flags)
{
    if (agent_refuses_pipe()) {
        errno = EMFILE;
        return -1;
    }
    if (!NEXT(pipe2)) {
        errno = ENOSYS;
        return -1;
    }
    return next.pipe2(ends, flags);
}
