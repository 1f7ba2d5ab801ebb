/* slot_fixture.h: threads of a suite, and what the table of slots holds of them. */
#ifndef LIBAGENT_TEST_SLOT_FIXTURE_H
#define LIBAGENT_TEST_SLOT_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/thread/thread_context.h"

/* Returns when the new thread has ended. */
void run_in_thread(void *(*routine)(void *), void *argument);
bool slot_is_used(const struct thread_slot *slot);
uint32_t slots_in_use(void);

#endif
