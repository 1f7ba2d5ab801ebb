/* The walk. Each frame: look its rule up by pc (rule_cache), on a miss make it (modules, cfi),
 * write the pc down, step. Three registers (stack pointer, frame pointer, pc) are followed; the
 * others are known at the start and again behind a signal frame. A row that needs one that is
 * not known starts the walk anew with `full`: then every row is interpreted, and all registers
 * are followed (about one walk in a thousand). */
#include "agent/unwind/unwind.h"

#include <errno.h>

#include "agent/base/stats.h"
#include "agent/unwind/catch_up.h"
#include "agent/unwind/return_scan.h"
#include "agent/unwind/row_step.h"
#include "agent/unwind/walk_state.h"

/* Stacks that a walk may enter by a signal frame: handlers nest, but not endlessly. */
enum { SWITCHES_MAX = 16 };
/* Frames of libagent.so in one walk, which take no place in `pcs`. */
enum { SELF_FRAMES_MAX = 64 };

int unwind_start(void)
{
    return rule_cache_start();
}

static const struct module *find_module(const struct walk *w, uintptr_t pc)
{
    const struct module *module = modules_find(w->list, pc);
    if (!module)
        modules_want_rescan();
    return module;
}

/* The same of code that is read by copies: only what lies around the function's start and pc can
 * matter, and is put together as a function of its own. */
static __attribute__((noinline)) uint64_t
bare_rule_copied(const struct stack_copy *copy, uintptr_t start, size_t size, uintptr_t pc)
{
    enum { PART = 32 }; /* endbr64 and pushes of all callee-saved registers are 14 bytes */
    uint8_t code[2 * PART];
    size_t at = MIN_OF(pc - start, (uintptr_t)PART);
    size_t rest = MIN_OF(start + size - pc, (uintptr_t)PART);
    if (!stack_copy_bytes(copy, start, code, at) || !stack_copy_bytes(copy, pc, code + at, rest))
        return rule_make(RULE_NONE, 0, 0);
    return arch_bare_rule(code, at, at + rest);
}

/* See arch_bare_rule. The code is read: that of an interrupted pc is loaded and runs; where the
 * pc comes out of a signal frame in memory, nobody knows. */
static uint64_t bare_rule(const struct walk *w, const struct module *module,
                          const struct cfi_row *row, uintptr_t pc)
{
    uintptr_t start = module->bias + row->start;
    if (!w->exact || !module->object->code_readable || start < module->start ||
        row->size > module->end - start)
        return rule_make(RULE_NONE, 0, 0);
    const struct stack_copy *copy = stack_reader_copy(&w->reader);
    if (copy || !w->innermost)
        return bare_rule_copied(copy, start, row->size, pc);
    return arch_bare_rule((const uint8_t *)start, pc - start, row->size);
}

/* Return addresses point behind a call, so one at a function's first byte was put there by hand:
 * it is where a context's first function returns to (libc's __start_context). */
static bool is_planted(const struct object *object, uint64_t vaddr, struct cfi_row *row)
{
    return cfi_row_at(object, vaddr + 1, row) == 0 && row->start == vaddr + 1;
}

uint64_t walk_make_rule(const struct walk *w, uintptr_t pc)
{
    const struct module *module = find_module(w, pc);
    if (!module)
        return rule_make(RULE_UNKNOWN, 0, 0);
    struct cfi_row row;
    uint64_t vaddr = pc - module->bias;
    uint64_t rule = rule_make(RULE_NONE, 0, 0);
    if (cfi_row_at(module->object, vaddr, &row) == 0) {
        if (row.bare)
            rule = bare_rule(w, module, &row, pc);
        if (rule_kind(rule) == RULE_NONE)
            rule = arch_pack(module->object, &row, vaddr);
    } else {
        bool planted = !w->exact && is_planted(module->object, vaddr, &row);
        if (!planted)
            modules_note_miss(module->object);
        rule = rule_make(planted ? RULE_END : RULE_NO_FDE, 0, 0);
    }
    if (module->object->is_system)
        rule |= RULE_SYSTEM;
    rule_store(w->list->publication, pc, rule);
    stats_add(STAT_UNWIND_CACHE_MISSES, 1);
    return rule;
}

