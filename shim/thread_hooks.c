/* thread_hooks.c: creation of threads. A new pthread begins in a routine of ours, which attaches it
 * and goes on in the app's; how it ends is seen by a pthread key (agent/thread). That of a bare
 * clone is taken on by the thread that made it. Those that libc makes by itself are looked for. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/agent.h"
#include "shim/shim.h"

static void *thread_routine(void *argument)
{
    void *(*routine)(void *) = (void *(*)(void *))agent_thread_begin(argument, &argument);
    return routine(argument);
}

static int thrd_routine(void *argument)
{
    int (*routine)(void *) = (int (*)(void *))agent_thread_begin(argument, &argument);
    return routine(argument);
}

EXPORT int pthread_create(void *thread, const void *attributes, void *(*routine)(void *),
                          void *argument)
{
    if (!NEXT(pthread_create))
        return ENOSYS;
    struct thread_slot *slot = agent_thread_prepare((uintptr_t)routine, argument);
    if (!slot)
        return next.pthread_create(thread, attributes, routine, argument);
    int error = next.pthread_create(thread, attributes, thread_routine, slot);
    if (error)
        agent_thread_not_born(slot);
    return error;
}

EXPORT int pthread_setname_np(unsigned long thread, const char *name)
{
    if (!NEXT(pthread_setname_np))
        return ENOSYS;
    int error = next.pthread_setname_np(thread, name);
    if (!error)
        agent_thread_named(thread, name);
    return error;
}

EXPORT int thrd_create(void *thread, int (*routine)(void *), void *argument)
{
    enum { THRD_ERROR = 2 };
    if (!NEXT(thrd_create))
        return THRD_ERROR;
    struct thread_slot *slot = agent_thread_prepare((uintptr_t)routine, argument);
    if (!slot)
        return next.thrd_create(thread, routine, argument);
    int result = next.thrd_create(thread, thrd_routine, slot);
    if (result != 0)
        agent_thread_not_born(slot);
    return result;
}

/* Variadic in libc's headers; here it is declared, under another name, with all that it may get.
 * The child begins in its routine, on its own stack, and never comes back here. */
int hooked_clone(int (*routine)(void *), void *stack, int flags, void *argument, void *parent_tid,
                 void *tls, void *child_tid) __asm__("clone");

EXPORT int hooked_clone(int (*routine)(void *), void *stack, int flags, void *argument,
                        void *parent_tid, void *tls, void *child_tid)
{
    if (!NEXT(clone)) {
        errno = ENOSYS;
        return -1;
    }
    bool is_thread = (flags & CLONE_THREAD) && !(flags & CLONE_VFORK);
    struct thread_slot *slot = is_thread ? agent_thread_prepare((uintptr_t)routine, NULL) : NULL;
    int tid = next.clone(routine, stack, flags, argument, parent_tid, tls, child_tid);
    if (slot)
        agent_thread_cloned(slot, tid);
    return tid;
}

/* What they notify by is a thread that libc makes without any name that we could have. */
int hooked_timer_create(clockid_t clock, struct sigevent *event,
                        void *timer) __asm__("timer_create");
int hooked_mq_notify(int queue, const struct sigevent *event) __asm__("mq_notify");

static int notified(int result, const struct sigevent *event)
{
    if (result == 0 && event && event->sigev_notify == SIGEV_THREAD)
        agent_threads_of_libc();
    return result;
}

static int is_missing(void)
{
    errno = ENOSYS;
    return -1;
}

EXPORT int hooked_timer_create(clockid_t clock, struct sigevent *event, void *timer)
{
    return NEXT(timer_create) ? notified(next.timer_create(clock, event, timer), event)
                              : is_missing();
}

EXPORT int hooked_mq_notify(int queue, const struct sigevent *event)
{
    return NEXT(mq_notify) ? notified(next.mq_notify(queue, event), event) : is_missing();
}
