/* unwind_reference.h: the same stack by libunwind, written as unwind_walk writes it, and the
 * comparison of the two. */
#ifndef LIBAGENT_TEST_UNWIND_REFERENCE_H
#define LIBAGENT_TEST_UNWIND_REFERENCE_H

#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

#include "agent/unwind/unwind.h"

#if defined(__has_feature)
#define ADDRESS_SANITIZER __has_feature(address_sanitizer)
#define THREAD_SANITIZER  __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZER 1
#else
#define ADDRESS_SANITIZER 0
#endif
#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZER 1
#else
#define THREAD_SANITIZER 0
#endif
#endif

enum { REFERENCE_MAX = 512 };

#if defined(__x86_64__)
#define CONTEXT_PC(context) ((context)->uc_mcontext.gregs[REG_RIP])
#define CONTEXT_SP(context) ((context)->uc_mcontext.gregs[REG_RSP])
#elif defined(__aarch64__)
#define CONTEXT_PC(context) ((context)->uc_mcontext.pc)
#define CONTEXT_SP(context) ((context)->uc_mcontext.sp)
#endif

struct frames {
    uint64_t pcs[REFERENCE_MAX];
    uint32_t count, flags, generation;
};

/* From a handler's third argument; async-signal-safe as far as libunwind is. */
void reference_walk(const ucontext_t *context, struct frames *frames);
void agent_walk(const ucontext_t *context, struct frames *frames);
/* Of the caller; its own frame has one pc in each, which may differ by some instructions. */
__attribute__((noinline)) void walk_here(struct frames *frames);
bool same_frames(const struct frames *a, const struct frames *b);

/* The home stack that agent_walk and walk_here use: set it in each thread of a test. */
extern __thread struct unwind_stack test_home;
void test_home_set(void);
/* "object+0x12 name" of an address. */
void print_address(FILE *out, uint64_t pc);
void print_frames(FILE *out, const char *title, const struct frames *frames);

#endif
