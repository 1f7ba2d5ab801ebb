/* unwinder.h: the ways to walk a stack, one small table of functions each, one file each.
 *
 *   cfi        call frame information (unwind.c); the default, and what the others fall back to
 *   fp         frame records (frame_pointers.c)
 *   libunwind  that library, where it is installed (libunwind_walk.c)
 *
 * Owns: the choice. Context: `walk` SIG, HOOK, inside a thread guard; the rest INIT. Locks: none
 * that is waited for in a walk. */
#ifndef LIBAGENT_UNWINDER_H
#define LIBAGENT_UNWINDER_H

#include "agent/base/options.h"
#include "agent/unwind/unwind.h"

struct unwinder {
    const char *name; /* as LIBAGENT_UNWINDER has it */
    /* After unwind_start. 0, or a negative errno and a line in the log: it cannot be used here.
     * NULL: nothing to do. */
    int (*start)(void);
    /* As unwind_walk. */
    uint32_t (*walk)(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation);
};

extern HIDDEN const struct unwinder unwinder_cfi, unwinder_frame_pointers, unwinder_libunwind;
/* The one in use. */
extern HIDDEN const struct unwinder *unwinder;

/* INIT. Where the choice cannot be used, cfi is. */
void unwinder_start(enum unwinder_id choice);
/* For a sample in a handler, whose third argument this is: where the interrupted code blocks all
 * signals it may be in libunwind, on the program's own account, and hold a lock there. SIG. */
const struct unwinder *unwinder_choose(const void *ucontext);
static inline const struct unwinder *unwinder_inside_handler(const void *ucontext)
{
    return likely(unwinder == &unwinder_cfi) ? &unwinder_cfi : unwinder_choose(ucontext);
}
/* Is the calling thread in libunwind's start, which makes a pipe? Any context. */
bool unwinder_refuses_pipe(void) MUST_USE;
/* In a fork child of a parent with other threads, which may have been in a walk: libunwind, whose
 * locks may be held, is left for cfi. */
void unwinder_reset_in_child(void);

#endif
