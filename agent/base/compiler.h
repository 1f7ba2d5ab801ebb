/* compiler.h: attributes and small macros.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_COMPILER_H
#define LIBAGENT_COMPILER_H

#include <stddef.h>

#define likely(x)         __builtin_expect(!!(x), 1)
#define unlikely(x)       __builtin_expect(!!(x), 0)
#define MUST_USE          __attribute__((warn_unused_result))
#define COLD              __attribute__((cold, noinline))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define WEAK              __attribute__((weak))
#define INITIAL_EXEC      __attribute__((tls_model("initial-exec")))
#define EXPORT            __attribute__((visibility("default")))
/* Of a variable that the start of each process touches, also of one that is not profiled: it lies
 * among the few initialised ones, on a page that the loader has made the process's own, and not on
 * one more of a megabyte of others (a fault of 1 us in every exec). */
#define AT_START __attribute__((section(".data.start")))
/* For variables that hot code reads: -fvisibility says nothing of what is only declared, which is
 * then reached through a table. */
#define HIDDEN     __attribute__((visibility("hidden")))
#define CACHE_LINE 64

#define ARRAY_SIZE(a)    (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b)     ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b)     ((a) > (b) ? (a) : (b))
#define ALIGN_UP(x, a)   (((x) + (a)-1) & ~((__typeof__(x))(a)-1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a)-1))
#define PAGE_SIZE_MIN    4096u

/* Atomics: the orders that a reader must know are spelled out at the call. */
#define load_relaxed(p)        __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)        __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_relaxed(p, v)    __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v)    __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define add_relaxed(p, v)      __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)

/* Orders all before it with all behind it, for every thread. (Thread sanitizer knows no fences; to
 * it the same is said by an exchange.) */
static inline void full_fence(void)
{
#if defined(__SANITIZE_THREAD__)
    static int word;
    __atomic_exchange_n(&word, 0, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
