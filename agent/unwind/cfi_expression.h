/* cfi_expression.h: evaluates DWARF expressions of call frame information.
 * Bounded in stack (8 words), steps, and memory (through the stack reader).
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_CFI_EXPRESSION_H
#define LIBAGENT_CFI_EXPRESSION_H

#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

/* Registers, and a bit for each whose value is known. */
struct cfi_registers {
    const struct unwind_regs *regs;
    uint64_t valid;
};

enum cfi_result { CFI_GOOD, CFI_BAD, CFI_NEEDS_REGISTER };

/* `cfa` NULL: the stack starts empty, else with *cfa (expressions of registers). */
enum cfi_result cfi_evaluate(const uint8_t *expression, size_t size,
                             const struct cfi_registers *registers, const uintptr_t *cfa,
                             struct stack_reader *reader, uintptr_t *result) MUST_USE;

#endif