/* A step by the whole row. */
static __attribute__((noinline)) enum step step_full(struct walk *w, uintptr_t pc)
{
    const struct module *module = modules_find(w->list, pc);
    struct cfi_row row;
    if (!module || cfi_row_at(module->object, pc - module->bias, &row) != 0)
        return STEP_STOP;
    enum row_result result = row_step(module->object, &row, &w->reader, w->regs, &w->valid);
    if (result == ROW_NEEDS_REGISTER && w->full && walk_find_frame_pointer(w, module, &row))
        result = row_step(module->object, &row, &w->reader, w->regs, &w->valid);
    switch (result) {
    case ROW_CALLER:
        w->exact = row.signal_frame;
        return STEP_CALLER;
    case ROW_OUTERMOST:
        return STEP_END;
    case ROW_NEEDS_REGISTER:
        return w->full ? STEP_STOP : STEP_AGAIN;
    default:
        return STEP_STOP;
    }
}

/* Out of the kernel's way back from a handler, where no table tells of it. */
static __attribute__((noinline)) enum step step_signal_return(struct walk *w)
{
    if (!arch_signal_return(&w->reader, w->regs))
        return STEP_STOP;
    w->valid = ALL_REGISTERS;
    w->exact = true;
    return STEP_CALLER;
}

static void note_purity(struct walk *w, uint64_t rule)
{
    bool known = rule_kind(rule) != RULE_UNKNOWN;
    w->left_known_code = w->left_known_code || (w->purity == PURE_APP && !known);
    w->purity = purity_after(w->purity, (rule & RULE_SYSTEM) != 0, known, w->count == 0);
}

/* Writes the frame down; false when there is no room. */
static inline bool record(struct walk *w, uintptr_t pc, uint64_t rule)
{
    if (pc - modules_self_start < modules_self_end - modules_self_start) {
        if (w->innermost)
            w->flags |= UNWIND_LEAF_SELF;
        return w->self_frames++ < SELF_FRAMES_MAX;
    }
    if (unlikely(w->count == w->max)) {
        w->flags |= UNWIND_CUT;
        return false;
    }
    if (w->purity != IMPURE)
        note_purity(w, rule);
    w->pcs[w->count++] = pc;
    return true;
}

/* Whether the walk may go on from `sp` to the caller's stack pointer: upwards always, and
 * anywhere, some times, from the innermost frame (code that changes stacks) and behind a signal
 * frame. */
static bool sp_may_follow(struct walk *w, bool was_exact, uintptr_t sp, uintptr_t caller_sp)
{
    if (likely(caller_sp > sp && !w->exact))
        return true;
    if (w->exact) {
        w->purity = IMPURE;
        w->flags |= UNWIND_INTERRUPTED;
        stack_reader_change_stack(&w->reader, caller_sp);
    }
    /* A leaf with a link register may have no frame at all. */
    if (caller_sp > sp || (ARCH_HAS_LINK && was_exact && !w->exact && caller_sp == sp))
        return true;
    return (w->innermost || w->exact) && w->switches++ < SWITCHES_MAX;
}

/* Return addresses in code whose rules are cached and simple, which most frames are, walked in
 * registers. STEP_CALLER: the next frame is not such a one. */
static inline enum step walk_simple_frames(struct walk *w)
{
    uintptr_t *r = w->regs->r;
    uintptr_t sp = r[UNWIND_SP], fp = r[UNWIND_FP], pc = r[UNWIND_PC];
    uintptr_t self_start = modules_self_start, self_size = modules_self_end - self_start;
    uint32_t publication = w->list->publication;
    /* Not through `w`, which the stores to pcs could be for all that the compiler knows. */
    uint64_t *begin = w->pcs + w->count, *next = begin, *end = w->pcs + w->max;
    enum step step = STEP_CALLER;
    for (;;) {
        uintptr_t at = pc - 1;
        if (unlikely(at >> RULE_PC_BITS != 0)) {
            step = pc ? STEP_CALLER : STEP_END;
            break;
        }
        uint64_t rule = rule_lookup(publication, at);
        enum rule_kind kind = rule_kind(rule);
        if (kind == RULE_NONE || kind > RULE_SIMPLE_LAST || at - self_start < self_size ||
            next == end)
            break;
        if ((rule & RULE_SYSTEM || w->purity != PURE_APP) && w->purity != IMPURE) {
            w->count = (uint32_t)(next - w->pcs);
            note_purity(w, rule);
        }
        *next++ = at;
        uintptr_t callee_sp = sp;
        if (unlikely(!arch_step(rule, &w->reader, &sp, &fp, &pc, 0) || sp <= callee_sp)) {
            step = STEP_STOP;
            break;
        }
    }
    if (next == begin)
        return step;
    w->count = (uint32_t)(next - w->pcs);
    w->known_count = 0;
    w->valid = FOLLOWED_REGISTERS;
    r[UNWIND_SP] = sp;
    r[UNWIND_FP] = fp;
    r[UNWIND_PC] = pc;
    return step;
}

