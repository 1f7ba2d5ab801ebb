/* The walk by frame records, for programs whose code, libraries included, keeps frame pointers:
 *
 *  1. The innermost frame, and what of libagent.so lies above it, may have no record yet: it is
 *     walked by call frame information.
 *  2. From there on each record gives the next one: the caller's frame pointer, and behind it the
 *     return address. It must be higher on the stack, and lead into known code.
 *  3. Where a record does not, and from the first frame of libc or of libagent.so on, what is left
 *     of the stack is walked by call frame information: these have no records, and libc's frames
 *     tell where a signal came in between, and so whether the stack is clean.
 *
 * A function without a record of its own that leaves the frame pointer alone hides its caller:
 * nothing in a record tells that. */
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind_arch.h"
#include "agent/unwind/unwinder.h"

struct chain {
    const struct module_list *list;
    struct stack_reader reader;
    enum purity purity;
};

/* The module of a return address where records may be followed; mostly the last one's. */
static const struct module *module_of(const struct chain *c, const struct module *last,
                                      uintptr_t pc)
{
    if (pc - modules_self_start < modules_self_end - modules_self_start)
        return NULL;
    if (likely(last && pc - last->start < last->end - last->start))
        return last;
    const struct module *module = modules_find(c->list, pc);
    bool has_records = module && !module->object->is_system && !module->object->is_vdso;
    return has_records ? module : NULL;
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
    while (module && count < max) {
        uintptr_t caller_fp, caller_pc;
        if (fp % sizeof(fp) != 0 || fp < sp || !stack_read(&c->reader, fp, &caller_fp) ||
            !stack_read(&c->reader, fp + sizeof(fp), &caller_pc))
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

static uint32_t frame_pointers_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home,
                                    uint64_t *pcs, uint32_t max, uint32_t *flags,
                                    uint32_t *generation)
{
    struct chain c = {.purity = PURE_APP};
    stack_reader_start(&c.reader, home, regs->r[UNWIND_SP]);
    uint32_t count = unwind_walk(regs, exact, home, pcs, 1, flags, generation);
    if (!(*flags & UNWIND_CUT) || max <= 1)
        return count;
    *flags &= ~(uint32_t)UNWIND_CUT;
    /* Behind a signal's frame the pc is an interrupted one, which may have no record, either. */
    bool interrupted = *flags & UNWIND_INTERRUPTED;
    c.list = load_acquire(&modules_list);
    note(&c, modules_find(c.list, pcs[0]), true);
    if (!interrupted)
        count += follow(&c, regs, pcs + 1, max - 2);
    uint32_t tail_flags;
    uint32_t tail =
        unwind_walk(regs, interrupted, home, pcs + count, max - count, &tail_flags, generation);
    *flags |= tail_flags & (UNWIND_COMPLETE | UNWIND_CUT | UNWIND_INTERRUPTED);
    for (uint32_t i = 0; i < tail; i++)
        note(&c, modules_find(c.list, pcs[count + i]), false);
    /* The reader goes over what is left of the stack, to see whether it is the home stack. */
    uintptr_t word;
    bool reaches_end = stack_read(&c.reader, regs->r[UNWIND_SP], &word);
    *flags |= purity_flag(c.purity, *flags, count + tail, reaches_end ? &c.reader : NULL);
    return count + tail;
}

const struct unwinder unwinder_frame_pointers = {.name = "fp", .walk = frame_pointers_walk};
