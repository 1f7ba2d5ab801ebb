/* syscall_hooks.c: prctl and syscall. A program that puts itself under a filter may not be killed
 * for calls of ours, nor one that has its calls or looks at the clock raise signals get one for
 * ours: the agent writes what it has and makes no call from then on. Both are tail calls, as libc's
 * syscall must be for what returns twice. libc's headers have them variadic; here they are
 * declared, under other names, with all the registers that they pass on. */
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "agent/agent.h"
#include "shim/shim.h"

/* Linux 5.11; the headers of older systems lack them. */
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF          0
#endif

int hooked_prctl(int option, long a, long b, long c, long d) __asm__("prctl");
long hooked_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");

static int set_name(const char *name)
{
    int result = NEXT(prctl)(PR_SET_NAME, (long)name, 0, 0, 0);
    if (result == 0)
        agent_thread_named(0, name);
    return result;
}

/* Programs ask whether there are filters by setting one at no address, or in a mode that is none:
 * profiling does not end for that. It does for a filter that the kernel refuses for what is in it,
 * or for want of privileges: nobody knows that before. */
static void before_filter(const void *filter)
{
    if (filter)
        agent_before_silence(filter, "enters a seccomp filter");
}

static void before_strict(void)
{
    agent_before_silence(NULL, "enters seccomp's strict mode");
}

static void before_prctl_seccomp(long mode, const void *filter)
{
    if (mode == SECCOMP_MODE_STRICT)
        before_strict();
    else if (mode == SECCOMP_MODE_FILTER)
        before_filter(filter);
}

/* Other operations only ask. */
static void before_seccomp(unsigned operation, unsigned flags, const void *filter)
{
    if (operation == SECCOMP_SET_MODE_STRICT && flags == 0 && !filter)
        before_strict();
    else if (operation == SECCOMP_SET_MODE_FILTER)
        before_filter(filter);
}

static void before_prctl(int option, long a, long b)
{
    if (option == PR_SET_SECCOMP)
        before_prctl_seccomp(a, (const void *)b);
    else if (option == PR_SET_SYSCALL_USER_DISPATCH && a != PR_SYS_DISPATCH_OFF)
        agent_before_silence(NULL, "has its system calls dispatched by signals");
    else if (option == PR_SET_TSC && (int)a == PR_TSC_SIGSEGV)
        agent_before_silence(NULL, "has reads of the time stamp counter raise signals");
}

EXPORT int hooked_prctl(int option, long a, long b, long c, long d)
{
    before_prctl(option, a, b);
    if (option == PR_SET_NAME)
        return set_name((const char *)a);
    return NEXT(prctl)(option, a, b, c, d);
}

EXPORT long hooked_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_seccomp)
        before_seccomp((unsigned)a, (unsigned)b, (const void *)c);
    if (number == SYS_prctl)
        before_prctl((int)a, b, c);
    if (number == SYS_prctl && a == PR_SET_NAME)
        return set_name((const char *)b);
    if (number == SYS_unshare)
        return unshare((int)a);
    if (number == SYS_setns)
        return setns((int)a, (int)b);
    return NEXT(syscall)(number, a, b, c, d, e, f);
}
