/* rescan.h: the list of loaded objects is brought up to date where a walk met code of none, at a
 * moment when the loader may be waited for.
 *
 * Owns: when that was done last. Context: THR, SIG at a clean moment (agent/thread/moment.h), TICK
 * where that is a thread of libc's. Locks: LOCK_MODULES. */
#ifndef LIBAGENT_RESCAN_H
#define LIBAGENT_RESCAN_H

#include <stdint.h>

#include "agent/base/clock.h"

/* A scan of the loaded objects costs tens of microseconds: once a second at most. */
#define RESCAN_EVERY_NS NS_PER_SEC

void rescan_if_stale(uint64_t now_ns);
/* CLOCK_MONOTONIC; UINT64_MAX: there is nothing to do. Any context. */
uint64_t rescan_due(void);
void rescan_reset_in_child(void);

#endif
