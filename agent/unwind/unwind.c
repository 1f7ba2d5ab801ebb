/* The walk. Each frame: look its rule up by pc (rule_cache), on a miss make it (modules, cfi),
 * write the pc down, step. Three registers (stack pointer, frame pointer, pc) are followed; the
 * others are known at the start and again behind a signal frame. A row that needs one that is
 * not known starts the walk anew with `full`: then every row is interpreted, and all registers
 * are followed (about one walk in a thousand). */
#include "agent/unwind/unwind.h"

#include <errno.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/unwind/catch_up.h"
#include "agent/unwind/row_step.h"
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/unwind_arch.h"

/* Stacks that a walk may enter by a signal frame: handlers nest, but not endlessly. */
enum { SWITCHES_MAX = 16 };
/* Frames of libagent.so in one walk, which take no place in `pcs`. */
enum { SELF_FRAMES_MAX = 64 };

#define ALL_REGISTERS      ((1ull << UNWIND_REGS) - 1)
#define FOLLOWED_REGISTERS (1ull << UNWIND_SP | 1ull << UNWIND_FP | 1ull << UNWIND_PC)

enum step { STEP_CALLER, STEP_END, STEP_STOP, STEP_AGAIN };

struct walk {
    struct unwind_regs *regs;
    const struct module_list *list;
    struct stack_reader reader;
    uint64_t *pcs;
    uint64_t valid; /* registers that are known */
    uint32_t max, count;
    uint32_t flags;
    uint32_t
        known_count; /* frames to keep if a chain through unknown code leads nowhere; 0: none */
    enum purity purity;
    uint8_t switches, self_frames;
    bool exact;     /* pc is an interrupted one, not a return address */
    bool innermost; /* no step was taken yet */
    bool full;
    bool left_known_code; /* from the app's own, or began outside of it: see catch_up.h */
};

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
 * pc comes out of a signal frame in memory, that is first asked. */
static uint64_t bare_rule(const struct walk *w, const struct module *module,
                          const struct cfi_row *row, uintptr_t pc)
{
    uintptr_t start = module->bias + row->start;
    if (!w->exact || !module->object->code_readable || start < module->start ||
        row->size > module->end - start)
        return rule_make(RULE_NONE, 0, 0);
    if (w->reader.copy)
        return bare_rule_copied(w->reader.copy, start, row->size, pc);
    if (!w->innermost && !(sys_readable(start) && sys_readable(pc)))
        return rule_make(RULE_NONE, 0, 0);
    return arch_bare_rule((const uint8_t *)start, pc - start, row->size);
}

/* Return addresses point behind a call, so one at a function's first byte was put there by hand:
 * it is where a context's first function returns to (libc's __start_context). */
static bool is_planted(const struct object *object, uint64_t vaddr, struct cfi_row *row)
{
    return cfi_row_at(object, vaddr + 1, row) == 0 && row->start == vaddr + 1;
}

