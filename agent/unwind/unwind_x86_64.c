/* What is particular to x86-64. The return address is at CFA - 8; the rows of compiled code hang
 * on rsp or rbp and say where rbp is saved. Three forms of expressions are so common that they
 * get rules too: PLT stubs, and the two of realigned frames. */
#if defined(__x86_64__)
#include <ucontext.h>

#include "agent/unwind/unwind_arch.h"
#include "agent/unwind/x86_code.h"

enum { RBP = UNWIND_FP, RSP = UNWIND_SP, RIP = UNWIND_PC };

void unwind_regs_from_context(struct unwind_regs *regs, const void *ucontext)
{
    static const uint8_t places[UNWIND_REGS] = {
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
        REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    const ucontext_t *context = ucontext;
    for (int i = 0; i < UNWIND_REGS; i++)
        regs->r[i] = (uintptr_t)context->uc_mcontext.gregs[places[i]];
}

const void *unwind_before_handlers(const void *ucontext)
{
    /* The kernel's frame: return address, context, siginfo; its struct ucontext has 304 bytes. The
     * three arguments of a handler tell it, which each is given, and the cleared register. */
    enum { KERNEL_UCONTEXT = 304, SIGNALS = 64 };
    for (;;) {
        const ucontext_t *context = ucontext;
        const greg_t *r = context->uc_mcontext.gregs;
        if (r[REG_RDX] != r[REG_RSP] + 8 || r[REG_RSI] != r[REG_RDX] + KERNEL_UCONTEXT ||
            r[REG_RDI] < 1 || r[REG_RDI] > SIGNALS || r[REG_RAX] != 0)
            return ucontext;
        ucontext = (const void *)(uintptr_t)r[REG_RDX];
    }
}

bool arch_leaf_caller(struct stack_reader *reader, const struct unwind_regs *regs, uintptr_t code,
                      uintptr_t *sp, uintptr_t *pc)
{
    (void)code;
    *sp = regs->r[RSP] + sizeof(*pc);
    return stack_read(reader, regs->r[RSP], pc);
}

/* Linkers describe .plt by one expression for all its stubs: rsp + 8, and 8 more once the stub
 * has pushed its number, which is told from the pc's place in the stub:
 * rsp + 8 + (((rip & 15) >= N) << 3). N is 11, or 10 where the push comes after endbr64 (4) and
 * is followed by bnd jmp. */
static bool plt_offset(const uint8_t *expression, size_t size, uint64_t vaddr, int32_t *offset)
{
    static const uint8_t pattern[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30, 0x2a, 0x33, 0x24, 0x22};
    enum { LITERAL = 6 };
    if (size != sizeof(pattern))
        return false;
    for (size_t i = 0; i < size; i++)
        if (i != LITERAL && expression[i] != pattern[i])
            return false;
    unsigned boundary = expression[LITERAL] - 0x30u;
    if (boundary > 31)
        return false;
    *offset = (vaddr & 15) >= boundary ? 16 : 8;
    return true;
}

/* breg6 (rbp) with a small offset, then `rest` bytes. */
static bool rbp_based(const uint8_t *expression, size_t size, size_t rest, int32_t *offset)
{
    if (size != 2 + rest || expression[0] != 0x76 || (expression[1] & 0x80))
        return false;
    *offset = (int8_t)(uint8_t)(expression[1] << 1) / 2; /* one byte of sleb: 7 bits with sign */
    return true;
}

static uint64_t pack_expression(const struct object *object, const struct cfi_row *row,
                                uint64_t vaddr)
{
    size_t size;
    int32_t offset;
    const uint8_t *expression = cfi_expression(object, row->cfa_expression, &size);
    if (!expression)
        return rule_make(RULE_FULL, 0, 0);
    if (row->kind[RBP] == CFI_SAME && plt_offset(expression, size, vaddr, &offset))
        return rule_make(RULE_SP, 0, offset);
    /* A frame realigned by gcc: its real CFA was pushed below rbp, and rbp is saved at (rbp). */
    if (row->kind[RBP] != CFI_EXPRESSION || !rbp_based(expression, size, 1, &offset) ||
        expression[2] != 0x06 || offset % 8 != 0)
        return rule_make(RULE_FULL, 0, 0);
    size_t saved_size;
    int32_t saved_offset;
    const uint8_t *saved = cfi_expression(object, row->value[RBP], &saved_size);
    if (!saved || !rbp_based(saved, saved_size, 0, &saved_offset) || saved_offset != 0)
        return rule_make(RULE_FULL, 0, 0);
    return rule_make(RULE_FP_DEREF, 0, offset);
}

uint64_t arch_pack(const struct object *object, const struct cfi_row *row, uint64_t vaddr)
{
    if (row->kind[RIP] == CFI_UNDEFINED)
        return rule_make(RULE_END, 0, 0);
    if (row->signal_frame || row->kind[RIP] != CFI_OFFSET || row->value[RIP] != -8 ||
        row->kind[RSP] != CFI_SAME)
        return rule_make(RULE_FULL, 0, 0);
    if (row->cfa_is_expression)
        return pack_expression(object, row, vaddr);
    int32_t offset = row->cfa_offset;
    if ((row->cfa_register != RSP && row->cfa_register != RBP) || offset % 8 != 0 ||
        offset < RULE_OFFSET_MIN || offset > RULE_OFFSET_MAX)
        return rule_make(RULE_FULL, 0, 0);
    uint32_t slot = 0;
    if (row->kind[RBP] == CFI_OFFSET) {
        int32_t at = row->value[RBP];
        if (at >= 0 || at % 8 != 0 || at / -8 > RULE_SLOT_MAX)
            return rule_make(RULE_FULL, 0, 0);
        slot = (uint32_t)(at / -8);
    } else if (row->kind[RBP] != CFI_SAME) {
        return rule_make(RULE_FULL, 0, 0);
    }
    return rule_make(row->cfa_register == RSP ? RULE_SP : RULE_FP, slot, offset);
}

uint64_t arch_bare_rule(const uint8_t *code, size_t at, size_t size)
{
    size_t i = x86_endbr64(code, size);
    uint32_t pushes = 0, rbp_push = 0;
    bool is_rbp;
    while (i < at) {
        size_t length = x86_push_or_pop(code, i, size, X86_PUSH, &is_rbp);
        if (!length)
            break;
        i += length;
        pushes++;
        if (is_rbp)
            rbp_push = pushes;
    }
    /* In the epilogue only what is popped from here to the ret is still pushed. */
    uint32_t pops = 0;
    size_t length;
    for (i = at; (length = x86_push_or_pop(code, i, size, X86_POP, &is_rbp)); i += length)
        pops++;
    if (i < size && code[i] == 0xf3)
        i++;
    if (i < size && code[i] == 0xc3)
        pushes = MIN_OF(pushes, pops);
    if (!pushes)
        return rule_make(RULE_NONE, 0, 0);
    return rule_make(RULE_SP, rbp_push && rbp_push <= pushes ? 1 + rbp_push : 0,
                     8 + 8 * (int32_t)pushes);
}
#endif
