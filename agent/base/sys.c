#include "agent/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/base/signal_sets.h"

#ifdef LIBAGENT_TEST
bool (*sys_override)(long number, const long args[6], long *result);
#endif

int sys_open(const char *path, int flags, unsigned mode)
{
    long fd;
    do
        fd = sys_call4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
    while (fd == -EINTR);
    return (int)fd;
}

void sys_close(int fd)
{
    /* Never repeated: on Linux the descriptor is gone even when close was interrupted. */
    sys_call1(SYS_close, fd);
}

static long transfer(long number, int fd, char *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        long moved = sys_call3(number, fd, data + done, size - done);
        if (moved == -EINTR)
            continue;
        if (moved < 0 && done == 0)
            return moved;
        if (moved <= 0)
            break;
        done += (size_t)moved;
    }
    return (long)done;
}

long sys_read(int fd, void *data, size_t size)
{
    return transfer(SYS_read, fd, data, size);
}

long sys_write(int fd, const void *data, size_t size)
{
    return transfer(SYS_write, fd, (char *)(uintptr_t)data, size);
}

long sys_read_file(const char *path, char *data, size_t size)
{
    if (size == 0)
        return -EINVAL;
    data[0] = 0;
    /* Without O_NONBLOCK a fifo that nobody writes to would hold us up. */
    int fd = sys_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    struct stat status;
    long length = sys_call2(SYS_fstat, fd, &status);
    if (length == 0)
        length = S_ISREG(status.st_mode) ? sys_read(fd, data, size - 1) : -EISDIR;
    sys_close(fd);
    data[length > 0 ? length : 0] = 0;
    return length;
}

long sys_readlink(const char *path, char *target, size_t size)
{
    return sys_call4(SYS_readlinkat, AT_FDCWD, path, target, size);
}

int sys_absolute(const char *path, char *out, size_t size)
{
    size_t used = 0, length = strlen(path);
    int error = 0;
    if (path[0] != '/') {
        long got = sys_call2(SYS_getcwd, out, size);
        error = got < 0 ? (int)got : out[0] != '/' ? -ENOENT : 0; /* "(unreachable)/..." */
        if (!error) {
            used = (size_t)got - (got == 2); /* a '/' takes the 0's place, but that of the root */
            out[used - 1] = '/';
        }
    }
    if (used + length >= size) {
        error = -ENAMETOOLONG;
        used = 0;
    }
    length = MIN_OF(length, size - used - 1);
    memcpy(out + used, path, length);
    out[used + length] = 0;
    return error;
}

void *sys_map(size_t size)
{
    long result = sys_call6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return result < 0 && result > -4096 ? NULL : (void *)(uintptr_t)result;
}

void sys_unmap(void *data, size_t size)
{
    if (data)
        sys_call2(SYS_munmap, (uintptr_t)data, size);
}

bool sys_readable(uintptr_t address)
{
    /* Aligned down, so that the 8 bytes that the kernel copies stay within one page. */
    uintptr_t set = ALIGN_DOWN(address, (uintptr_t)8);
    /* EINVAL (the `how`) says that the copy before it went well; a null set is none at all: 0. */
    return sys_call4(SYS_rt_sigprocmask, ~0, set, 0, 8) == -EINVAL;
}

unsigned long sys_auxv(unsigned long type)
{
    int before = errno;
    unsigned long value = getauxval(type);
    errno = before;
    return value;
}

int sys_pid(void)
{
    return (int)sys_call0(SYS_getpid);
}

int sys_tid(void)
{
    return (int)sys_call0(SYS_gettid);
}

void sys_default_action(int signal)
{
    static const uint64_t by_default[4]; /* the kernel's struct sigaction: SIG_DFL, no flags */
    uint64_t bit = SIGNAL_BIT(signal);
    sys_call4(SYS_rt_sigaction, signal, by_default, NULL, sizeof(bit));
    sys_call3(SYS_tgkill, sys_pid(), sys_tid(), signal);
    sys_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, NULL, sizeof(bit));
}

int sys_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                .tv_nsec = (long)(deadline_ns % 1000000000u)};
    return (int)sys_call6(SYS_futex, (long)(uintptr_t)word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                          deadline_ns ? (long)(uintptr_t)&deadline : 0, 0,
                          (long)FUTEX_BITSET_MATCH_ANY);
}

void sys_futex_wake(const uint32_t *word, int count)
{
    sys_call3(SYS_futex, (uintptr_t)word, FUTEX_WAKE_PRIVATE, count);
}
