/* unwind_arch.h: what the walk needs from the processor's own file.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_UNWIND_ARCH_H
#define LIBAGENT_UNWIND_ARCH_H

#include "agent/unwind/cfi.h"
#include "agent/unwind/rule_cache.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

/* The rule (kind, slot, offset) of a row that holds at `vaddr`; RULE_FULL where 24 bits cannot
 * say it. */
uint64_t arch_pack(const struct object *object, const struct cfi_row *row, uint64_t vaddr);

/* The rule at code[at] of a function of `size` bytes whose FDE says nothing of its pushes:
 * hand-written assembly, as that of libc's multi-precision arithmetic. RULE_NONE: it has none. */
uint64_t arch_bare_rule(const uint8_t *code, size_t at, size_t size);

/* One step by a rule that is RULE_SP, RULE_FP or RULE_FP_DEREF: the stack pointer, frame pointer
 * and pc of the caller. False when the stack cannot be read. */
static inline bool arch_step(uint64_t rule, struct stack_reader *reader, uintptr_t *sp,
                             uintptr_t *fp, uintptr_t *pc)
{
#if defined(__x86_64__)
    uintptr_t cfa = (rule_kind(rule) == RULE_SP ? *sp : *fp) + (uintptr_t)rule_offset(rule);
    uint32_t slot = rule_slot(rule);
    uintptr_t caller_fp = *fp;
    if (unlikely(rule_kind(rule) == RULE_FP_DEREF)) {
        if (!stack_read(reader, *fp, &caller_fp) || !stack_read(reader, cfa, &cfa))
            return false;
    }
    if (!stack_read(reader, cfa - 8, pc) ||
        (slot && !stack_read(reader, cfa - 8 * (uintptr_t)slot, &caller_fp)))
        return false;
    *sp = cfa;
    *fp = caller_fp;
    return true;
#endif
}

#endif