/* Makes the rule of an address that the cache does not know. */
static __attribute__((noinline)) uint64_t make_rule(const struct walk *w, uintptr_t pc)
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
    switch (row_step(module->object, &row, &w->reader, w->regs, &w->valid)) {
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

/* The rule of an address, known or made. */
static inline uint64_t rule_at(const struct walk *w, uintptr_t pc)
{
    uint64_t rule = rule_make(RULE_UNKNOWN, 0, 0);
    if (likely(pc >> RULE_PC_BITS == 0)) {
        rule = rule_lookup(w->list->publication, pc);
        if (unlikely(rule_kind(rule) == RULE_NONE))
            rule = make_rule(w, pc);
    }
    return rule;
}

static enum step go_to(struct walk *w, uintptr_t sp, uintptr_t fp, uintptr_t pc)
{
    w->regs->r[UNWIND_SP] = sp;
    w->regs->r[UNWIND_FP] = fp;
    w->regs->r[UNWIND_PC] = pc;
    w->valid = FOLLOWED_REGISTERS;
    w->exact = false;
    return STEP_CALLER;
}

/* By a frame record; STEP_STOP when the frame pointer is at none. */
static enum step step_by_record(struct walk *w, enum rule_kind kind, uintptr_t fp)
{
    uintptr_t sp = w->regs->r[UNWIND_SP], caller_fp, pc;
    if (fp % sizeof(fp) != 0 || fp < sp || !stack_read(&w->reader, fp, &caller_fp) ||
        !stack_read(&w->reader, fp + sizeof(fp), &pc))
        return STEP_STOP;
    pc = arch_return_address(pc);
    bool known = pc && modules_find(w->list, pc - 1);
    bool outermost = !pc && !caller_fp;
    if (!known && !outermost && (kind != RULE_UNKNOWN || !pc))
        return STEP_STOP;
    if (!known && !outermost && !w->known_count)
        w->known_count = w->count;
    go_to(w, fp + 2 * sizeof(fp), caller_fp, pc);
    if (known && !arch_place_sp(rule_at(w, pc - 1), w->regs))
        w->valid &= ~(1ull << UNWIND_SP);
    return STEP_CALLER;
}

/* Where the code begins that may be read up to the interrupted `pc`; `pc` itself: none. */
static uintptr_t readable_code(const struct walk *w, uintptr_t pc)
{
    const struct module *module = modules_find(w->list, pc);
    if (!module || !module->object->code_readable || w->reader.copy ||
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
    if (ARCH_HAS_LINK && rule_kind(rule_at(w, pc - 1)) >= RULE_NO_FDE)
        return STEP_STOP;
    return go_to(w, sp, w->regs->r[UNWIND_FP], pc);
}

/* A step out of code without rules (assembly without call frame information, JIT code): by a
 * frame record that the frame pointer points at, or, where the innermost code may have none, by
 * the word on top of the stack or the link register. Either must lead into known code; only from
 * unknown code a chain may go on through unknown code, and must come to known code in the end. */
static __attribute__((noinline)) enum step step_guess(struct walk *w, enum rule_kind kind)
{
    uintptr_t fp = w->valid >> UNWIND_FP & 1 ? w->regs->r[UNWIND_FP] : 0;
    bool may_be_leaf = w->innermost || (ARCH_HAS_LINK && w->exact);
    if (ARCH_HAS_LINK && may_be_leaf && step_by_leaf(w) == STEP_CALLER)
        return STEP_CALLER;
    if (step_by_record(w, kind, fp) == STEP_CALLER)
        return STEP_CALLER;
    if (may_be_leaf)
        return ARCH_HAS_LINK ? STEP_STOP : step_by_leaf(w);
    /* The ABI's mark of the outermost frame; the loader's entry code has nothing else. */
    return fp == 0 && kind == RULE_NO_FDE ? STEP_END : STEP_STOP;
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
    uint32_t before = w->count;
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
            w->count == w->max)
            break;
        if ((rule & RULE_SYSTEM || w->purity != PURE_APP) && w->purity != IMPURE)
            note_purity(w, rule);
        w->pcs[w->count++] = at;
        uintptr_t callee_sp = sp;
        if (unlikely(!arch_step(rule, &w->reader, &sp, &fp, &pc, 0) || sp <= callee_sp)) {
            step = STEP_STOP;
            break;
        }
    }
    if (w->count == before)
        return step;
    w->known_count = 0;
    w->valid = FOLLOWED_REGISTERS;
    r[UNWIND_SP] = sp;
    r[UNWIND_FP] = fp;
    r[UNWIND_PC] = pc;
    return step;
}

