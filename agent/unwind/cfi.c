#include "agent/unwind/cfi.h"

#include <errno.h>
#include <string.h>

#include "agent/unwind/cfi_entry.h"
#include "agent/unwind/dwarf_cursor.h"

enum {
    /* The longest of 3.9 million programs (all of Debian's libraries at hand, compilers, rustc)
     * takes 20,446 steps. The limit ends malformed tables after 0.15 to 0.25 ms; one made for it,
     * with numbers of 16 bytes, after 1.4 ms. */
    CFI_STEPS_MAX = 1 << 16,
    /* Bytes that fill an entry up. */
    PADDING_MAX = 15,
};

enum {
    CFA_ADVANCE_LOC = 0x40, /* the upper two bits of an opcode; the lower six are an operand */
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
    CFA_PRIMARY = 0xc0,
    CFA_NOP = 0x00,
    CFA_SET_LOC = 0x01,
    CFA_ADVANCE_LOC1 = 0x02,
    CFA_ADVANCE_LOC2 = 0x03,
    CFA_ADVANCE_LOC4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED = 0x06,
    CFA_UNDEFINED = 0x07,
    CFA_SAME_VALUE = 0x08,
    CFA_REGISTER = 0x09,
    CFA_REMEMBER_STATE = 0x0a,
    CFA_RESTORE_STATE = 0x0b,
    CFA_DEF_CFA = 0x0c,
    CFA_DEF_CFA_REGISTER = 0x0d,
    CFA_DEF_CFA_OFFSET = 0x0e,
    CFA_DEF_CFA_EXPRESSION = 0x0f,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_EXTENDED_SF = 0x11,
    CFA_DEF_CFA_SF = 0x12,
    CFA_DEF_CFA_OFFSET_SF = 0x13,
    CFA_VAL_OFFSET = 0x14,
    CFA_VAL_OFFSET_SF = 0x15,
    CFA_VAL_EXPRESSION = 0x16,
    CFA_GNU_WINDOW_SAVE = 0x2d,
    CFA_GNU_ARGS_SIZE = 0x2e,
    CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

/* What a program runs with. */
struct cfi_machine {
    const struct cfi_section *section;
    const struct cfi_cie *cie;
    const struct cfi_row *initial; /* the rules of the CIE; NULL while they are made */
    struct cfi_row *row;
    uint64_t location, wanted;
    uint32_t steps;
};

static bool set_rule(struct cfi_row *row, uint64_t reg, enum cfi_rule_kind kind, int64_t value)
{
    if (reg >= UNWIND_REGS)
        return true; /* vector registers and the like are not followed */
    if (value != (int32_t)value)
        return false;
    row->kind[reg] = (uint8_t)kind;
    row->value[reg] = (int32_t)value;
    return true;
}

static bool set_cfa(struct cfi_row *row, uint64_t reg, int64_t offset)
{
    if (reg >= UNWIND_REGS || offset != (int32_t)offset)
        return false;
    row->cfa_is_expression = false;
    row->cfa_register = (uint8_t)reg;
    row->cfa_offset = (int32_t)offset;
    return true;
}

static bool set_cfa_offset(struct cfi_row *row, int64_t offset)
{
    return !row->cfa_is_expression && set_cfa(row, row->cfa_register, offset);
}

static bool restore_rule(const struct cfi_machine *m, uint64_t reg)
{
    if (!m->initial)
        return false;
    if (reg < UNWIND_REGS) {
        m->row->kind[reg] = m->initial->kind[reg];
        m->row->value[reg] = m->initial->value[reg];
    }
    return true;
}

/* Takes an expression; gives its place, that of one of .debug_frame below 0. */
static int64_t take_expression(const struct cfi_machine *m, struct dwarf_cursor *c)
{
    int64_t at = c->at - m->section->table->data;
    dwarf_skip(c, dwarf_uleb(c));
    return m->section->is_debug ? -1 - at : at;
}

/* One instruction that changes rules. With `apply` false it is only read over. */
static bool run_rule(struct cfi_machine *m, struct dwarf_cursor *c, uint8_t opcode, bool apply)
{
    struct cfi_row *row = m->row;
    uint64_t reg;
    int64_t value;
    enum cfi_rule_kind kind;
    if ((opcode & CFA_PRIMARY) == CFA_OFFSET) {
        value = (int64_t)(dwarf_uleb(c) * m->cie->data_align);
        return !apply || set_rule(row, opcode & 0x3f, CFI_OFFSET, value);
    }
    if ((opcode & CFA_PRIMARY) == CFA_RESTORE)
        return !apply || restore_rule(m, opcode & 0x3f);
    switch (opcode) {
    case CFA_NOP:
        return true;
    case CFA_DEF_CFA:
    case CFA_DEF_CFA_SF:
        reg = dwarf_uleb(c);
        value = opcode == CFA_DEF_CFA ? (int64_t)dwarf_uleb(c)
                                      : (int64_t)((uint64_t)dwarf_sleb(c) * m->cie->data_align);
        return !apply || set_cfa(row, reg, value);
    case CFA_DEF_CFA_REGISTER:
        reg = dwarf_uleb(c);
        return !apply || set_cfa(row, reg, row->cfa_offset);
    case CFA_DEF_CFA_OFFSET:
        value = (int64_t)dwarf_uleb(c);
        return !apply || set_cfa_offset(row, value);
    case CFA_DEF_CFA_OFFSET_SF:
        value = (int64_t)((uint64_t)dwarf_sleb(c) * m->cie->data_align);
        return !apply || set_cfa_offset(row, value);
    case CFA_DEF_CFA_EXPRESSION:
        value = take_expression(m, c);
        if (apply) {
            row->cfa_is_expression = true;
            row->cfa_expression = (int32_t)value;
        }
        return true;
    case CFA_GNU_ARGS_SIZE:
        dwarf_uleb(c);
        return true;
    case CFA_GNU_WINDOW_SAVE:
        return true;
    case CFA_RESTORE_EXTENDED:
        reg = dwarf_uleb(c);
        return !apply || restore_rule(m, reg);
    default:
        break;
    }
    /* The others: a register and at most one operand. */
    reg = dwarf_uleb(c);
    switch (opcode) {
    case CFA_OFFSET_EXTENDED:
        kind = CFI_OFFSET;
        value = (int64_t)(dwarf_uleb(c) * m->cie->data_align);
        break;
    case CFA_OFFSET_EXTENDED_SF:
        kind = CFI_OFFSET;
        value = (int64_t)((uint64_t)dwarf_sleb(c) * m->cie->data_align);
        break;
    case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
        kind = CFI_OFFSET;
        value = (int64_t)(-dwarf_uleb(c) * m->cie->data_align);
        break;
    case CFA_VAL_OFFSET:
        kind = CFI_VAL_OFFSET;
        value = (int64_t)(dwarf_uleb(c) * m->cie->data_align);
        break;
    case CFA_VAL_OFFSET_SF:
        kind = CFI_VAL_OFFSET;
        value = (int64_t)((uint64_t)dwarf_sleb(c) * m->cie->data_align);
        break;
    case CFA_UNDEFINED:
        kind = CFI_UNDEFINED;
        value = 0;
        break;
    case CFA_SAME_VALUE:
        kind = CFI_SAME;
        value = 0;
        break;
    case CFA_REGISTER:
        kind = CFI_REGISTER;
        value = (int64_t)dwarf_uleb(c);
        break;
    case CFA_EXPRESSION:
        kind = CFI_EXPRESSION;
        value = take_expression(m, c);
        break;
    case CFA_VAL_EXPRESSION:
        kind = CFI_VAL_EXPRESSION;
        value = take_expression(m, c);
        break;
    default:
        return false;
    }
    return !apply || set_rule(row, reg, kind, value);
}

/* True when the opcode moved the location. */
static bool run_advance(struct cfi_machine *m, struct dwarf_cursor *c, uint8_t opcode)
{
    uint64_t delta;
    if ((opcode & CFA_PRIMARY) == CFA_ADVANCE_LOC)
        delta = opcode & 0x3f;
    else if (opcode == CFA_ADVANCE_LOC1)
        delta = dwarf_u8(c);
    else if (opcode == CFA_ADVANCE_LOC2)
        delta = dwarf_u16(c);
    else if (opcode == CFA_ADVANCE_LOC4)
        delta = dwarf_u32(c);
    else if (opcode == CFA_SET_LOC) {
        m->location = dwarf_pointer(c, m->cie->encoding, 0);
        return true;
    } else
        return false;
    m->location += delta * m->cie->code_align;
    return true;
}

/* Runs [at, end) until the wanted location is passed. */
static bool run_program(struct cfi_machine *m, const uint8_t *at, const uint8_t *end)
{
    const struct object_table *table = m->section->table;
    struct dwarf_cursor c = {at, end, table->vaddr - (uintptr_t)table->data, false};
    const uint8_t *resume = NULL; /* behind the remember_state that is being read over */
    uint64_t resume_location = 0;
    uint32_t depth = 0; /* of remembered states while reading over */
    for (;;) {
        bool passed = false;
        if (c.at < c.end) {
            if (++m->steps > CFI_STEPS_MAX)
                return false;
            uint8_t opcode = *c.at++;
            if (run_advance(m, &c, opcode)) {
                passed = m->location > m->wanted;
            } else if (opcode == CFA_REMEMBER_STATE) {
                if (!depth++) {
                    resume = c.at;
                    resume_location = m->location;
                }
            } else if (opcode == CFA_RESTORE_STATE) {
                if (!depth)
                    return false;
                depth--;
            } else if (!run_rule(m, &c, opcode, depth == 0)) {
                return false;
            }
            if (c.bad)
                return false;
        } else {
            passed = true;
        }
        if (!passed)
            continue;
        if (!depth)
            return true;
        /* The restore is not reached: what follows the remember counts. */
        depth = 0;
        c.at = resume;
        m->location = resume_location;
    }
}

/* True for a program of nothing but padding. */
static bool is_bare(const uint8_t *at, const uint8_t *end)
{
    if (end - at > PADDING_MAX)
        return false;
    while (at < end && *at == CFA_NOP)
        at++;
    return at == end;
}

/* First the program of the CIE, then that of the FDE. Not inlined, nor is what finds the FDE: their
 * stack is not used at the same time. */
static __attribute__((noinline)) bool run_both(const struct cfi_section *section,
                                               const struct cfi_cie *cie, const struct cfi_fde *fde,
                                               uint64_t vaddr, struct cfi_row *row)
{
    struct cfi_row initial;
    struct cfi_machine machine = {.section = section, .cie = cie, .row = row};
    for (bool is_fde = false;; is_fde = true) {
        machine.location = fde->start;
        machine.wanted = is_fde ? vaddr : UINT64_MAX;
        if (!run_program(&machine, is_fde ? fde->program : cie->program,
                         is_fde ? fde->program_end : cie->program_end))
            return false;
        if (is_fde)
            return true;
        initial = *row;
        machine.initial = &initial;
    }
}

static int row_in_section(const struct cfi_section *section, uint64_t vaddr, struct cfi_row *row)
{
    struct cfi_cie cie;
    struct cfi_fde fde;
    int error = cfi_find_fde(section, vaddr, &cie, &fde);
    if (error)
        return error;
    if (cie.return_register != UNWIND_RA)
        return -EINVAL;
    /* Not the whole of it, which compilers do by `rep stos`: 14 of the 90 ns of a miss. Nobody asks
     * for the value of what is CFI_SAME. */
    memset(row->kind, CFI_SAME, sizeof(row->kind));
    row->cfa_register = 0;
    row->cfa_offset = row->cfa_expression = 0;
    row->cfa_is_expression = false;
    row->signal_frame = cie.signal_frame;
    row->start = fde.start;
    row->size = fde.size;
    row->bare = is_bare(fde.program, fde.program_end);
    return run_both(section, &cie, &fde, vaddr, row) ? 0 : -EINVAL;
}

int cfi_row_at(const struct object *object, uint64_t vaddr, struct cfi_row *row)
{
    int first_error = -ENOENT;
    for (bool is_debug = false;; is_debug = true) {
        struct cfi_section section;
        bool is_there =
            is_debug ? cfi_debug_frame(object, &section) : cfi_eh_frame(object, &section);
        int error = is_there ? row_in_section(&section, vaddr, row) : -ENOENT;
        if (!error)
            return 0;
        if (is_debug)
            return first_error;
        first_error = error;
    }
}

bool cfi_covers(const struct object *object, uint64_t vaddr)
{
    struct cfi_section section;
    struct cfi_cie cie;
    struct cfi_fde fde;
    return (cfi_eh_frame(object, &section) &&
            cfi_find_fde(&section, vaddr, &cie, &fde) != -ENOENT) ||
           (cfi_debug_frame(object, &section) &&
            cfi_find_fde(&section, vaddr, &cie, &fde) != -ENOENT);
}

uint64_t cfi_function_start(const struct object *object, uint64_t vaddr)
{
    struct cfi_section section;
    struct cfi_cie cie;
    struct cfi_fde fde;
    bool is_found =
        (cfi_eh_frame(object, &section) && cfi_find_fde(&section, vaddr, &cie, &fde) == 0) ||
        (cfi_debug_frame(object, &section) && cfi_find_fde(&section, vaddr, &cie, &fde) == 0);
    return is_found ? fde.start : vaddr;
}

const uint8_t *cfi_expression(const struct object *object, int32_t at, size_t *size)
{
    struct object_table table = object->eh_frame;
    if (at < 0) {
        const struct object_debug_frame *frame = load_acquire(&object->debug_frame);
        if (!frame)
            return NULL;
        table = frame->table;
        at = -1 - at;
    }
    if ((size_t)at >= table.size)
        return NULL;
    struct dwarf_cursor c = dwarf_cursor(table.data + at, table.size - (size_t)at, 0);
    uint64_t length = dwarf_uleb(&c);
    if (c.bad || length > (uint64_t)(c.end - c.at))
        return NULL;
    *size = length;
    return c.at;
}
