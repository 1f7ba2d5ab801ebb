#include "agent/unwind/cfi_expression.h"

#include "agent/unwind/dwarf_cursor.h"

enum {
    STACK_MAX = 8,   /* the deepest of glibc, libgcc and OpenSSL use 4 */
    STEPS_MAX = 512, /* expressions may branch backwards */
};

enum {
    OP_ADDR = 0x03,
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,
    OP_CONST1S,
    OP_CONST2U,
    OP_CONST2S,
    OP_CONST4U,
    OP_CONST4S,
    OP_CONST8U,
    OP_CONST8S,
    OP_CONSTU,
    OP_CONSTS,
    OP_DUP,
    OP_DROP,
    OP_OVER,
    OP_PICK,
    OP_SWAP,
    OP_ROT,
    OP_ABS = 0x19,
    OP_AND,
    OP_DIV,
    OP_MINUS,
    OP_MOD,
    OP_MUL,
    OP_NEG,
    OP_NOT,
    OP_OR,
    OP_PLUS,
    OP_PLUS_UCONST,
    OP_SHL,
    OP_SHR,
    OP_SHRA,
    OP_XOR,
    OP_BRA,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    OP_NE,
    OP_SKIP,
    OP_LIT0 = 0x30,
    OP_LIT31 = 0x4f,
    OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f,
    OP_BREGX = 0x92,
    OP_DEREF_SIZE = 0x94,
    OP_NOP = 0x96,
};

/* Operators of two operands: a is below b. */
static bool binary(uint8_t op, uint64_t a, uint64_t b, uint64_t *result)
{
    int64_t sa = (int64_t)a, sb = (int64_t)b;
    switch (op) {
    case OP_AND:
        *result = a & b;
        return true;
    case OP_DIV:
        if (sb == 0 || (sa == INT64_MIN && sb == -1))
            return false;
        *result = (uint64_t)(sa / sb);
        return true;
    case OP_MINUS:
        *result = a - b;
        return true;
    case OP_MOD:
        if (b == 0)
            return false;
        *result = a % b;
        return true;
    case OP_MUL:
        *result = a * b;
        return true;
    case OP_OR:
        *result = a | b;
        return true;
    case OP_PLUS:
        *result = a + b;
        return true;
    case OP_SHL:
        *result = b < 64 ? a << b : 0;
        return true;
    case OP_SHR:
        *result = b < 64 ? a >> b : 0;
        return true;
    case OP_SHRA:
        *result = (uint64_t)(sa >> (b < 63 ? b : 63));
        return true;
    case OP_XOR:
        *result = a ^ b;
        return true;
    case OP_EQ:
        *result = sa == sb;
        return true;
    case OP_GE:
        *result = sa >= sb;
        return true;
    case OP_GT:
        *result = sa > sb;
        return true;
    case OP_LE:
        *result = sa <= sb;
        return true;
    case OP_LT:
        *result = sa < sb;
        return true;
    case OP_NE:
        *result = sa != sb;
        return true;
    default:
        return false;
    }
}

/* Operators that push a value of their own. False: `op` is none of them. */
static bool constant(uint8_t op, struct dwarf_cursor *c, uint64_t *value)
{
    if (op >= OP_LIT0 && op <= OP_LIT31) {
        *value = (uint64_t)(op - OP_LIT0);
        return true;
    }
    switch (op) {
    case OP_ADDR:
    case OP_CONST8U:
    case OP_CONST8S:
        *value = dwarf_u64(c);
        return true;
    case OP_CONST1U:
        *value = dwarf_u8(c);
        return true;
    case OP_CONST1S:
        *value = (uint64_t)(int64_t)(int8_t)dwarf_u8(c);
        return true;
    case OP_CONST2U:
        *value = dwarf_u16(c);
        return true;
    case OP_CONST2S:
        *value = (uint64_t)(int64_t)(int16_t)dwarf_u16(c);
        return true;
    case OP_CONST4U:
        *value = dwarf_u32(c);
        return true;
    case OP_CONST4S:
        *value = (uint64_t)(int64_t)(int32_t)dwarf_u32(c);
        return true;
    case OP_CONSTU:
        *value = dwarf_uleb(c);
        return true;
    case OP_CONSTS:
        *value = (uint64_t)dwarf_sleb(c);
        return true;
    default:
        return false;
    }
}

