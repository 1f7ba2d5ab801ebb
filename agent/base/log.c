/* log.c: where a line goes.
 *
 * Protocol:
 *  1. A line is made on its thread's stack, and written at once, with no lock held.
 *  2. What cannot be written now goes to `waiting`, in whole texts, under LOCK_LOG; when that is
 *     full the newest are lost and counted, since the first error explains the most.
 *  3. Before a line is written, and in log_flush, one thread at a time (`flushing`) writes what
 *     waits, one line after the other: only it removes from `waiting`, so it can copy a line
 *     out under the lock, write it without, and remove it after.
 *  Race that remains: a line may overtake one that another thread is writing. */
#include "agent/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/lock.h"
#include "agent/base/pair_map.h"
#include "agent/base/sys.h"
#include "agent/base/utc_time.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum {
    LINE_SIZE = 1024, /* with the newline */
    WAITING_SIZE = 4096,
    DETACHED_MAX = 8, /* the agent has two threads of its own */
    STDERR_FD = 2,
    KERNEL_SIGSET_SIZE = 8,
    SAID_MAX = 32, /* lines of starts: most processes have none */
};

/* What a writer gives back: written (or not to be written), or to be tried again later. */
enum outcome { DONE, LATER };

static enum log_level level_in_force = LOG_WARN;
static char log_path[PATH_MAX]; /* empty: standard error */
static bool path_failure_said;
static bool is_barred;

static struct {
    bool known; /* descriptor 2 was looked at */
    bool open;
    dev_t device;
    ino_t inode;
} standard_error;

static uint32_t detached_tids[DETACHED_MAX];

static struct lock log_lock = LOCK_INIT(LOCK_LOG);
static char waiting[WAITING_SIZE]; /* under log_lock */
static size_t waiting_used;        /* written under log_lock */
static uint32_t waiting_lost;
static bool flushing;

static bool identify(int fd, dev_t *device, ino_t *inode)
{
    struct stat status;
    if (sys_call2(SYS_fstat, fd, &status) != 0)
        return false;
    *device = status.st_dev;
    *inode = status.st_ino;
    return true;
}

static void remember_standard_error(void)
{
    standard_error.open = identify(STDERR_FD, &standard_error.device, &standard_error.inode);
    standard_error.known = true;
}

static bool is_standard_error(int fd)
{
    dev_t device;
    ino_t inode;
    return standard_error.open && identify(fd, &device, &inode) &&
           device == standard_error.device && inode == standard_error.inode;
}

bool log_thread_has_descriptors(void)
{
    /* Most processes have none: they are spared the system call. */
    if (load_relaxed(&detached_tids[0]) == 0)
        return false;
    uint32_t tid = (uint32_t)sys_tid();
    for (int i = 0; i < DETACHED_MAX; i++)
        if (load_relaxed(&detached_tids[i]) == tid)
            return true;
    return false;
}

static bool may_write(int fd)
{
    struct pollfd poll = {.fd = fd, .events = POLLOUT};
    struct timespec at_once = {0};
    long ready = sys_call5(SYS_ppoll, &poll, 1, &at_once, 0, KERNEL_SIGSET_SIZE);
    return ready < 0 || (ready > 0 && poll.revents != 0);
}

/* Writes without waiting, and without the signals that a pipe with no reader (SIGPIPE) or a file
 * at RLIMIT_FSIZE (SIGXFSZ) sends to the calling thread, which is the app's, and a terminal whose
 * jobs in the background may not write (SIGTTOU; where it is blocked they may) to them all. */
static enum outcome write_unharmed(int fd, const char *data, size_t size)
{
    if (!may_write(fd))
        return LATER;
    uint64_t signals =
        UINT64_C(1) << (SIGPIPE - 1) | UINT64_C(1) << (SIGXFSZ - 1) | UINT64_C(1) << (SIGTTOU - 1);
    uint64_t mask = 0, pending = 0;
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &signals, &mask, KERNEL_SIGSET_SIZE);
    sys_call2(SYS_rt_sigpending, &pending, KERNEL_SIGSET_SIZE);
    long written = sys_write(fd, data, size);
    uint64_t raised = signals & ~pending;
    if ((written == -EPIPE || written == -EFBIG) && raised) {
        struct timespec at_once = {0};
        sys_call4(SYS_rt_sigtimedwait, &raised, 0, &at_once, KERNEL_SIGSET_SIZE);
    }
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, KERNEL_SIGSET_SIZE);
    return written == -EAGAIN ? LATER : DONE;
}

