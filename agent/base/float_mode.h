/* float_mode.h: the floating-point unit's mode and flags are the app's, like errno: what the agent
 * computes in a thread of the app leaves no flag there, meets none of its traps (division by zero,
 * "inexact": the app would end by SIGFPE), and does not round as the app wants it. In handlers the
 * kernel does the same.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_FLOAT_MODE_H
#define LIBAGENT_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)

/* The processor's own mode: no traps, to nearest. */
static const uint32_t float_mode_plain = 0x1f80;

typedef uint32_t float_mode;

static inline void float_mode_leave(float_mode mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}

/* Returns what float_mode_leave puts back. What computes in between is a call, so that the compiler
 * moves nothing of it over this one. */
static inline float_mode float_mode_enter(void)
{
    float_mode mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    float_mode_leave(float_mode_plain);
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

#endif

#endif
