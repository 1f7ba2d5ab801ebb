/* The walk by frame records, for programs whose code, libraries included, keeps frame pointers:
 *
 *  1. The innermost frame, and what of libagent.so lies above it, may have no record yet: it is
 *     walked by call frame information.
 *  2. From there on each record gives the next one: the caller's frame pointer, and behind it the
 *     return address. It must be higher on the same stack, and lead into known code.
 *  3. Where a record does not, and from the first frame on of an object that has none, what is left
 *     of the stack is walked by call frame information. Those are libc and libagent.so (libc's
 *     frames also tell where a signal came in between, and so whether the stack is clean), and what
 *     was compiled without frame pointers, as most of a distribution's libraries are: there the
 *     register holds anything, also an address of the stack or of a pointer to code.
 *  4. A walk that does not come to the thread's first frame that way is made anew by call frame
 *     information alone, and counted.
 *
 * In an object that mostly has records a function without one that leaves the frame pointer alone
 * hides its caller: nothing in a record tells that. */
#include "agent/base/stats.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/cfi_entry.h"
#include "agent/unwind/return_scan.h"
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind_arch.h"
#include "agent/unwind/unwinder.h"

struct chain {
    const struct module_list *list;
    struct stack_reader reader;
    enum purity purity;
};

/* Whether most functions of the object that have a frame have a record in it, as far as its tables
 * tell: asked at so many functions, in the middle of each, once. That takes some 5 us. */
static __attribute__((noinline)) bool ask_tables(const struct object *object)
{
    enum { ASKED = 32 };
    struct cfi_section section;
    uint32_t with = 0, without = 0;
    if (!cfi_eh_frame(object, &section))
        return true;
    for (uint32_t i = 0; i < ASKED; i++) {
        struct cfi_cie cie;
        struct cfi_fde fde;
        struct cfi_row row;
        uint32_t entry = (uint32_t)((uint64_t)section.count * i / ASKED);
        if (!cfi_fde_at(&section, entry, &cie, &fde) ||
            cfi_row_at(object, fde.start + fde.size / 2, &row) != 0 || row.cfa_is_expression)
            continue;
        bool has_frame = ARCH_HAS_LINK ? row.kind[UNWIND_RA] == CFI_OFFSET
                                       : row.cfa_offset > (int32_t)sizeof(uintptr_t);
        if (row.cfa_register == UNWIND_FP || (ARCH_HAS_LINK && row.kind[UNWIND_FP] == CFI_OFFSET))
            with++;
        else if (has_frame)
            without++;
    }
    return with >= without;
}

static bool has_records(const struct object *object)
{
    if (object->is_system || object->is_vdso)
        return false;
    uint8_t records = load_relaxed(&object->records);
    if (unlikely(records == RECORDS_NOT_ASKED)) {
        records = ask_tables(object) ? RECORDS_KEPT : RECORDS_NONE;
        store_relaxed(&((struct object *)(uintptr_t)object)->records, records);
    }
    return records == RECORDS_KEPT;
}

/* The module of a return address where records may be followed; mostly the last one's. */
static const struct module *module_of(const struct chain *c, const struct module *last,
                                      uintptr_t pc)
{
    if (pc - modules_self_start < modules_self_end - modules_self_start)
        return NULL;
    if (likely(last && pc - last->start < last->end - last->start))
        return last;
    const struct module *module = modules_find(c->list, pc);
    return module && has_records(module->object) ? module : NULL;
}

static void note(struct chain *c, const struct module *module, bool innermost)
{
    c->purity =
        purity_after(c->purity, module && module->object->is_system, module != NULL, innermost);
}

/* Follows the records from the frame of `regs`, whose own pc is not written yet, into `pcs`. Leaves
 * `regs` at a frame that has none; returns the number written. */