/* Descriptor 2 of the process, for a thread whose own table has none; or a negative errno. */
static int fetch_standard_error(void)
{
    long pidfd = sys_call2(SYS_pidfd_open, sys_pid(), 0);
    if (pidfd < 0)
        return (int)pidfd;
    long fd = sys_call3(SYS_pidfd_getfd, pidfd, STDERR_FD, 0);
    sys_close((int)pidfd);
    return (int)fd;
}

static enum outcome write_to_standard_error(const char *data, size_t size)
{
    if (!log_thread_has_descriptors())
        return is_standard_error(STDERR_FD) ? write_unharmed(STDERR_FD, data, size) : DONE;
    int fd = fetch_standard_error();
    if (fd == -EBADF) /* the app has closed it */
        return DONE;
    if (fd < 0)
        return LATER;
    enum outcome outcome = is_standard_error(fd) ? write_unharmed(fd, data, size) : DONE;
    sys_close(fd);
    return outcome;
}

static void keep(const char *data, size_t size)
{
    lock_acquire(&log_lock);
    if (size <= WAITING_SIZE - waiting_used) {
        memcpy(waiting + waiting_used, data, size);
        store_relaxed(&waiting_used, waiting_used + size);
    } else {
        add_relaxed(&waiting_lost, 1);
    }
    lock_release(&log_lock);
}

static size_t first_waiting_line(char line[LINE_SIZE])
{
    lock_acquire(&log_lock);
    size_t most = MIN_OF(waiting_used, (size_t)LINE_SIZE);
    const char *end = memchr(waiting, '\n', most);
    size_t size = end ? (size_t)(end - waiting) + 1 : most;
    memcpy(line, waiting, size);
    lock_release(&log_lock);
    return size;
}

static void remove_waiting(size_t size)
{
    lock_acquire(&log_lock);
    memmove(waiting, waiting + size, waiting_used - size);
    store_relaxed(&waiting_used, waiting_used - size);
    lock_release(&log_lock);
}

static __attribute__((noinline)) void flush_waiting(void)
{
    if (__atomic_exchange_n(&flushing, true, __ATOMIC_ACQUIRE))
        return;
    char line[LINE_SIZE];
    size_t size;
    while ((size = first_waiting_line(line)) != 0) {
        if (write_to_standard_error(line, size) == LATER)
            break;
        remove_waiting(size);
    }
    uint32_t lost = size == 0 ? load_relaxed(&waiting_lost) : 0;
    if (lost) {
        size = format(line, sizeof(line), "libagent: warn: lines that were lost: %u\n", lost);
        if (write_to_standard_error(line, size) == DONE)
            __atomic_fetch_sub(&waiting_lost, lost, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&flushing, false, __ATOMIC_RELEASE);
}

static bool something_waits(void)
{
    return load_relaxed(&waiting_used) != 0 || load_relaxed(&waiting_lost) != 0;
}

static void put_to_standard_error(const char *data, size_t size)
{
    if (!standard_error.known)
        remember_standard_error();
    if (something_waits())
        flush_waiting();
    if (something_waits() || write_to_standard_error(data, size) == LATER)
        keep(data, size);
}

void log_bar_file(bool barred)
{
    store_relaxed(&is_barred, barred);
}

static void put_to_file(const char *data, size_t size)
{
    if (unlikely(load_relaxed(&is_barred)) && log_thread_has_descriptors())
        return;
    /* Without O_NONBLOCK a fifo that nobody reads would hold us up. */
    int fd = sys_open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                      0600);
    if (fd >= 0) {
        write_unharmed(fd, data, size);
        sys_close(fd);
    } else if (!__atomic_exchange_n(&path_failure_said, true, __ATOMIC_RELAXED)) {
        char line[LINE_SIZE];
        size_t length = format(line, sizeof(line),
                               "libagent: error: LIBAGENT_LOG_FILE %.*s cannot be opened "
                               "(errno %d): log lines are lost\n",
                               LINE_SIZE / 2, log_path, -fd);
        put_to_standard_error(line, length);
    }
}