/* On what the walk reads, or below it on the home stack. */
static bool is_on_stack(const struct stack_reader *reader, uintptr_t address)
{
    return address - reader->low < reader->high - reader->low ||
           (address >= reader->home->low && address < reader->home->high);
}

/* Walks until the stack ends; STEP_AGAIN when it takes all registers. */
static enum step walk_frames(struct walk *w)
{
    uintptr_t *r = w->regs->r;
    bool callee_is_unknown = false;
    for (;;) {
        bool fp_known = w->valid >> UNWIND_FP & 1;
        if (!w->full && !w->exact && !w->innermost && fp_known && w->valid >> UNWIND_SP & 1) {
            uint32_t before = w->count;
            enum step step = walk_simple_frames(w);
            if (step != STEP_CALLER)
                return step;
            if (w->count != before)
                callee_is_unknown = false;
        }
        uintptr_t pc = r[UNWIND_PC] - !w->exact;
        uint64_t rule = walk_rule(w, pc);
        enum rule_kind kind = rule_kind(rule);
        bool signal_return =
            kind >= RULE_NO_FDE && arch_is_signal_return(&w->reader, r[UNWIND_PC], w->exact);
        if (unlikely(kind == RULE_UNKNOWN && !signal_return)) {
            /* Not known to be code: at least memory, behind a call, and not the stack, or it is
             * rubbish off a broken stack. Interpreters that are made code push where they go on,
             * which no call precedes (HotSpot's): among frame records that is not asked. */
            if (!w->innermost &&
                (is_on_stack(&w->reader, pc) ||
                 !(w->exact || callee_is_unknown ? stack_reader_can_read(&w->reader, pc)
                                                 : return_is_behind_call(&w->reader, pc + 1))))
                return STEP_STOP;
        } else {
            w->known_count = 0;
        }
        callee_is_unknown = kind == RULE_UNKNOWN;
        if (!record(w, pc, rule))
            return STEP_STOP;
        uintptr_t sp = r[UNWIND_SP];
        bool was_exact = w->exact;
        enum step step = STEP_CALLER;
        if (kind == RULE_END)
            return STEP_END;
        if (signal_return) {
            step = step_signal_return(w);
        } else if (kind >= RULE_NO_FDE) {
            step = walk_guess(w, kind, pc);
        } else if (unlikely(kind == RULE_FULL || w->full || !fp_known)) {
            step = step_full(w, pc);
        } else {
            uintptr_t link = w->valid >> UNWIND_RA & 1 ? r[UNWIND_RA] : 0;
            bool needs_sp = kind == RULE_SP_ONLY && !(w->valid >> UNWIND_SP & 1);
            if (needs_sp ||
                !arch_step(rule, &w->reader, &r[UNWIND_SP], &r[UNWIND_FP], &r[UNWIND_PC], link))
                step = STEP_STOP;
            w->valid = FOLLOWED_REGISTERS;
            w->exact = false;
        }
        if (unlikely(step != STEP_CALLER))
            return step;
        if (unlikely(!sp_may_follow(w, was_exact, sp, r[UNWIND_SP])))
            return STEP_STOP;
        w->innermost = false;
        if (unlikely(r[UNWIND_PC] == 0))
            return STEP_END;
    }
}

