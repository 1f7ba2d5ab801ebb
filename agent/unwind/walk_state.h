/* walk_state.h: the state of a walk, for the files that it is made of: unwind.c (the loop, rules
 * and rows), walk_guess.c (code without rules).
 *
 * Owns: nothing. Context: any, inside a walk. Locks: none. */
#ifndef LIBAGENT_WALK_STATE_H
#define LIBAGENT_WALK_STATE_H

#include "agent/unwind/return_scan.h"
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/unwind_arch.h"

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
    uint8_t purity;  /* enum purity */
    uint8_t switches, self_frames;
    bool exact;     /* pc is an interrupted one, not a return address */
    bool innermost; /* no step was taken yet */
    bool full;
    bool left_known_code; /* from the app's own, or began outside of it: see catch_up.h */
};

/* Where the first frame that hangs on an unknown frame pointer can have it, of a stack that is
 * copied: of several the walks tell which one it is. */
struct frame_choice {
    uintptr_t sp; /* that frame's */
    uintptr_t places[RETURN_PAIRS];
    size_t count, taken; /* `taken`: of this walk */
    uint32_t frame;      /* the number of its caller among the program counters */
};

/* Makes the rule of an address that the cache does not know. */
uint64_t walk_make_rule(const struct walk *w, uintptr_t pc);

/* The rule of an address, known or made. */
static inline uint64_t walk_rule(const struct walk *w, uintptr_t pc)
{
    uint64_t rule = rule_make(RULE_UNKNOWN, 0, 0);
    if (likely(pc >> RULE_PC_BITS == 0)) {
        rule = rule_lookup(w->list->publication, pc);
        if (unlikely(rule_kind(rule) == RULE_NONE))
            rule = walk_make_rule(w, pc);
    }
    return rule;
}

/* Finds the frame pointer that `row` needs, of a frame whose stack pointer is known (see
 * return_pairs). False: nothing is changed. */
bool walk_find_frame_pointer(struct walk *w, const struct module *module,
                             const struct cfi_row *row);

/* A step out of code without rules at `pc`. */
enum step walk_guess(struct walk *w, enum rule_kind kind, uintptr_t pc);

#endif
