/* cfi.h: call frame information: finds the FDE of an address (in .eh_frame, and where that has
 * none in .debug_frame) and runs its program up to that address.
 *
 * DW_CFA_remember_state needs no memory here: at one, the program is read ahead to its
 * DW_CFA_restore_state. Where the restore is reached before the wanted address, all between has
 * no effect on the rules and is left out; otherwise the restore is never reached. So nesting
 * has no limit, and a walk keeps its stack small.
 *
 * All addresses are ELF virtual addresses; tables may be mapped anywhere (struct object_table).
 * Every read is bounded by the table; malformed tables give an error, in bounded time.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_CFI_H
#define LIBAGENT_CFI_H

#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"

enum cfi_rule_kind {
    CFI_SAME, /* also "unspecified": callee-saved by convention */
    CFI_UNDEFINED,
    CFI_OFFSET,         /* saved at CFA + value */
    CFI_VAL_OFFSET,     /* is CFA + value */
    CFI_REGISTER,       /* in register `value` */
    CFI_EXPRESSION,     /* saved at what the expression gives */
    CFI_VAL_EXPRESSION, /* is what the expression gives */
};

/* The rules in force at one address. An expression is the distance of its length field from the
 * start of .eh_frame; -1 - the distance in .debug_frame. */
struct cfi_row {
    int32_t value[UNWIND_REGS];
    int32_t cfa_offset; /* stays while the CFA is an expression, for a later def_cfa_register */
    int32_t cfa_expression;
    uint8_t kind[UNWIND_REGS];
    uint8_t cfa_register;
    bool cfa_is_expression;
    bool signal_frame; /* augmentation 'S': the caller's pc is an interrupted one */
    bool bare;         /* the FDE has no instruction: nothing is said of pushes */
    uint64_t start;    /* of the function (what the FDE covers) */
    uint64_t size;
};

/* 0; -ENOENT when no FDE covers `vaddr`; -EINVAL when its tables are malformed or use what is
 * not supported. */
int cfi_row_at(const struct object *object, uint64_t vaddr, struct cfi_row *row) MUST_USE;

/* Whether there is an FDE for `vaddr`, good or bad; takes less stack. */
bool cfi_covers(const struct object *object, uint64_t vaddr) MUST_USE;

/* Where the function that an FDE has `vaddr` in begins; `vaddr` itself where none has. */
uint64_t cfi_function_start(const struct object *object, uint64_t vaddr);

/* The bytes of an expression of `object`: data and *size. NULL when out of bounds. */
const uint8_t *cfi_expression(const struct object *object, int32_t at, size_t *size) MUST_USE;

#endif
