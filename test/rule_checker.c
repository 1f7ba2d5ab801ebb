#include "test/rule_checker.h"

#include <stdbool.h>

#include "agent/unwind/modules.h"
#include "agent/unwind/unwind_arch.h"

struct rule_checks rule_checks;

/* Kind, slot, offset, and whether the object is_system. */
static uint64_t meaning(uint64_t rule)
{
    return rule >> (64 - RULE_BITS);
}

static uint64_t right_rule(const struct module_list *list, uintptr_t pc, uint64_t given,
                           bool *left_out)
{
    const struct module *module = modules_find(list, pc);
    if (!module)
        return rule_make(RULE_UNKNOWN, 0, 0);
    struct cfi_row row;
    uint64_t vaddr = pc - module->bias;
    uint64_t rule;
    if (cfi_row_at(module->object, vaddr, &row) == 0) {
        *left_out = row.bare;
        rule = arch_pack(module->object, &row, vaddr);
    } else {
        /* A return address that was planted at a function's begin ends the stack. */
        bool planted = cfi_row_at(module->object, vaddr + 1, &row) == 0 && row.start == vaddr + 1;
        rule = rule_make(planted && rule_kind(given) == RULE_END ? RULE_END : RULE_NO_FDE, 0, 0);
    }
    return module->object->is_system ? rule | RULE_SYSTEM : rule;
}

static void compare(uint32_t publication, uintptr_t pc, uint64_t rule)
{
    const struct module_list *list = load_acquire(&modules_list);
    if (list->publication != publication) {
        add_relaxed(&rule_checks.outdated, 1);
        return;
    }
    bool left_out = false;
    uint64_t right = right_rule(list, pc, rule, &left_out);
    if (left_out) {
        add_relaxed(&rule_checks.left_out, 1);
    } else if (meaning(right) == meaning(rule)) {
        add_relaxed(&rule_checks.equal, 1);
    } else {
        add_relaxed(&rule_checks.stale, 1);
        store_relaxed(&rule_checks.stale_pc, pc);
        store_relaxed(&rule_checks.stale_rule, rule);
        store_relaxed(&rule_checks.right_rule, right);
    }
}

void rule_checker_start(void)
{
    rule_watch = compare;
}
