/* jump_hooks.c: longjmp and its like, by which a handler may be left that has the agent's signal in
 * its mask (agent/sched/sampling_signal.h). A jump to the next definition: that of fortified
 * programs compares its own frame with the one it goes to. */
#include "agent/agent.h"
#include "shim/shim.h"

/* Not declared noreturn: compilers make no tail call of what does not return. Every libc has
 * longjmp. */
/* NOLINTBEGIN(bugprone-macro-parentheses, clang-analyzer-core.CallAndMessage) */
#define JUMP_HOOK(name)                                                                            \
    void hooked_##name(void *environment, int value) __asm__(#name);                               \
    EXPORT void hooked_##name(void *environment, int value)                                        \
    {                                                                                              \
        void (*jump)(void *, int) = NEXT(name);                                                    \
        if (!jump)                                                                                 \
            jump = NEXT(longjmp);                                                                  \
        agent_before_jump(environment);                                                            \
        jump(environment, value);                                                                  \
    }

JUMP_HOOK(longjmp)
JUMP_HOOK(_longjmp)
JUMP_HOOK(siglongjmp)
JUMP_HOOK(__longjmp_chk)
/* NOLINTEND(bugprone-macro-parentheses, clang-analyzer-core.CallAndMessage) */
