/* identity_hooks.c: changes of user, group and capabilities. libc makes them in every thread that
 * it knows; the agent's own are none of these, so they are not there meanwhile. One that comes
 * later has what its creator has. capset is for one thread only, and a program that has just one
 * of its own means the whole process by it. */
#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent/agent.h"
#include "shim/shim.h"

/* Name, parameters with their types, arguments. */
#define IDENTITY_LIST(X)                                                                           \
    X(setuid, (uid_t user), (user))                                                                \
    X(setgid, (gid_t group), (group))                                                              \
    X(seteuid, (uid_t user), (user))                                                               \
    X(setegid, (gid_t group), (group))                                                             \
    X(setreuid, (uid_t real, uid_t effective), (real, effective))                                  \
    X(setregid, (gid_t real, gid_t effective), (real, effective))                                  \
    X(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))             \
    X(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))             \
    X(setgroups, (size_t count, const gid_t *groups), (count, groups))                             \
    X(initgroups, (const char *user, gid_t group), (user, group))                                  \
    X(capset, (void *header, const void *data), (header, data))

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters of a function can have none */
#define X(name, parameters, arguments)                                                             \
    int hooked_##name parameters __asm__(#name);                                                   \
    EXPORT int hooked_##name parameters                                                            \
    {                                                                                              \
        if (!NEXT(name)) {                                                                         \
            errno = ENOSYS;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        bool paused = agent_pause(true);                                                           \
        int result = next.name arguments;                                                          \
        agent_go_on(paused);                                                                       \
        return result;                                                                             \
    }
IDENTITY_LIST(X)
#undef X
/* NOLINTEND(bugprone-macro-parentheses) */
