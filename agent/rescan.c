#include "agent/rescan.h"

#include <errno.h>

#include "agent/base/log.h"
#include "agent/unwind/modules.h"

/* So many seconds without a rescan are told. */
enum { LATE_RESCANS_TOLD = 10 };
/* At a moment a thread of the app waits, in the middle of its own work. */
static const uint64_t moment_wait_ns = NS_PER_MS;

static uint64_t next_rescan_ns;
static uint32_t late_rescans; /* in a row; stays where it was told */

void rescan_if_stale(uint64_t now)
{
    if (!load_relaxed(&modules_stale) || now < load_relaxed(&next_rescan_ns))
        return;
    store_relaxed(&next_rescan_ns, now + RESCAN_EVERY_NS);
    store_relaxed(&modules_stale, 0);
    /* One that waited in vain is no news where many threads share a processor: who held the lock
     * had just lost it. */
    int error = modules_rescan_within(moment_wait_ns);
    if (error == -ETIMEDOUT && add_relaxed(&late_rescans, 1) + 1 == LATE_RESCANS_TOLD)
        log_warn("the list of loaded objects is not up to date (error %d)", -error);
    if (!error && load_relaxed(&late_rescans) < LATE_RESCANS_TOLD)
        store_relaxed(&late_rescans, 0);
}

uint64_t rescan_due(void)
{
    return load_relaxed(&modules_stale) ? load_relaxed(&next_rescan_ns) : UINT64_MAX;
}

void rescan_reset_in_child(void)
{
    next_rescan_ns = 0;
}
