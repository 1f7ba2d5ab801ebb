#include "test/unwind/judge.h"

#include <string.h>

#include "agent/unwind/cfi.h"
#include "agent/unwind/modules.h"
#include "test/unwind/differences.h"
#include "test/unwind/shadow_stack.h"
#include "test/unwind/tracee_modules.h"
#include "test/unwind/walkers.h"

static struct frames ours, theirs, truth;
static struct frame_places places;
/* Ours at the last stop in code that jumps, whose caller is where it will land. */
static struct frames foretold;
static uint64_t jumps_from; /* that code's function; 0: none */
/* A lost shadow stack is found again where both walks agree, but not before the function is left
 * that changed stacks: the stack that it goes to is not yet a called one's. */
static uint64_t lost_in = UINT64_MAX;

void judge_modules(pid_t pid)
{
    if (tracee_modules_read(pid))
        walkers_forget();
}

/* Code that goes over to another context by itself (longjmp, setcontext) has rules that tell of the
 * context it goes to, as if that had called it: no stack of calls can judge that. */
static bool goes_to_another_context(uintptr_t pc)
{
    const struct module *m = modules_find(modules_list, pc);
    struct cfi_row row;
    return m && cfi_row_at(m->object, pc - m->bias, &row) == 0 && !row.signal_frame &&
           row.kind[UNWIND_SP] != CFI_SAME;
}

/* Whether libunwind differs from ours only as long as its cache is not emptied. */
static bool cache_was_wrong(const struct tracee *tracee)
{
    static struct frames again;
    if (same_frames(&ours, &theirs))
        return false;
    walkers_forget();
    walk_theirs(tracee, &again, &places);
    return same_frames(&ours, &again);
}

/* Whether what the function at the pc returns to is not what called it: to the function's end,
 * where it has already left the stack. */
static bool was_overwritten(const struct tracee *tracee)
{
    static uint64_t overwritten_in;
    uint64_t function = tracee_place(tracee->regs.rip).start;
    if (!shadow_is_intact(tracee))
        overwritten_in = function;
    return function && function == overwritten_in;
}

/* The first stop out of the function that jumped: is it where ours said that it would be? */
static void judge_landing(void)
{
    jumps_from = 0;
    uint32_t callers = ours.count - 1;
    differences_landing(foretold.count == ours.count + 1 && foretold.pcs[1] + 1 == ours.pcs[0] &&
                        memcmp(foretold.pcs + 2, ours.pcs + 1, callers * sizeof(uint64_t)) == 0);
}

void judge_step(const struct tracee *tracee)
{
    walk_ours(tracee, &ours);
    walk_theirs(tracee, &theirs, &places);
    bool jumps = goes_to_another_context(tracee->regs.rip);
    bool known = shadow_is_known() && !jumps;
    uint64_t function = 0;
    if (known)
        shadow_frames(tracee, &truth);
    else
        function = tracee_place(tracee->regs.rip).start;
    if (!shadow_is_known() && lost_in == UINT64_MAX)
        lost_in = function;
    enum situation situation = ORDINARY;
    if (jumps)
        situation = JUMPING;
    else if (!known && function && function == lost_in)
        situation = SWITCHING;
    else if (known && !same_frames(&ours, &truth) && was_overwritten(tracee))
        situation = OVERWRITTEN;
    else if (cache_was_wrong(tracee))
        situation = CACHED;
    if (jumps_from && tracee_place(tracee->regs.rip).start != jumps_from)
        judge_landing();
    enum verdict verdict = differences_judge(&ours, &theirs, known ? &truth : NULL, situation);
    if (jumps && verdict != SAME) {
        foretold = ours;
        jumps_from = function;
    }
    if (shadow_is_known())
        return;
    if (verdict == SAME && function != lost_in && (ours.flags & UNWIND_COMPLETE)) {
        shadow_begin_from(&theirs, &places);
        lost_in = UINT64_MAX;
    }
}

void judge_gap(void)
{
    shadow_lose();
    lost_in = 0; /* it may begin anywhere */
    jumps_from = 0;
}

void judge_sample(const struct tracee *tracee)
{
    walk_ours(tracee, &ours);
    walk_theirs(tracee, &theirs, &places);
    enum situation situation = ORDINARY;
    if (goes_to_another_context(tracee->regs.rip))
        situation = JUMPING;
    else if (cache_was_wrong(tracee))
        situation = CACHED;
    differences_judge(&ours, &theirs, NULL, situation);
}
