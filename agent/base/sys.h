/* sys.h: system calls, made without libc.
 *
 * A raw call returns the kernel's value (negative errno on failure) and never touches errno,
 * needs no symbol of libc, and is async-signal-safe: so everything that runs in the app's
 * threads uses these. In the test flavour every call first asks `sys_override`, so that tests
 * inject faults (one place, by call number) instead of hoping for them.
 *
 * Owns: nothing (test flavour: sys_override). Context: any. Locks: none. */
#ifndef LIBAGENT_SYS_H
#define LIBAGENT_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "agent/base/compiler.h"

#ifdef LIBAGENT_TEST
/* Returns true and sets *result when the call is answered here. Set it before threads start. */
extern bool (*sys_override)(long number, const long args[6], long *result);
#endif

#ifdef __clang_analyzer__
/* The analyzer does not see that the kernel writes where a pointer points; of a function that it
 * cannot look into it assumes so. */
long sys_raw6(long n, long a, long b, long c, long d, long e, long f);
#else
static inline long sys_raw6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "processor not supported"
#endif
}
#endif

static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
#ifdef LIBAGENT_TEST
    long result;
    if (sys_override && sys_override(n, (const long[6]){a, b, c, d, e, f}, &result))
        return result;
#endif
    return sys_raw6(n, a, b, c, d, e, f);
}

#define SYS_ARG_(x)           ((long)(x))
#define sys_call0(n)          sys_call6(n, 0, 0, 0, 0, 0, 0)
#define sys_call1(n, a)       sys_call6(n, SYS_ARG_(a), 0, 0, 0, 0, 0)
#define sys_call2(n, a, b)    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), 0, 0, 0, 0)
#define sys_call3(n, a, b, c) sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), 0, 0, 0)
#define sys_call4(n, a, b, c, d)                                                                   \
    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), SYS_ARG_(d), 0, 0)
#define sys_call5(n, a, b, c, d, e)                                                                \
    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), SYS_ARG_(d), SYS_ARG_(e), 0)

/* Opens `path` close-on-exec. Returns a descriptor or a negative errno. */
int sys_open(const char *path, int flags, unsigned mode) MUST_USE;
void sys_close(int fd);
/* Reads or writes `size` bytes, repeating on EINTR and after a short transfer; fewer only at the
 * end of the file or where an error stops it after some bytes. Bytes done, or a negative errno. */
long sys_read(int fd, void *data, size_t size) MUST_USE;
long sys_write(int fd, const void *data, size_t size) MUST_USE;
/* Reads the file `path` into `data` (at most `size` - 1 bytes, always ends it with 0).
 * Returns the number of bytes or a negative errno; -EISDIR for what is no regular file, as others
 * may never come to an end. */
long sys_read_file(const char *path, char *data, size_t size) MUST_USE;
/* What the link `path` leads to, without a 0 at its end. Bytes written, or a negative errno. */
long sys_readlink(const char *path, char *target, size_t size) MUST_USE;
/* `path`, behind the working folder where it is relative. 0, or a negative errno, and `out` is the
 * path as it was, cut: -ENAMETOOLONG, -ERANGE, -ENOENT where that folder is gone or outside of our
 * root. */
int sys_absolute(const char *path, char *out, size_t size) MUST_USE;
/* Anonymous private memory, zero filled, not reserved. NULL on failure. */
void *sys_map(size_t size) MUST_USE;
void sys_unmap(void *data, size_t size);
/* True when the kernel can read the byte at `address`; never faults (one rt_sigprocmask with an
 * invalid `how`: the kernel copies the set before it looks at `how`, the probe of abseil). */
bool sys_readable(uintptr_t address);
/* What the kernel told this process at its start, 0: nothing. libc's getauxval, but errno stays. */
unsigned long sys_auxv(unsigned long type);
int sys_pid(void);
int sys_tid(void);
/* In the handler of a signal whose default action is the end of the process: does that as the
 * kernel would have, so that the exit status tells it. libc's functions may want data of the
 * thread. */
void sys_default_action(int signal);
/* Waits while *word == expected, until the CLOCK_MONOTONIC time (0: for ever). 0, or negative
 * errno (-ETIMEDOUT, -EAGAIN, -EINTR). */
int sys_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns);
void sys_futex_wake(const uint32_t *word, int count);

#endif