/* Walks until the stack ends; STEP_AGAIN when it takes all registers. */
static enum step walk_frames(struct walk *w)
{
    uintptr_t *r = w->regs->r;
    for (;;) {
        bool fp_known = w->valid >> UNWIND_FP & 1;
        if (!w->full && !w->exact && !w->innermost && fp_known && w->valid >> UNWIND_SP & 1) {
            enum step step = walk_simple_frames(w);
            if (step != STEP_CALLER)
                return step;
        }
        uintptr_t pc = r[UNWIND_PC] - !w->exact;
        uint64_t rule = rule_at(w, pc);
        enum rule_kind kind = rule_kind(rule);
        bool signal_return =
            kind >= RULE_NO_FDE && arch_is_signal_return(&w->reader, r[UNWIND_PC], w->exact);
        if (unlikely(kind == RULE_UNKNOWN && !signal_return)) {
            /* Not known to be code: at least memory, and not the stack, or it is rubbish off a
             * broken stack. */
            if (!w->innermost && (pc - w->reader.low < w->reader.high - w->reader.low ||
                                  !stack_reader_can_read(&w->reader, pc)))
                return STEP_STOP;
        } else {
            w->known_count = 0;
        }
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
            step = step_guess(w, kind);
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

/* Where a walk begins, and what it reads: by `copy`, or where that is NULL the caller's own stack,
 * of which `home` is known. */
struct origin {
    uint64_t valid;
    bool exact;
    struct unwind_stack *home;
    const struct stack_copy *copy;
};

/* Walks by one list of objects. */
static inline __attribute__((always_inline)) enum step
walk_by_list(struct walk *w, const struct unwind_regs *start, const struct origin *origin)
{
    enum step step;
    do {
        w->full = w->valid != 0; /* the second time */
        w->valid = origin->valid;
        w->exact = origin->exact;
        w->innermost = true;
        w->left_known_code = false;
        w->count = w->flags = w->known_count = 0;
        w->switches = w->self_frames = 0;
        w->purity = PURE_APP;
        if (origin->copy)
            stack_reader_start_copy(&w->reader, origin->copy);
        else
            stack_reader_start(&w->reader, origin->home, start->r[UNWIND_SP]);
        *w->regs = *start;
        step = walk_frames(w);
    } while (step == STEP_AGAIN && !w->full);
    return step;
}

static inline __attribute__((always_inline)) uint32_t walk(struct unwind_regs *regs,
                                                           struct origin origin, uint64_t *pcs,
                                                           uint32_t max, uint32_t *flags,
                                                           uint32_t *generation)
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
        step = walk_by_list(&w, &start, &origin);
        /* The loader may be asked in a thread of the app alone. */
    } while (unlikely(w.left_known_code) && !origin.copy && !is_again &&
             (is_again = catch_up(origin.home)));
    if (w.known_count)
        w.count = w.known_count;
    if (step == STEP_END) {
        w.flags |= UNWIND_COMPLETE;
        bool one_stack = w.switches == 0 && !(w.flags & UNWIND_INTERRUPTED);
        if (one_stack && stack_reader_adopt(&w.reader) && w.purity != IMPURE && w.count)
            w.flags |= UNWIND_CLEAN;
    }
    *flags = w.flags;
    return w.count;
}

uint32_t unwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation)
{
    const struct origin origin = {.valid = ALL_REGISTERS, .exact = exact, .home = home};
    return walk(regs, origin, pcs, max, flags, generation);
}

void unwind_behind_record(struct unwind_regs *regs)
{
    const struct walk w = {.list = load_acquire(&modules_list)};
    if (ARCH_HAS_LINK && w.list && rule_cache)
        (void)arch_place_sp(rule_at(&w, regs->r[UNWIND_PC] - 1), regs);
}

/* cppcheck-suppress unusedFunction; the tests of the walk, and what reads blocked threads */
uint32_t unwind_walk_copy(struct unwind_regs *regs, uint64_t valid, bool exact,
                          const struct stack_copy *copy, uint64_t *pcs, uint32_t max,
                          uint32_t *flags, uint32_t *generation)
{
    const struct origin origin = {.valid = valid, .exact = exact, .copy = copy};
    return walk(regs, origin, pcs, max, flags, generation);
}
