#include "agent/unwind/unwinder.h"

const struct unwinder unwinder_cfi = {.name = "cfi", .walk = unwind_walk};
const struct unwinder *unwinder = &unwinder_cfi;

static const struct unwinder *const choices[] = {
    [UNWINDER_AUTO] = &unwinder_cfi,
    [UNWINDER_CFI] = &unwinder_cfi,
    [UNWINDER_FP] = &unwinder_frame_pointers,
    [UNWINDER_LIBUNWIND] = &unwinder_libunwind,
};

void unwinder_start(enum unwinder_id choice)
{
    const struct unwinder *chosen = choices[choice];
    bool usable = !chosen->start || chosen->start() == 0;
    unwinder = usable ? chosen : &unwinder_cfi;
}

void unwinder_before_fork(void)
{
    if (unwinder->before_fork)
        unwinder->before_fork();
}

void unwinder_after_fork(bool in_child)
{
    if (unwinder->after_fork)
        unwinder->after_fork(in_child);
}
