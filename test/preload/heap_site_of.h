/* heap_site_of.h: which of the places of heap_sites.h a stack is of.
 * Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_HEAP_SITE_OF_H
#define LIBAGENT_TEST_HEAP_SITE_OF_H

#include <stdlib.h>
#include <string.h>

#include "test/preload/profile_reader.h"

enum { WAYS = 10, SITES = WAYS * WAYS * WAYS };

static inline int heap_way_of(const struct stack *stack, const char *kind)
{
    for (uint32_t i = 0; i < stack->depth; i++)
        if (strncmp(stack->frames[i].function, kind, strlen(kind)) == 0)
            return atoi(stack->frames[i].function + strlen(kind));
    return -1;
}

/* -1: of none. */
static inline int heap_site_of(const struct stack *stack)
{
    int inner = heap_way_of(stack, "inner_"), middle = heap_way_of(stack, "middle_"),
        outer = heap_way_of(stack, "outer_");
    return inner < 0 || middle < 0 || outer < 0 ? -1 : (outer * WAYS + middle) * WAYS + inner;
}

#endif
