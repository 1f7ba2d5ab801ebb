/* stack_purity.h: whether an interrupted thread may hold a lock of a system object, told by the
 * frames of its stack. It can hold none where, from the innermost frame on, the app's frames are
 * followed by system ones (libc's start code), and after those by one more at most (_start). See
 * UNWIND_CLEAN.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_STACK_PURITY_H
#define LIBAGENT_STACK_PURITY_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

enum purity { PURE_APP, PURE_SYSTEM, PURE_LAST, IMPURE };

/* What the next frame makes of it: `system` tells that its object is_system, `known` that it is in
 * an object at all, `innermost` that it is the first. */
static inline enum purity purity_after(enum purity before, bool system, bool known, bool innermost)
{
    if (before == IMPURE || before == PURE_LAST || !known || (system && innermost))
        return IMPURE;
    if (before == PURE_APP && system)
        return PURE_SYSTEM;
    if (before == PURE_SYSTEM && !system)
        return PURE_LAST;
    return before;
}

/* UNWIND_CLEAN or 0, for a walk that is over; the words that a whole walk over one stack read are
 * adopted by its home stack. `one_stack`: the walk's reader, NULL where it left that stack. */
static inline uint32_t purity_flag(enum purity purity, uint32_t flags, uint32_t count,
                                   struct stack_reader *one_stack)
{
    bool whole = (flags & UNWIND_COMPLETE) && !(flags & UNWIND_INTERRUPTED);
    bool adopted = whole && one_stack && stack_reader_adopt(one_stack);
    return adopted && purity != IMPURE && count ? UNWIND_CLEAN : 0;
}

#endif
