#include "agent/rescan.h"

#include <errno.h>

#include "agent/base/log.h"
#include "agent/unwind/modules.h"

/* So many seconds without a scan of the objects, by whomever, are told. */
enum { LATE_RESCANS_TOLD = 10 };
/* At a moment a thread of the app waits, in the middle of its own work. */
static const uint64_t moment_wait_ns = NS_PER_MS;

static uint64_t next_rescan_ns;
static uint32_t late_rescans; /* since scan number `last_scan`; stays where it was told */
static uint32_t last_scan;

/* One that waited in vain is no news where many threads share a processor (who held the lock had
 * just lost it), nor are many where the app loads objects without a pause: each of its calls scans
 * when it has given the lock back. */
static void note_late(void)
{
    uint32_t scan = load_relaxed(&modules_scans), late = load_relaxed(&late_rescans);
    if (scan != load_relaxed(&last_scan) && late < LATE_RESCANS_TOLD) {
        store_relaxed(&last_scan, scan);
        store_relaxed(&late_rescans, 0);
    }
    if (add_relaxed(&late_rescans, 1) + 1 == LATE_RESCANS_TOLD)
        log_warn("the list of loaded objects is not up to date: for %d s the loader was busy "
                 "whenever it was asked; what was loaded since then has no names",
                 LATE_RESCANS_TOLD);
}

void rescan_if_stale(uint64_t now)
{
    if (!load_relaxed(&modules_stale) || now < load_relaxed(&next_rescan_ns))
        return;
    store_relaxed(&next_rescan_ns, now + RESCAN_EVERY_NS);
    store_relaxed(&modules_stale, 0);
    if (modules_rescan_within(moment_wait_ns) == -ETIMEDOUT)
        note_late();
}

uint64_t rescan_due(void)
{
    return load_relaxed(&modules_stale) ? load_relaxed(&next_rescan_ns) : UINT64_MAX;
}

void rescan_reset_in_child(void)
{
    next_rescan_ns = 0;
}
