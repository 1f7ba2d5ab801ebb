/* What is particular to aarch64. Calls leave the return address in x30 (the link register); what
 * calls others saves it, mostly as the upper word of a frame record whose lower word is x29. Where
 * in the frame the record lies is the compiler's choice: gcc has it at the bottom, clang on top.
 * Return addresses may be signed in their upper bits. Linkers describe no PLT stubs, and kernels
 * not their way back from a handler. */
#if defined(__aarch64__)
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "agent/unwind/unwind_arch.h"

enum { FP = UNWIND_FP, LR = UNWIND_RA, SP = UNWIND_SP, PC = UNWIND_PC };

const void *unwind_before_handlers(const void *ucontext)
{
    /* The kernel's frame: siginfo, context. The three arguments of a handler tell it. */
    enum { SIGNALS = 64 };
    for (;;) {
        const mcontext_t *machine = &((const ucontext_t *)ucontext)->uc_mcontext;
        if (machine->regs[1] != machine->sp ||
            machine->regs[2] != machine->sp + sizeof(siginfo_t) || machine->regs[0] < 1 ||
            machine->regs[0] > SIGNALS ||
            ((const siginfo_t *)machine->regs[1])->si_signo != (int)machine->regs[0])
            return ucontext;
        ucontext = (const void *)machine->regs[2];
    }
}

void unwind_regs_from_context(struct unwind_regs *regs, const void *ucontext)
{
    const mcontext_t *context = &((const ucontext_t *)ucontext)->uc_mcontext;
    for (int i = 0; i <= LR; i++)
        regs->r[i] = context->regs[i];
    regs->r[SP] = context->sp;
    regs->r[SP + 1] = 0;
    regs->r[PC] = context->pc;
}

/* Whether `value` is a place at CFA - 8 * slot that a rule can say. */
static bool is_slot(int32_t value)
{
    return value < 0 && value % 8 == 0 && value / -8 <= RULE_SLOT_MAX;
}

uint64_t arch_pack(const struct object *object, const struct cfi_row *row, uint64_t vaddr)
{
    (void)vaddr;
    if (row->kind[LR] == CFI_UNDEFINED)
        return rule_make(RULE_END, 0, 0);
    if (row->signal_frame)
        return rule_make(object->is_vdso ? RULE_NO_FDE : RULE_FULL, 0, 0);
    int32_t offset = row->cfa_offset;
    if (row->kind[SP] != CFI_SAME || row->cfa_is_expression ||
        (row->cfa_register != SP && row->cfa_register != FP) || offset % 8 != 0 ||
        offset < RULE_OFFSET_MIN || offset > RULE_OFFSET_MAX)
        return rule_make(RULE_FULL, 0, 0);
    int32_t fp_at = row->value[FP], lr_at = row->value[LR];
    if (row->kind[FP] == CFI_OFFSET && row->kind[LR] == CFI_OFFSET && lr_at == fp_at + 8) {
        enum rule_kind kind = row->cfa_register == SP ? RULE_SP : RULE_FP;
        if (fp_at == -offset)
            return rule_make(kind, 0, offset);
        if (is_slot(fp_at))
            return rule_make(kind, (uint32_t)(fp_at / -8), offset);
    }
    if (row->kind[FP] == CFI_SAME && row->cfa_register == SP) {
        if (row->kind[LR] == CFI_SAME)
            return rule_make(RULE_SP_ONLY, 0, offset);
        if (row->kind[LR] == CFI_OFFSET && is_slot(lr_at))
            return rule_make(RULE_SP_ONLY, (uint32_t)(lr_at / -8), offset);
    }
    return rule_make(RULE_FULL, 0, 0);
}

/* A leaf's row is right without a word: the return address stays in x30. */
uint64_t arch_bare_rule(const uint8_t *code, size_t at, size_t size)
{
    (void)code;
    (void)at;
    (void)size;
    return rule_make(RULE_NONE, 0, 0);
}

/* The first PLT stub, which all others lead to before their function is bound, pushes two words and
 * has four more instructions. */
static bool has_pushed_in_plt(uintptr_t code, uintptr_t pc)
{
    enum { PUSH = 0xa9bf7bf0 /* stp x16, x30, [sp, #-16]! */, REST = 4 };
    for (uintptr_t i = 1; i <= REST && pc - code >= i * sizeof(uint32_t); i++)
        if (((const uint32_t *)pc)[-(intptr_t)i] == PUSH)
            return true;
    return false;
}

bool arch_leaf_caller(struct stack_reader *reader, const struct unwind_regs *regs, uintptr_t code,
                      uintptr_t *sp, uintptr_t *pc)
{
    uintptr_t fp = regs->r[FP], saved;
    *sp = regs->r[SP] + (has_pushed_in_plt(code, *pc) ? 16 : 0);
    *pc = arch_return_address(regs->r[LR]);
    /* Where the code has pushed its frame record, that says the same, and x29 too. */
    return fp % 8 != 0 || !stack_read(reader, fp + 8, &saved) || arch_return_address(saved) != *pc;
}

static const uint32_t signal_return[] = {0xd2801168, 0xd4000001}; /* mov x8, #139; svc #0 */

static bool has_code(const struct stack_reader *reader, uintptr_t address)
{
    uint32_t code[ARRAY_SIZE(signal_return)];
    if (address % sizeof(code[0]) != 0)
        return false;
    return stack_copy_bytes(stack_reader_copy(reader), address, code, sizeof(code)) &&
           memcmp(code, signal_return, sizeof(code)) == 0;
}

bool arch_is_signal_return(const struct stack_reader *reader, uintptr_t pc, bool exact)
{
    return has_code(reader, pc) || (exact && has_code(reader, pc - sizeof(signal_return[0])));
}

bool arch_signal_return(struct stack_reader *reader, struct unwind_regs *regs)
{
    /* The kernel's frame: a siginfo_t, then a ucontext_t. */
    uintptr_t context = regs->r[SP] + sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext);
    for (int i = 0; i <= LR; i++)
        if (!stack_read(reader, context + offsetof(mcontext_t, regs) + 8 * (uintptr_t)i,
                        &regs->r[i]))
            return false;
    return stack_read(reader, context + offsetof(mcontext_t, sp), &regs->r[SP]) &&
           stack_read(reader, context + offsetof(mcontext_t, pc), &regs->r[PC]);
}
#endif
