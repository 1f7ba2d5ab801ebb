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

static inline void float_mode_leave(uint32_t mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}

/* Returns what float_mode_leave puts back. What computes in between is a call, so that the compiler
 * moves nothing of it over this one. */
static inline uint32_t float_mode_enter(void)
{
    uint32_t mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    float_mode_leave(float_mode_plain);
    return mode;
}

#else

static inline void float_mode_leave(uint32_t mode)
{
    (void)mode;
}
static inline uint32_t float_mode_enter(void)
{
    return 0;
}

#endif

#endif