enum cfi_result cfi_evaluate(const uint8_t *expression, size_t size,
                             const struct cfi_registers *registers, const uintptr_t *cfa,
                             struct stack_reader *reader, uintptr_t *result)
{
    uint64_t stack[STACK_MAX];
    unsigned depth = 0;
    struct dwarf_cursor c = dwarf_cursor(expression, size, 0);
    if (cfa)
        stack[depth++] = *cfa;
    for (int steps = 0; c.at < c.end; steps++) {
        uint8_t op = *c.at++;
        uint64_t value;
        if (steps == STEPS_MAX)
            return CFI_BAD;
        if (constant(op, &c, &value)) {
            if (depth == STACK_MAX)
                return CFI_BAD;
            stack[depth++] = value;
        } else if ((op >= OP_BREG0 && op <= OP_BREG31) || op == OP_BREGX) {
            uint64_t reg = op == OP_BREGX ? dwarf_uleb(&c) : (uint64_t)(op - OP_BREG0);
            uint64_t offset = (uint64_t)dwarf_sleb(&c);
            if (reg >= UNWIND_REGS || depth == STACK_MAX)
                return CFI_BAD;
            if (!(registers->valid >> reg & 1))
                return CFI_NEEDS_REGISTER;
            stack[depth++] = registers->regs->r[reg] + offset;
        } else if (op == OP_SKIP || op == OP_BRA) {
            int16_t distance = (int16_t)dwarf_u16(&c);
            if (op == OP_BRA) {
                if (depth == 0)
                    return CFI_BAD;
                if (stack[--depth] == 0)
                    continue;
            }
            if (distance < expression - c.at || distance > c.end - c.at)
                return CFI_BAD;
            c.at += distance;
        } else if (op != OP_NOP) {
            unsigned needs = op == OP_ROT ? 3
                             : op == OP_DUP || op == OP_DROP || op == OP_PICK || op == OP_DEREF ||
                                     op == OP_DEREF_SIZE || op == OP_ABS || op == OP_NEG ||
                                     op == OP_NOT || op == OP_PLUS_UCONST
                                 ? 1
                                 : 2;
            if (depth < needs)
                return CFI_BAD;
            uint64_t *top = &stack[depth - 1];
            switch (op) {
            case OP_DUP:
            case OP_OVER:
            case OP_PICK: {
                unsigned index = op == OP_DUP ? 0 : op == OP_OVER ? 1 : dwarf_u8(&c);
                if (index >= depth || depth == STACK_MAX)
                    return CFI_BAD;
                stack[depth] = stack[depth - 1 - index];
                depth++;
                break;
            }
            case OP_DROP:
                depth--;
                break;
            case OP_SWAP:
                value = top[0];
                top[0] = top[-1];
                top[-1] = value;
                break;
            case OP_ROT:
                value = top[0];
                top[0] = top[-1];
                top[-1] = top[-2];
                top[-2] = value;
                break;
            case OP_DEREF:
            case OP_DEREF_SIZE: {
                uint8_t bytes = op == OP_DEREF ? sizeof(uintptr_t) : dwarf_u8(&c);
                uintptr_t word;
                if (bytes == 0 || bytes > sizeof(word) || !stack_read(reader, top[0], &word))
                    return CFI_BAD;
                top[0] = word & (~0ull >> (64 - 8 * bytes));
                break;
            }
            case OP_ABS:
                top[0] = (int64_t)top[0] < 0 ? -top[0] : top[0];
                break;
            case OP_NEG:
                top[0] = -top[0];
                break;
            case OP_NOT:
                top[0] = ~top[0];
                break;
            case OP_PLUS_UCONST:
                top[0] += dwarf_uleb(&c);
                break;
            default:
                if (!binary(op, top[-1], top[0], &top[-1]))
                    return CFI_BAD;
                depth--;
                break;
            }
        }
        if (c.bad)
            return CFI_BAD;
    }
    if (depth == 0)
        return CFI_BAD;
    *result = stack[depth - 1];
    return CFI_GOOD;
}
