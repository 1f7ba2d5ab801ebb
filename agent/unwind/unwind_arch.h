/* unwind_arch.h: what the walk needs from the processor's own file.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_UNWIND_ARCH_H
#define LIBAGENT_UNWIND_ARCH_H

#include "agent/unwind/cfi.h"
#include "agent/unwind/rule_cache.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

/* A return address as it was before the function signed it (pointer authentication). */
static inline uintptr_t arch_return_address(uintptr_t saved)
{
#if defined(__aarch64__)
    if (unlikely(saved >> RULE_PC_BITS != 0)) {
        /* xpaclri, which knows how many bits an address has; nothing where nobody signs. */
        register uintptr_t x30 __asm__("x30") = saved;
        __asm__("hint #7" : "+r"(x30));
        return x30;
    }
#endif
    return saved;
}

/* The rule (kind, slot, offset) of a row that holds at `vaddr`; RULE_FULL where 24 bits cannot
 * say it. */
uint64_t arch_pack(const struct object *object, const struct cfi_row *row, uint64_t vaddr);

/* The rule at code[at] of a function of `size` bytes whose FDE says nothing of its pushes:
 * hand-written assembly, as that of libc's multi-precision arithmetic. RULE_NONE: it has none. */
uint64_t arch_bare_rule(const uint8_t *code, size_t at, size_t size);

/* For code without a rule: the caller's stack pointer and pc, where the code may have pushed
 * nothing: from the word on top of the stack, or the link register. The code from `code` up to the
 * pc can be read. False when there is none. */
bool arch_leaf_caller(struct stack_reader *reader, const struct unwind_regs *regs, uintptr_t code,
                      uintptr_t *sp, uintptr_t *pc);

#if defined(__x86_64__)
enum { ARCH_HAS_LINK = 0 };

/* The stack pointer behind a frame record is right, as records lie where the frame ends. */
static inline bool arch_place_sp(uint64_t rule, struct unwind_regs *regs)
{
    (void)rule;
    (void)regs;
    return true;
}

/* Tables tell all of the way back from a handler. */
static inline bool arch_is_signal_return(const struct stack_reader *reader, uintptr_t pc,
                                         bool exact)
{
    (void)reader;
    (void)pc;
    (void)exact;
    return false;
}

static inline bool arch_signal_return(struct stack_reader *reader, struct unwind_regs *regs)
{
    (void)reader;
    (void)regs;
    return false;
}
#elif defined(__aarch64__)
/* Calls put the return address in a register, which is the only place in a leaf. */
enum { ARCH_HAS_LINK = 1 };

/* A frame record lies anywhere in its frame, so behind one the stack pointer is known only from
 * the caller's rule and its own record, which the frame pointer points at. False: not even so. */
static inline bool arch_place_sp(uint64_t rule, struct unwind_regs *regs)
{
    uintptr_t slot = rule_slot(rule);
    if (rule_kind(rule) == RULE_SP)
        regs->r[UNWIND_SP] =
            regs->r[UNWIND_FP] + (slot ? 8 * slot - (uintptr_t)rule_offset(rule) : 0);
    return rule_kind(rule) != RULE_SP_ONLY && rule_kind(rule) != RULE_FULL;
}

/* Is `pc` on the kernel's way back from a handler, which its tables do not describe? (Where older
 * kernels' do, they lead past the interrupted function.) `exact`: an interrupted pc, else a return
 * address. */
bool arch_is_signal_return(const struct stack_reader *reader, uintptr_t pc, bool exact);
/* From there to the registers that were interrupted; false when the stack cannot be read. */
bool arch_signal_return(struct stack_reader *reader, struct unwind_regs *regs);
#endif

/* One step by a rule that is RULE_SP, RULE_FP, or the processor's own third kind: the stack
 * pointer, frame pointer and pc of the caller. False when the stack cannot be read. `link` is the
 * link register where it is known and still holds a return address, else 0.
 *
 * x86-64: the return address is at CFA - 8; the caller's rbp at CFA - 8 * slot, slot 0: unchanged.
 *
 * aarch64: RULE_SP and RULE_FP have a frame record (x29, x30) at CFA - 8 * slot, slot 0: where the
 * register points that the CFA hangs on, however large the frame. RULE_SP_ONLY has x30 alone at
 * CFA - 8 * slot, slot 0: in its register. */
static inline __attribute__((always_inline)) bool arch_step(uint64_t rule,
                                                            struct stack_reader *reader,
                                                            uintptr_t *sp, uintptr_t *fp,
                                                            uintptr_t *pc, uintptr_t link)
{
#if defined(__x86_64__)
    (void)link;
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
#elif defined(__aarch64__)
    uintptr_t base = rule_kind(rule) == RULE_FP ? *fp : *sp;
    uintptr_t cfa = base + (uintptr_t)rule_offset(rule);
    uint32_t slot = rule_slot(rule);
    uintptr_t at = cfa - 8 * (uintptr_t)slot, caller = link;
    if (unlikely(rule_kind(rule) == RULE_SP_ONLY)) {
        if (slot ? !stack_read(reader, at, &caller) : !link)
            return false;
    } else {
        if (!slot)
            at = base;
        if (!stack_read(reader, at + 8, &caller) || !stack_read(reader, at, fp))
            return false;
    }
    *sp = cfa;
    *pc = arch_return_address(caller);
    return true;
#endif
}

#endif
