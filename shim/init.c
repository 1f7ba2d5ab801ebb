/* init.c: the one constructor and destructor, and what is registered with libc. */
#include <stddef.h>

#include "agent/agent.h"
#include "shim/fork_hooks.h"
#include "shim/shim.h"

/* Absent from musl (and with them profiling: hooks then only forward). */
extern const char *gnu_get_libc_version(void) WEAK;
extern int __cxa_at_quick_exit(void (*function)(void *), void *dso) WEAK;
extern void *__dso_handle HIDDEN;

static void on_quick_exit(void *unused)
{
    (void)unused;
    agent_at_exit();
}

/* glibc gives a constructor main's arguments; musl gives none. */
__attribute__((constructor)) static void start(int argc, char **argv, char **environment)
{
    (void)argc;
    next_lookup();
    if (!gnu_get_libc_version || !next.__register_atfork) {
        agent_stay_off();
        return;
    }
    if (!agent_init(argv, environment))
        return;
    fork_handlers_register();
    if (__cxa_at_quick_exit)
        __cxa_at_quick_exit(on_quick_exit, __dso_handle);
}

__attribute__((destructor)) static void stop(void)
{
    agent_at_exit();
}
