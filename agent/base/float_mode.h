/* float_mode.h: the floating-point unit's mode and flags are the app's, like errno: what the agent
 * computes in a thread of the app leaves no flag there, meets none of its traps (division by zero,
 * "inexact": the app would end by SIGFPE), and does not round as the app wants it. In handlers the
 * kernel does the same.
 *
 * A program on x86-64 may have the processor check the alignment of what it reads (EFLAGS.AC),
 * which we and libc do not keep to: it would end by SIGBUS. In handlers the kernel leaves that as
 * it is.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_FLOAT_MODE_H
#define LIBAGENT_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

#if defined(__x86_64__)

/* The processor's own mode: no traps, to nearest. */
static const uint32_t float_mode_plain = 0x1f80;

typedef struct {
    uint32_t mxcsr;
    bool is_aligned;
} float_mode;

static const uint64_t alignment_check_flag = 1 << 18;

/* True where they were on. What needs it is a call, as below. In handlers the kernel puts back what
 * was. SIG. */
static inline bool alignment_checks_off(void)
{
    uint64_t flags = __builtin_ia32_readeflags_u64();
    if (likely(!(flags & alignment_check_flag)))
        return false;
    __builtin_ia32_writeeflags_u64(flags & ~alignment_check_flag);
    __asm__ volatile("" : : : "memory");
    return true;
}

static inline void float_mode_leave(float_mode mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode.mxcsr) : "memory");
    if (unlikely(mode.is_aligned))
        __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | alignment_check_flag);
}

/* Returns what float_mode_leave puts back. What computes in between is a call, so that the compiler
 * moves nothing of it over this one. */
static inline float_mode float_mode_enter(void)
{
    float_mode mode = {.is_aligned = alignment_checks_off()};
    __asm__ volatile("stmxcsr %0" : "=m"(mode.mxcsr) : : "memory");
    float_mode_leave((float_mode){float_mode_plain, false});
    return mode;
}

#elif defined(__aarch64__)

/* The control register (0: no traps, to nearest), and the one of flags. */
typedef struct {
    uint64_t control, flags;
} float_mode;

static inline void float_mode_leave(float_mode mode)
{
    __asm__ volatile("msr fpcr, %0\n\t"
                     "msr fpsr, %1"
                     :
                     : "r"(mode.control), "r"(mode.flags)
                     : "memory");
}

static inline float_mode float_mode_enter(void)
{
    float_mode mode;
    __asm__ volatile("mrs %0, fpcr\n\t"
                     "mrs %1, fpsr"
                     : "=r"(mode.control), "=r"(mode.flags)
                     :
                     : "memory");
    float_mode_leave((float_mode){0, 0});
    return mode;
}

static inline bool alignment_checks_off(void)
{
    return false;
}

#endif

#endif
