/* next.h: the definitions of libc's (or the allocator's) functions that come after ours.
 *
 * shim/next_lookup.c fills the table before anything uses it; tests put their own functions in.
 * A member is NULL where no object defines the name (musl, old glibc without libpthread, no
 * C23): callers in the agent check, hooks fall back as they document.
 *
 * Owns: `next` and what is told of the objects beside it. Context: any (reads). Locks: none. */
#ifndef LIBAGENT_NEXT_H
#define LIBAGENT_NEXT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/base/compiler.h"

struct itimerval;
typedef void (*next_signal_handler)(int);

/* Return type, name, parameters. */
#define NEXT_LIST(X)                                                                               \
    X(void *, malloc, (size_t size))                                                               \
    X(void, free, (void *pointer))                                                                 \
    X(void *, calloc, (size_t count, size_t size))                                                 \
    X(void *, realloc, (void *pointer, size_t size))                                               \
    X(void *, reallocarray, (void *pointer, size_t count, size_t size))                            \
    X(int, posix_memalign, (void **out, size_t alignment, size_t size))                            \
    X(void *, aligned_alloc, (size_t alignment, size_t size))                                      \
    X(void *, memalign, (size_t alignment, size_t size))                                           \
    X(void *, valloc, (size_t size))                                                               \
    X(void *, pvalloc, (size_t size))                                                              \
    X(void, free_sized, (void *pointer, size_t size))                                              \
    X(void, free_aligned_sized, (void *pointer, size_t alignment, size_t size))                    \
    X(int, pthread_create,                                                                         \
      (void *thread, const void *attributes, void *(*routine)(void *), void *argument))            \
    X(int, pthread_setname_np, (unsigned long thread, const char *name))                           \
    X(int, pthread_cancel, (unsigned long thread))                                                 \
    X(int, thrd_create, (void *thread, int (*routine)(void *), void *argument))                    \
    X(int, clone,                                                                                  \
      (int (*routine)(void *), void *stack, int flags, void *argument, void *parent_tid,           \
       void *tls, void *child_tid))                                                                \
    X(int, timer_create, (clockid_t clock, struct sigevent * event, void *timer))                  \
    X(int, mq_notify, (int queue, const struct sigevent *event))                                   \
    X(int, pthread_attr_init, (void *attributes))                                                  \
    X(int, pthread_attr_setstacksize, (void *attributes, size_t size))                             \
    X(int, pthread_attr_setdetachstate, (void *attributes, int state))                             \
    X(int, pthread_key_create, (unsigned *key, void (*destructor)(void *)))                        \
    X(int, pthread_setspecific, (unsigned key, const void *value))                                 \
    X(int, __register_atfork,                                                                      \
      (void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso))               \
    X(void *, dlopen, (const char *file, int mode))                                                \
    X(void *, dlsym, (void *handle, const char *name))                                             \
    X(char *, dlerror, (void))                                                                     \
    X(int, dlclose, (void *handle))                                                                \
    X(int, dl_iterate_phdr, (int (*callback)(void *, size_t, void *), void *data))                 \
    X(int, sigaction, (int signal, const struct sigaction *action, struct sigaction *old))         \
    X(int, setitimer, (int which, const struct itimerval *value, struct itimerval *old))           \
    X(int, getitimer, (int which, struct itimerval *value))                                        \
    X(unsigned, alarm, (unsigned seconds))                                                         \
    X(unsigned, ualarm, (unsigned first, unsigned interval))                                       \
    X(int, sigwait, (const sigset_t *set, int *number))                                            \
    X(int, sigwaitinfo, (const sigset_t *set, siginfo_t *info))                                    \
    X(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *limit))     \
    X(int, signalfd, (int fd, const sigset_t *set, int flags))                                     \
    X(next_signal_handler, signal, (int number, next_signal_handler action))                       \
    X(next_signal_handler, bsd_signal, (int number, next_signal_handler action))                   \
    X(next_signal_handler, ssignal, (int number, next_signal_handler action))                      \
    X(next_signal_handler, sysv_signal, (int number, next_signal_handler action))                  \
    X(next_signal_handler, __sysv_signal, (int number, next_signal_handler action))                \
    X(next_signal_handler, sigset, (int number, next_signal_handler action))                       \
    X(void, longjmp, (void *environment, int value))                                               \
    X(void, _longjmp, (void *environment, int value))                                              \
    X(void, siglongjmp, (void *environment, int value))                                            \
    X(void, __longjmp_chk, (void *environment, int value))                                         \
    X(int, unshare, (int flags))                                                                   \
    X(int, setns, (int fd, int kind))                                                              \
    X(int, pipe2, (int ends[2], int flags))                                                        \
    X(int, setuid, (uid_t user))                                                                   \
    X(int, setgid, (gid_t group))                                                                  \
    X(int, seteuid, (uid_t user))                                                                  \
    X(int, setegid, (gid_t group))                                                                 \
    X(int, setreuid, (uid_t real, uid_t effective))                                                \
    X(int, setregid, (gid_t real, gid_t effective))                                                \
    X(int, setresuid, (uid_t real, uid_t effective, uid_t saved))                                  \
    X(int, setresgid, (gid_t real, gid_t effective, gid_t saved))                                  \
    X(int, setgroups, (size_t count, const gid_t *groups))                                         \
    X(int, initgroups, (const char *user, gid_t group))                                            \
    X(int, capset, (void *header, const void *data))                                               \
    X(int, prctl, (int option, long a, long b, long c, long d))                                    \
    X(long, syscall, (long number, long a, long b, long c, long d, long e, long f))                \
    X(int, execve, (const char *path, char *const arguments[], char *const environment[]))         \
    X(int, execvpe, (const char *file, char *const arguments[], char *const environment[]))        \
    X(int, fexecve, (int fd, char *const arguments[], char *const environment[]))                  \
    X(int, execveat,                                                                               \
      (int fd, const char *path, char *const arguments[], char *const environment[], int flags))

struct next_functions {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration can have none */
#define X(type, name, parameters) type(*name) parameters;
    NEXT_LIST(X)
#undef X
    size_t (*malloc_usable_size)(void *pointer); /* of the object that has `realloc` */
};

extern HIDDEN struct next_functions next;
/* malloc as libc itself calls it: ours, unless the executable or an object before us in the
 * loader's order has one of its own. */
extern void *next_first_malloc;
/* A sanitizer of threads or of memory is in the process, and libcurl cannot run there. That of
 * threads crashes in its malloc, and in whatever of libc it stands before, in a thread that it did
 * not see being made; of one that it did see it makes something of the program's (exit waits for
 * it, no thread can be made in a fork child). That of memory ends the process where code that is
 * not compiled for it hands what it wrote to libc. */
extern bool next_is_sanitized;

#endif
