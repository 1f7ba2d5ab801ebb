/* nap.h: between two looks at what another thread is about to finish. That takes microseconds, and
 * longer only where the thread has lost its processor: so who waits leaves it one.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_NAP_H
#define LIBAGENT_NAP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* Sleeps for 50 us, and true, unless the CLOCK_MONOTONIC deadline (UINT64_MAX: none) is reached. */
bool nap_before(uint64_t deadline_ns) MUST_USE;

#endif
