/* module_history.h: which object stood where, for addresses recorded earlier.
 *
 * An entry is a module and the range of generations for which it answers. It stays open (answers
 * for all later generations too) after a dlclose, until another object takes its addresses.
 * Bounded: when full, what was closed (or, of the open ones, came) first is forgotten.
 * Owns: the history. Context: INIT, THR, TICK. Locks: the caller holds LOCK_MODULES. */
#ifndef LIBAGENT_MODULE_HISTORY_H
#define LIBAGENT_MODULE_HISTORY_H

#include "agent/unwind/modules.h"

/* 0 or -ENOMEM. */
int history_start(void) MUST_USE;
/* True when another object (or the same one with another bias) answers for addresses of the
 * module. */
bool history_conflicts(const struct module *module);
/* The module answers from `generation` on; entries in its way answer for earlier ones only. */
void history_add(const struct module *module, uint32_t generation);
struct module_address history_resolve(uint32_t generation, uintptr_t pc);
#ifdef LIBAGENT_TEST
void history_forget(void);
#endif

#endif
