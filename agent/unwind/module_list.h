/* module_list.h: what is done with a list of modules alone.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_MODULE_LIST_H
#define LIBAGENT_MODULE_LIST_H

#include "agent/unwind/modules.h"

/* By start; an end that lies in the next one is moved to its start. */
void module_list_sort(struct module_list *list);
bool modules_equal(const struct module *a, const struct module *b);
/* `b` may be NULL. */
bool module_lists_equal(const struct module_list *a, const struct module_list *b);

#endif
