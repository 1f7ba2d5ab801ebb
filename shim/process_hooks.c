/* process_hooks.c: the exec family. exec ends what was recorded, so it is written before;
 * in a child of fork there is nothing yet, in one of vfork nothing is touched. The variadic ones
 * gather their arguments on the stack, as libc does. */
#include <errno.h>
#include <stdarg.h>

#include "agent/agent.h"
#include "shim/shim.h"

extern char **environ;

/* A call that returns has failed. */
static int failed(int result)
{
    agent_exec_failed();
    return result;
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
{
    agent_before_exec();
    return failed(NEXT(execve)(path, arguments, environment));
}

EXPORT int execv(const char *path, char *const arguments[])
{
    return execve(path, arguments, environ);
}

EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[])
{
    agent_before_exec();
    return failed(NEXT(execvpe)(file, arguments, environment));
}

EXPORT int execvp(const char *file, char *const arguments[])
{
    return execvpe(file, arguments, environ);
}

EXPORT int fexecve(int fd, char *const arguments[], char *const environment[])
{
    agent_before_exec();
    return failed(NEXT(fexecve)(fd, arguments, environment));
}

EXPORT int execveat(int fd, const char *path, char *const arguments[], char *const environment[],
                    int flags)
{
    if (!NEXT(execveat)) {
        errno = ENOSYS;
        return -1;
    }
    agent_before_exec();
    return failed(next.execveat(fd, path, arguments, environment, flags));
}

/* NOLINTBEGIN(bugprone-macro-parentheses): names that are declared can have none */
/* Defines `vector`, the arguments from `argument` on with their NULL; `list` stands behind it. */
#define GATHER(vector, list, argument)                                                             \
    size_t count_ = 0;                                                                             \
    va_start(list, argument);                                                                      \
    for (const char *at = argument; at; at = va_arg(list, const char *))                           \
        count_++;                                                                                  \
    va_end(list);                                                                                  \
    char **vector = __builtin_alloca((count_ + 1) * sizeof(char *));                               \
    vector[0] = (char *)argument;                                                                  \
    va_start(list, argument);                                                                      \
    for (size_t i = 0; vector[i]; i++)                                                             \
    vector[i + 1] = va_arg(list, char *)
/* NOLINTEND(bugprone-macro-parentheses) */

EXPORT int execl(const char *path, const char *argument, ...)
{
    va_list list;
    GATHER(vector, list, argument);
    va_end(list);
    return execve(path, vector, environ);
}

EXPORT int execlp(const char *file, const char *argument, ...)
{
    va_list list;
    GATHER(vector, list, argument);
    va_end(list);
    return execvpe(file, vector, environ);
}

EXPORT int execle(const char *path, const char *argument, ...)
{
    va_list list;
    GATHER(vector, list, argument);
    char *const *environment = va_arg(list, char *const *);
    va_end(list);
    return execve(path, vector, environment);
}