/* Walks by one list of objects. */
static inline __attribute__((always_inline)) enum step
walk_by_list(struct walk *w, const struct unwind_regs *start, bool exact, struct unwind_stack *home)
{
    const struct copied_stack *copied = copied_stack(home);
    enum step step;
    do {
        w->full = w->valid != 0; /* the second time */
        w->valid = copied ? copied->valid : ALL_REGISTERS;
        w->exact = exact;
        w->innermost = true;
        w->left_known_code = false;
        w->count = w->flags = w->known_count = 0;
        w->switches = w->self_frames = 0;
        w->purity = PURE_APP;
        stack_reader_start(&w->reader, home, start->r[UNWIND_SP]);
        *w->regs = *start;
        step = walk_frames(w);
    } while (step == STEP_AGAIN && !w->full);
    return step;
}

uint32_t unwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation)
{
    *flags = 0;
    *generation = 0;
    if (!load_acquire(&modules_list) || !rule_cache)
        return 0;
    if (unlikely(!load_relaxed(&rule_cache_in_memory)))
        rule_cache_prefault();
    struct unwind_regs start = *regs;
    struct walk w = {.regs = regs, .pcs = pcs, .max = max};
    enum step step;
    bool is_again = false;
    do {
        w.list = load_acquire(&modules_list);
        w.valid = 0;
        *generation = w.list->generation;
        step = walk_by_list(&w, &start, exact, home);
        /* The loader may be asked in a thread of the app alone. */
    } while (unlikely(w.left_known_code) && !copied_stack(home) && !is_again &&
             (is_again = catch_up(home)));
    if (w.known_count)
        w.count = w.known_count;
    if (step == STEP_END)
        w.flags |= UNWIND_COMPLETE;
    w.flags |= purity_flag(w.purity, w.flags, w.count, w.switches ? NULL : &w.reader);
    *flags = w.flags;
    return w.count;
}

void unwind_behind_record(struct unwind_regs *regs)
{
    const struct walk w = {.list = load_acquire(&modules_list)};
    if (ARCH_HAS_LINK && w.list && rule_cache)
        (void)arch_place_sp(walk_rule(&w, regs->r[UNWIND_PC] - 1), regs);
}

/* How much speaks against a walk behind the frame whose place was chosen: it ended in the midst,
 * and where a call led elsewhere. A record that an earlier call left has old callers, but the frame
 * that they and the present ones have in common has made the present call. */
static uint32_t count_doubts(struct copied_stack *copied, const uint64_t *pcs, uint32_t count,
                             uint32_t flags)
{
    enum { LOOKED_AT = 64, INCOMPLETE = LOOKED_AT + 1 };
    struct walk w = {.list = load_acquire(&modules_list), .reader = {.home = &copied->mark}};
    uint32_t doubts = 0, first = MAX_OF(copied->choice->frame, 1u);
    if (!(flags & UNWIND_CUT) && (!count || rule_kind(walk_rule(&w, pcs[count - 1])) != RULE_END))
        doubts = INCOMPLETE;
    for (uint32_t i = first; i < count && i - first < LOOKED_AT; i++)
        doubts += return_is_doubtful(w.list, &w.reader, pcs[i] + 1, pcs[i - 1]);
    return doubts;
}

uint32_t unwind_walk_copy(struct unwind_regs *regs, uint64_t valid, bool exact,
                          const struct stack_copy *copy, uint64_t *pcs, uint32_t max,
                          uint32_t *flags, uint32_t *generation)
{
    struct frame_choice choice = {.count = 0};
    struct copied_stack copied = {{UINTPTR_MAX, 0}, copy, valid, &choice};
    const struct unwind_regs start = *regs;
    uint32_t count = unwind_walk(regs, exact, &copied.mark, pcs, max, flags, generation);
    if (choice.count <= 1)
        return count;
    uint32_t least = count_doubts(&copied, pcs, count, *flags);
    size_t best = 0;
    for (size_t i = 1; i < choice.count && least; i++) {
        choice.taken = i;
        *regs = start;
        count = unwind_walk(regs, exact, &copied.mark, pcs, max, flags, generation);
        uint32_t doubts = count_doubts(&copied, pcs, count, *flags);
        if (doubts < least) {
            least = doubts;
            best = i;
        }
    }
    if (choice.taken == best)
        return count;
    choice.taken = best;
    *regs = start;
    return unwind_walk(regs, exact, &copied.mark, pcs, max, flags, generation);
}
