/* stand_in_walk.h: unwind_walk for suites that ask what becomes of a stack, not how it is found.
 * It is defined here: a suite includes this, and the real one is not linked then. */
#ifndef LIBAGENT_TEST_STAND_IN_WALK_H
#define LIBAGENT_TEST_STAND_IN_WALK_H

#include "agent/base/options.h"
#include "agent/unwind/unwind.h"
#include "test/demand.h"

/* What the next walks give: frames that all are `walk_site`, of this generation. */
static __thread uint64_t walk_site = 1000;
static uint32_t walk_frames = 1;
static uint32_t walk_flags = UNWIND_COMPLETE;
enum { WALK_GENERATION = 3, WALK_PROBED = 4096 };

uint32_t unwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation)
{
    (void)regs;
    (void)exact;
    demand(max == options.max_frames);
    /* In a guard, or what is walked could go away. (A thread that is not libc's has it elsewhere.)
     */
    demand(!thread_tls.slot || thread_tls.slot->guard & 1);
    home->low -= WALK_PROBED;
    for (uint32_t i = 0; i < walk_frames; i++)
        pcs[i] = walk_site;
    *flags = walk_flags;
    *generation = WALK_GENERATION;
    return walk_frames;
}

/* What reads threads from outside, and the walk by frame records, are linked all the same. */
uint32_t unwind_walk_copy(struct unwind_regs *regs, uint64_t valid, bool exact,
                          const struct stack_copy *copy, uint64_t *pcs, uint32_t max,
                          uint32_t *flags, uint32_t *generation)
{
    struct unwind_stack home = {0, 0};
    (void)valid;
    (void)copy;
    return unwind_walk(regs, exact, &home, pcs, max, flags, generation);
}

void unwind_behind_record(struct unwind_regs *regs)
{
    (void)regs;
}

const void *unwind_before_handlers(const void *ucontext)
{
    return ucontext;
}

void unwind_regs_from_context(struct unwind_regs *regs, const void *ucontext)
{
    (void)regs;
    demand(ucontext != NULL);
}

#endif
