/* rule_checker.h: compares every rule that the cache gives with the one that the tables of the
 * loaded objects give for the same address.
 *
 * The list of objects is the current one. Where it is no more the one that the rule was asked for,
 * there is nothing to compare with; that is counted, and rare. Rules of functions whose tables say
 * nothing depend on machine code, and are left out. */
#ifndef LIBAGENT_TEST_RULE_CHECKER_H
#define LIBAGENT_TEST_RULE_CHECKER_H

#include <stdint.h>

/* Grow in all threads. */
struct rule_checks {
    uint64_t equal, outdated, left_out;
    uint64_t stale; /* rules of another object, or of none */
    /* The last one of these. */
    uint64_t stale_pc, stale_rule, right_rule;
};
extern struct rule_checks rule_checks;

/* From here on; before threads start. Walks must be inside a thread guard. */
void rule_checker_start(void);

#endif
