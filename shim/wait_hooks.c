/* wait_hooks.c: waits for signals and waits with a mask do not see the sampling signal.
 *
 * sigwait and its kin pass over it. The mask that a wait puts in force for its time (ppoll,
 * sigsuspend, ...) is widened by it: a program that blocks all signals but for such waits would
 * else get ours there, as an EINTR. sigpending does not show it, and the mask of a signalfd
 * loses it, since a read from the descriptor cannot be looked through. Where the app has a
 * handler of its own for that signal, masks and sigpending are left alone. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>

#include "agent/agent.h"
#include "agent/base/clock.h"
#include "shim/shim.h"

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t size);

static bool waits_for_ours(const sigset_t *set)
{
    int number = agent_signal_number();
    return number && sigismember(set, number) == 1;
}

static struct timespec time_left(uint64_t deadline_ns)
{
    uint64_t now = clock_monotonic_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    return (struct timespec){(time_t)(left / NS_PER_SEC), (long)(left % NS_PER_SEC)};
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    if (!waits_for_ours(set))
        return NEXT(sigtimedwait)(set, info, timeout);
    siginfo_t own;
    siginfo_t *found = info ? info : &own;
    uint64_t deadline = 0;
    struct timespec left;
    /* Time-outs that the kernel refuses, or that would overflow, go through as they are. */
    if (timeout && timeout->tv_sec >= 0 && timeout->tv_sec < INT32_MAX) {
        deadline = clock_monotonic_ns() + (uint64_t)timeout->tv_sec * NS_PER_SEC +
                   (uint64_t)timeout->tv_nsec;
    }
    for (;;) {
        int number = NEXT(sigtimedwait)(set, found, timeout);
        if (!agent_is_signal(number) || !agent_signal_is_ours(found))
            return number;
        if (deadline) {
            left = time_left(deadline);
            timeout = &left;
        }
    }
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    return sigtimedwait(set, info, NULL);
}

EXPORT int sigwait(const sigset_t *set, int *number)
{
    if (!waits_for_ours(set))
        return NEXT(sigwait)(set, number);
    int before = errno;
    int result;
    siginfo_t info;
    do {
        result = sigtimedwait(set, &info, NULL);
    } while (result < 0 && errno == EINTR);
    int error = errno;
    errno = before;
    if (result < 0)
        return error;
    *number = result;
    return 0;
}

EXPORT int signalfd(int fd, const sigset_t *mask, int flags)
{
    if (!waits_for_ours(mask))
        return NEXT(signalfd)(fd, mask, flags);
    sigset_t without = *mask;
    sigdelset(&without, agent_signal_number());
    return NEXT(signalfd)(fd, &without, flags);
}

/* ---- masks ---- */

/* `mask` with our signal in it, kept in `room`; as it is where that is not ours to do. */
static const sigset_t *widen(const sigset_t *mask, sigset_t *room)
{
    if (!mask || !agent_signal_number() || agent_signal_is_handled())
        return mask;
    *room = *mask;
    sigaddset(room, agent_signal_number());
    return room;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *mask)
{
    sigset_t room;
    return NEXT(ppoll)(fds, count, timeout, widen(mask, &room));
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                       const sigset_t *mask, size_t size)
{
    sigset_t room;
    if (!NEXT(__ppoll_chk))
        return ppoll(fds, count, timeout, mask);
    return next.__ppoll_chk(fds, count, timeout, widen(mask, &room), size);
}

EXPORT int pselect(int count, fd_set *reads, fd_set *writes, fd_set *others,
                   const struct timespec *timeout, const sigset_t *mask)
{
    sigset_t room;
    return NEXT(pselect)(count, reads, writes, others, timeout, widen(mask, &room));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int count, int timeout,
                       const sigset_t *mask)
{
    sigset_t room;
    return NEXT(epoll_pwait)(fd, events, count, timeout, widen(mask, &room));
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int count,
                        const struct timespec *timeout, const sigset_t *mask)
{
    sigset_t room;
    if (!NEXT(epoll_pwait2)) { /* glibc before 2.35 */
        errno = ENOSYS;
        return -1;
    }
    return next.epoll_pwait2(fd, events, count, timeout, widen(mask, &room));
}

EXPORT int sigsuspend(const sigset_t *mask)
{
    sigset_t room;
    return NEXT(sigsuspend)(widen(mask, &room));
}

EXPORT int sigpending(sigset_t *set)
{
    int result = NEXT(sigpending)(set);
    if (result == 0 && agent_signal_number() && !agent_signal_is_handled())
        sigdelset(set, agent_signal_number());
    return result;
}
