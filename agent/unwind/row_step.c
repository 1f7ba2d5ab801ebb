#include "agent/unwind/row_step.h"

#include "agent/unwind/cfi_expression.h"
#include "agent/unwind/unwind_arch.h"

/* What a row is applied to. */
struct frame {
    const struct object *object;
    struct stack_reader *reader;
    struct cfi_registers registers;
};

static enum cfi_result evaluate(const struct frame *frame, int32_t at, const uintptr_t *cfa,
                                uintptr_t *value)
{
    size_t size;
    const uint8_t *expression = cfi_expression(frame->object, at, &size);
    return expression ? cfi_evaluate(expression, size, &frame->registers, cfa, frame->reader, value)
                      : CFI_BAD;
}

/* The caller's value of register `reg`. */
static enum cfi_result caller_value(const struct frame *frame, const struct cfi_row *row, int reg,
                                    uintptr_t cfa, uintptr_t *value)
{
    int32_t operand = row->value[reg];
    enum cfi_result result = CFI_GOOD;
    switch (row->kind[reg]) {
    case CFI_SAME:
        operand = reg;
        /* fallthrough */
    case CFI_REGISTER:
        if (operand < 0 || operand >= UNWIND_REGS)
            return CFI_BAD;
        *value = frame->registers.regs->r[operand];
        return frame->registers.valid >> operand & 1 ? CFI_GOOD : CFI_NEEDS_REGISTER;
    case CFI_VAL_OFFSET:
        *value = cfa + (uintptr_t)(intptr_t)operand;
        return CFI_GOOD;
    case CFI_VAL_EXPRESSION:
        return evaluate(frame, operand, &cfa, value);
    case CFI_OFFSET:
        *value = cfa + (uintptr_t)(intptr_t)operand;
        break;
    case CFI_EXPRESSION:
        result = evaluate(frame, operand, &cfa, value);
        break;
    default:
        return CFI_BAD;
    }
    if (result == CFI_GOOD && !stack_read(frame->reader, *value, value))
        result = CFI_BAD;
    return result;
}

/* The caller's stack pointer. What saved the return address above its CFA has pushed it there
 * before, whatever its row says: glibc's lazy resolver on aarch64, which the first PLT stub does
 * that for. */
static uintptr_t stack_behind(const struct cfi_row *row, uintptr_t cfa)
{
    enum { RECORD = 16 };
    bool is_above =
        ARCH_HAS_LINK && row->kind[UNWIND_RA] == CFI_OFFSET && row->value[UNWIND_RA] >= 0;
    return is_above ? cfa + ALIGN_UP((uintptr_t)row->value[UNWIND_RA] + 1, RECORD) : cfa;
}

static enum row_result without(enum cfi_result result)
{
    return result == CFI_NEEDS_REGISTER ? ROW_NEEDS_REGISTER : ROW_BAD;
}

enum row_result row_step(const struct object *object, const struct cfi_row *row,
                         struct stack_reader *reader, struct unwind_regs *regs, uint64_t *valid)
{
    const struct frame frame = {object, reader, {regs, *valid}};
    if (row->kind[UNWIND_RA] == CFI_UNDEFINED)
        return ROW_OUTERMOST;
    /* A pc that stays what it is would never end. */
    if (UNWIND_RA == UNWIND_PC && row->kind[UNWIND_RA] == CFI_SAME)
        return ROW_BAD;
    uintptr_t cfa;
    enum cfi_result result = CFI_GOOD;
    if (row->cfa_is_expression) {
        result = evaluate(&frame, row->cfa_expression, NULL, &cfa);
    } else {
        cfa = regs->r[row->cfa_register] + (uintptr_t)(intptr_t)row->cfa_offset;
        if (!(*valid >> row->cfa_register & 1))
            result = CFI_NEEDS_REGISTER;
    }
    if (result != CFI_GOOD)
        return without(result);
    struct unwind_regs caller;
    uint64_t known = 0;
    for (int reg = 0; reg < UNWIND_REGS; reg++) {
        bool same = row->kind[reg] == CFI_SAME;
        if (reg == UNWIND_SP && same) {
            caller.r[reg] = stack_behind(row, cfa);
            known |= 1ull << reg;
            continue;
        }
        result = caller_value(&frame, row, reg, cfa, &caller.r[reg]);
        if (result == CFI_GOOD)
            known |= 1ull << reg;
        else if (reg == UNWIND_SP || reg == UNWIND_RA || (result == CFI_NEEDS_REGISTER && !same))
            return without(result);
    }
    caller.r[UNWIND_PC] = arch_return_address(caller.r[UNWIND_RA]);
    *regs = caller;
    /* A link register holds what the caller's own call put there. */
    if (ARCH_HAS_LINK && !row->signal_frame)
        known &= ~(1ull << UNWIND_RA);
    *valid = known | 1ull << UNWIND_PC;
    return ROW_CALLER;
}
