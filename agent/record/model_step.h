/* model_step.h: where a suite lets another thread come in between. In the test flavour each access
 * of the live heap to memory that threads share is preceded by a step, which says where that memory
 * is; by these a suite runs all orders of events (test/check_heap_model.c). Nothing is left of it
 * in the product. What a lock protects needs none, nor sums, whose order does not matter.
 *
 * Owns: nothing (test flavour: model_step). Context: any. Locks: none. */
#ifndef LIBAGENT_MODEL_STEP_H
#define LIBAGENT_MODEL_STEP_H

#include "agent/base/compiler.h"

#ifdef LIBAGENT_TEST
/* Set while there is one thread only. */
extern HIDDEN void (*model_step)(const void *place);
#endif

static inline void step(const void *place)
{
    (void)place;
#ifdef LIBAGENT_TEST
    if (unlikely(model_step))
        model_step(place);
#endif
}

#endif
