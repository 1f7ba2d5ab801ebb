#include "agent/unwind/unwinder.h"

#include <string.h>
#include <ucontext.h>

#include "agent/base/stats.h"

const struct unwinder unwinder_cfi = {.name = "cfi", .walk = unwind_walk};
const struct unwinder *unwinder = &unwinder_cfi;

static const struct unwinder *const choices[] = {
    [UNWINDER_AUTO] = &unwinder_cfi,
    [UNWINDER_CFI] = &unwinder_cfi,
    [UNWINDER_FP] = &unwinder_frame_pointers,
    [UNWINDER_LIBUNWIND] = &unwinder_libunwind,
};

/* A thread that is gone may hold its mutex. */
static bool libunwind_is_lost;

void unwinder_start(enum unwinder_id choice)
{
    const struct unwinder *chosen = choices[choice];
    bool usable = !(chosen == &unwinder_libunwind && libunwind_is_lost) &&
                  (!chosen->start || chosen->start() == 0);
    unwinder = usable ? chosen : &unwinder_cfi;
}

const struct unwinder *unwinder_choose(const void *ucontext)
{
    /* 1 to 31, but for SIGKILL and SIGSTOP. Of the others libc keeps some back, ours among them. */
    static const uint64_t all = 0x7ffbfeff;
    uint64_t mask;
    memcpy(&mask, &((const ucontext_t *)ucontext)->uc_sigmask, sizeof(mask));
    if (unwinder != &unwinder_libunwind || (mask & all) != all)
        return unwinder;
    stats_add(STAT_UNWIND_NOT_LIBUNWIND, 1);
    return &unwinder_cfi;
}

void unwinder_reset_in_child(void)
{
    libunwind_is_lost = true;
    if (unwinder == &unwinder_libunwind)
        unwinder = &unwinder_cfi;
}
