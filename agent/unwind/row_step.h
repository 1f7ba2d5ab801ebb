/* row_step.h: one step by a whole row, all registers followed.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_ROW_STEP_H
#define LIBAGENT_ROW_STEP_H

#include "agent/unwind/cfi.h"
#include "agent/unwind/stack_reader.h"

enum row_result {
    ROW_CALLER,         /* `regs` are the caller's */
    ROW_OUTERMOST,      /* there is no caller */
    ROW_BAD,            /* the row makes no sense, or the stack cannot be read */
    ROW_NEEDS_REGISTER, /* one that is not known */
};

/* `valid` has a bit for each register of `regs` that is known; both are changed at ROW_CALLER
 * only. */
enum row_result row_step(const struct object *object, const struct cfi_row *row,
                         struct stack_reader *reader, struct unwind_regs *regs,
                         uint64_t *valid) MUST_USE;

#endif