static uint32_t follow(struct chain *c, struct unwind_regs *regs, uint64_t *pcs, uint32_t max)
{
    uintptr_t sp = regs->r[UNWIND_SP], fp = regs->r[UNWIND_FP], pc = regs->r[UNWIND_PC];
    uint32_t count = 0;
    const struct module *module = module_of(c, NULL, pc - 1);
    /* A stack has no gaps: what the reader has found to be readable from `sp` on. */
    uintptr_t end = sp < c->reader.home->high ? c->reader.home->high : UINTPTR_MAX, word;
    if (!stack_read(&c->reader, sp, &word))
        module = NULL;
    while (module && count < max) {
        uintptr_t caller_fp, caller_pc;
        if (fp % sizeof(fp) != 0 || fp < sp || fp >= end ||
            !stack_read(&c->reader, fp, &caller_fp) ||
            !stack_read(&c->reader, fp + sizeof(fp), &caller_pc) || c->reader.low > sp)
            break;
        caller_pc = arch_return_address(caller_pc);
        const struct module *caller = module_of(c, module, caller_pc - 1);
        if (!caller)
            break;
        note(c, module, false);
        pcs[count++] = pc - 1;
        sp = fp + 2 * sizeof(fp);
        fp = caller_fp;
        pc = caller_pc;
        module = caller;
    }
    /* Nothing is known of the others: 0 is no address, so a row that needs one ends the walk. */
    *regs = (struct unwind_regs){{0}};
    /* Records end a frame on x86-64; on aarch64 they begin it, mostly. */
    regs->r[UNWIND_SP] = count && ARCH_HAS_LINK ? fp : sp;
    regs->r[UNWIND_FP] = fp;
    regs->r[UNWIND_PC] = pc;
    if (count)
        unwind_behind_record(regs);
    return count;
}

/* Whether a walk by `followed` records, and by call frame information through `tail` frames more,
 * went wrong: a pointer to a function's first byte, taken for a return address, looks like a
 * context's first function. */
static bool is_wrong(struct chain *c, uint32_t flags, uint32_t followed, uint32_t tail, uint64_t pc)
{
    if (!(flags & UNWIND_COMPLETE))
        return !(flags & UNWIND_CUT);
    return followed && tail == 1 && !return_is_behind_call(&c->reader, pc + 1);
}

/* As unwind_walk, of which the first frame is written. */
static uint32_t walk_records(struct chain *c, struct unwind_regs *regs, struct unwind_stack *home,
                             uint64_t *pcs, uint32_t max, uint32_t *flags, uint32_t *generation)
{
    /* Behind a signal's frame the pc is an interrupted one, which may have no record, either. */
    bool interrupted = *flags & UNWIND_INTERRUPTED;
    note(c, modules_find(c->list, pcs[0]), true);
    uint32_t followed = interrupted ? 0 : follow(c, regs, pcs + 1, max - 2);
    uint32_t count = 1 + followed, tail_flags;
    uint32_t tail =
        unwind_walk(regs, interrupted, home, pcs + count, max - count, &tail_flags, generation);
    *flags |= tail_flags & (UNWIND_COMPLETE | UNWIND_CUT | UNWIND_INTERRUPTED);
    if (is_wrong(c, *flags, followed, tail, pcs[count]))
        return 0;
    for (uint32_t i = 0; i < tail; i++)
        note(c, modules_find(c->list, pcs[count + i]), false);
    /* The reader goes over what is left of the stack, to see whether it is the home stack. */
    uintptr_t word;
    bool reaches_end = stack_read(&c->reader, regs->r[UNWIND_SP], &word);
    *flags |= purity_flag(c->purity, *flags, count + tail, reaches_end ? &c->reader : NULL);
    return count + tail;
}

static uint32_t frame_pointers_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home,
                                    uint64_t *pcs, uint32_t max, uint32_t *flags,
                                    uint32_t *generation)
{
    const struct unwind_regs start = *regs;
    struct chain c = {.purity = PURE_APP};
    stack_reader_start(&c.reader, home, regs->r[UNWIND_SP]);
    uint32_t count = unwind_walk(regs, exact, home, pcs, 1, flags, generation);
    if (!(*flags & UNWIND_CUT) || max <= 1)
        return count;
    *flags &= ~(uint32_t)UNWIND_CUT;
    c.list = load_acquire(&modules_list);
    count = walk_records(&c, regs, home, pcs, max, flags, generation);
    if (likely(count))
        return count;
    stats_add(STAT_UNWIND_NOT_RECORDS, 1);
    *regs = start;
    return unwind_walk(regs, exact, home, pcs, max, flags, generation);
}

const struct unwinder unwinder_frame_pointers = {.name = "fp", .walk = frame_pointers_walk};
