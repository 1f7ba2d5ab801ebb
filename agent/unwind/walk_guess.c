/* Steps out of code without rules: assembly without call frame information, JIT code. */
#include "agent/base/sys.h"
#include "agent/unwind/return_scan.h"
#include "agent/unwind/walk_state.h"

static enum step go_to(struct walk *w, uintptr_t sp, uintptr_t fp, uintptr_t pc)
{
    w->regs->r[UNWIND_SP] = sp;
    w->regs->r[UNWIND_FP] = fp;
    w->regs->r[UNWIND_PC] = pc;
    w->valid = FOLLOWED_REGISTERS;
    w->exact = false;
    return STEP_CALLER;
}

static enum step go_to_returned(struct walk *w, const struct returned *caller)
{
    go_to(w, caller->sp, caller->fp, caller->pc);
    if (!caller->fp_known)
        w->valid &= ~(1ull << UNWIND_FP);
    return STEP_CALLER;
}

/* By a frame record; STEP_STOP when the frame pointer is at none. `checked`: its return address
 * must be one of the code at `at`. */
static enum step step_by_record(struct walk *w, enum rule_kind kind, uintptr_t fp, uintptr_t at,
                                bool checked)
{
    uintptr_t sp = w->regs->r[UNWIND_SP], caller_fp, pc;
    if (fp % sizeof(fp) != 0 || fp < sp || !stack_read(&w->reader, fp, &caller_fp) ||
        !stack_read(&w->reader, fp + sizeof(fp), &pc))
        return STEP_STOP;
    pc = arch_return_address(pc);
    bool known = pc && (checked ? return_is_possible(w->list, &w->reader, pc, at)
                                : modules_find(w->list, pc - 1) != NULL);
    bool outermost = !pc && !caller_fp;
    if (!known && !outermost && (kind != RULE_UNKNOWN || !pc))
        return STEP_STOP;
    struct returned top = {.sp = sp, .fp = fp};
    if (kind == RULE_NO_FDE && !checked && w->exact &&
        return_on_top(w->list, &w->reader, at, pc, &top))
        return go_to_returned(w, &top);
    if (!known && !outermost && !w->known_count)
        w->known_count = w->count;
    go_to(w, fp + 2 * sizeof(fp), caller_fp, pc);
    if (known && !arch_place_sp(walk_rule(w, pc - 1), w->regs))
        w->valid &= ~(1ull << UNWIND_SP);
    return STEP_CALLER;
}

/* Where the code begins that may be read up to the interrupted `pc`; `pc` itself: none. */
static uintptr_t readable_code(const struct walk *w, uintptr_t pc)
{
    const struct module *module = modules_find(w->list, pc);
    if (!module || !module->object->code_readable || stack_reader_copy(&w->reader) ||
        (!w->innermost && !sys_readable(pc)))
        return pc;
    return MAX_OF(module->start, ALIGN_DOWN(pc, (uintptr_t)PAGE_SIZE_MIN));
}

/* By what a leaf has of its caller. */
static enum step step_by_leaf(struct walk *w)
{
    if (ARCH_HAS_LINK && !(w->valid >> UNWIND_RA & 1))
        return STEP_STOP;
    uintptr_t sp, pc = w->regs->r[UNWIND_PC];
    uintptr_t code = ARCH_HAS_LINK ? readable_code(w, pc) : pc;
    if (!arch_leaf_caller(&w->reader, w->regs, code, &sp, &pc) || !pc ||
        !modules_find(w->list, pc - 1))
        return STEP_STOP;
    /* The link register of code that has called something points into that code itself. */
    if (ARCH_HAS_LINK && rule_kind(walk_rule(w, pc - 1)) >= RULE_NO_FDE)
        return STEP_STOP;
    return go_to(w, sp, w->regs->r[UNWIND_FP], pc);
}

/* The one of the places that this walk is to take; 0: there is none. */
static uintptr_t choose_place(struct walk *w, uintptr_t start, size_t size, size_t saved)
{
    struct frame_choice later = {.sp = 0}, *choice = copied_stack(w->reader.home)->choice;
    const uintptr_t sp = w->regs->r[UNWIND_SP];
    if (choice->count && choice->sp != sp)
        choice = &later;
    if (!choice->count) {
        choice->sp = sp;
        choice->frame = w->count;
        choice->count = return_pairs(w->list, &w->reader, sp, start, size, saved, choice->places);
    }
    return choice->count ? choice->places[choice->taken] : 0;
}

bool walk_find_frame_pointer(struct walk *w, const struct module *module, const struct cfi_row *row)
{
    enum { RECORD = 2 * sizeof(uintptr_t) };
    if (!stack_reader_copy(&w->reader) || w->valid >> UNWIND_FP & 1 || !(w->valid >> UNWIND_SP & 1))
        return false;
    /* Registers that are saved below the record. */
    int32_t lowest = -(int32_t)RECORD;
    for (int reg = 0; reg < UNWIND_REGS; reg++)
        if (row->kind[reg] == CFI_OFFSET && !row->cfa_is_expression)
            lowest = MIN_OF(lowest, row->value[reg]);
    uintptr_t found = choose_place(w, module->bias + row->start, row->size,
                                   (size_t) - (lowest + (int32_t)RECORD));
    if (!found)
        return false;
    w->regs->r[UNWIND_FP] = found;
    w->valid |= 1ull << UNWIND_FP;
    w->flags |= UNWIND_GUESSED;
    return true;
}

static bool is_among_code_without_rules(const struct walk *w, uintptr_t pc)
{
    const struct module *module = modules_find(w->list, pc);
    return module && module->object->has_few_frames;
}

/* In a known object by the return address that the stack shows (return_scan), and by a frame record
 * that the frame pointer points at: the latter first where code without rules is what the object
 * has. Or, where the innermost code may have no record, by the word on top of the stack or the link
 * register. Each must lead into known code; only from unknown code a chain may go on through
 * unknown code, and must come to known code in the end. */
enum step walk_guess(struct walk *w, enum rule_kind kind, uintptr_t pc)
{
    bool fp_known = w->valid >> UNWIND_FP & 1;
    uintptr_t fp = fp_known ? w->regs->r[UNWIND_FP] : 0;
    bool may_be_leaf = w->innermost || (ARCH_HAS_LINK && w->exact);
    if (ARCH_HAS_LINK && may_be_leaf && step_by_leaf(w) == STEP_CALLER)
        return STEP_CALLER;
    bool record_first = kind == RULE_UNKNOWN || is_among_code_without_rules(w, pc);
    if (record_first && step_by_record(w, kind, fp, pc, false) == STEP_CALLER)
        return STEP_CALLER;
    struct returned caller = {.sp = w->regs->r[UNWIND_SP], .fp = fp};
    if (kind == RULE_NO_FDE &&
        return_scan(w->list, &w->reader, pc, w->innermost || w->exact, &caller)) {
        caller.fp_known = caller.fp_known && (fp_known || caller.fp);
        return go_to_returned(w, &caller);
    }
    if (!record_first && step_by_record(w, kind, fp, pc, true) == STEP_CALLER)
        return STEP_CALLER;
    if (may_be_leaf)
        return ARCH_HAS_LINK || kind == RULE_NO_FDE ? STEP_STOP : step_by_leaf(w);
    /* The ABI's mark of the outermost frame; the loader's entry code has nothing else. */
    return fp_known && fp == 0 && !w->exact && kind == RULE_NO_FDE ? STEP_END : STEP_STOP;
}
