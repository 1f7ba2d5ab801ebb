/* order_search.h: runs code of several actors in all orders of their accesses to shared memory, as
 * far as one differs from the others by more than the order of accesses to different places:
 * dynamic partial-order reduction after Flanagan and Godefroid (2005); every access is taken for a
 * write. The code stops before each access (agent/record/model_step.h).
 *
 * Owns: the actors' stacks; model_step while it runs. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_ORDER_SEARCH_H
#define LIBAGENT_TEST_ORDER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { ACTORS_MAX = 3 };

struct order_case {
    void (*restore)(void);       /* before each order */
    void (*const *actors)(void); /* NULL at the end */
    void (*judge)(void);         /* after it */
};

/* At most `most` orders; tells how many, and whether these are all. */
uint64_t order_search(const struct order_case *orders, uint64_t most, bool *all);

#endif