void log_start(enum log_level level, const char *path)
{
    store_relaxed(&level_in_force, level);
    log_path[0] = 0;
    if (path) /* the app may change its folder */
        (void)!sys_absolute(path, log_path, sizeof(log_path));
    path_failure_said = false;
    /* A later start may come when the app has another file there, or by a thread that has none. */
    if (!standard_error.known)
        remember_standard_error();
}

/* Several processes may share a file, and nobody looks at it when it is written. */
static size_t stamp(char *out, size_t size)
{
    char seconds[UTC_TIME_SIZE];
    uint64_t now = clock_realtime_ns();
    utc_time(seconds, now);
    return format(out, size, "%s.%03uZ %d ", seconds, (unsigned)(now % NS_PER_SEC / NS_PER_MS),
                  sys_pid());
}

/* Has this text been said before, in this process or before its fork? From now on it has. Told by
 * their hashes; what has no room is said each time. */
static bool was_said(const char *text)
{
    static uint64_t said[SAID_MAX];
    uint64_t hash = 1;
    for (; *text; text++)
        hash = hash_mix(hash, (unsigned char)*text);
    for (int i = 0; i < SAID_MAX; i++) {
        uint64_t before = 0;
        if (__atomic_compare_exchange_n(&said[i], &before, hash, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return false;
        if (before == hash)
            return true;
    }
    return false;
}

void log_line(enum log_level level, bool once, const char *pattern, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > load_relaxed(&level_in_force))
        return;
    char line[LINE_SIZE];
    size_t start = log_path[0] ? stamp(line, sizeof(line)) : 0;
    start += format(line + start, sizeof(line) - start, "libagent: %s: ", names[level]);
    va_list list;
    va_start(list, pattern);
    size_t used = start + format_list(line + start, sizeof(line) - start, pattern, list);
    va_end(list);
    if (once && was_said(line + start))
        return;
    used = start + make_printable(line + start, used - start);
    line[used++] = '\n'; /* in the place of the final 0 */
    if (log_path[0])
        put_to_file(line, used);
    else
        put_to_standard_error(line, used);
}

void log_plain(const char *text)
{
    /* In pieces that a pipe takes whole or not at all, cut behind a newline where there is one. */
    for (size_t left = strlen(text); left != 0;) {
        size_t piece = MIN_OF(left, (size_t)LINE_SIZE);
        while (piece < left && piece > 0 && text[piece - 1] != '\n')
            piece--;
        if (piece == 0)
            piece = LINE_SIZE;
        put_to_standard_error(text, piece);
        text += piece;
        left -= piece;
    }
}

void log_thread_is_detached(void)
{
    uint32_t tid = (uint32_t)sys_tid();
    for (int i = 0; i < DETACHED_MAX; i++) {
        uint32_t expected = load_relaxed(&detached_tids[i]);
        /* The place of one that has ended is free. */
        bool is_free = expected == 0 || sys_call3(SYS_tgkill, sys_pid(), expected, 0) != 0;
        if (expected == tid)
            return;
        if (is_free && __atomic_compare_exchange_n(&detached_tids[i], &expected, tid, false,
                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    }
}

void log_flush(void)
{
    if (something_waits())
        flush_waiting();
}

bool log_stderr_is_terminal(void)
{
    char settings[256]; /* struct termios of the kernel: 36 bytes on the processors supported */
    return is_standard_error(STDERR_FD) && sys_call3(SYS_ioctl, STDERR_FD, TCGETS, settings) == 0;
}

void log_reset_in_child(void)
{
    lock_reset(&log_lock);
    waiting_used = 0;
    waiting_lost = 0;
    flushing = false;
    memset(detached_tids, 0, sizeof(detached_tids));
}
