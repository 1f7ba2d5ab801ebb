/* syscall_hooks.c: prctl and syscall. A program that puts itself under a filter may not be killed
 * for calls of ours: the agent writes what it has and makes no call from then on. Both are tail
 * calls, as libc's syscall must be for what returns twice. libc's headers have them variadic; here
 * they are declared, under other names, with all the registers that they pass on. */
#include <linux/prctl.h>
#include <sys/syscall.h>

#include "agent/agent.h"
#include "shim/shim.h"

int hooked_prctl(int option, long a, long b, long c, long d) __asm__("prctl");
long hooked_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");

static int set_name(const char *name)
{
    int result = NEXT(prctl)(PR_SET_NAME, (long)name, 0, 0, 0);
    if (result == 0)
        agent_thread_named(0, name);
    return result;
}

EXPORT int hooked_prctl(int option, long a, long b, long c, long d)
{
    if (option == PR_SET_SECCOMP)
        agent_before_seccomp();
    if (option == PR_SET_NAME)
        return set_name((const char *)a);
    return NEXT(prctl)(option, a, b, c, d);
}

EXPORT long hooked_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    /* Operations 0 and 1 set a mode; others only ask. */
    if ((number == SYS_seccomp && (a == 0 || a == 1)) ||
        (number == SYS_prctl && a == PR_SET_SECCOMP))
        agent_before_seccomp();
    if (number == SYS_prctl && a == PR_SET_NAME)
        return set_name((const char *)b);
    if (number == SYS_unshare)
        return unshare((int)a);
    if (number == SYS_setns)
        return setns((int)a, (int)b);
    return NEXT(syscall)(number, a, b, c, d, e, f);
}
