#include "agent/thread/thread_reset.h"

#include <errno.h>

#include "agent/base/nap.h"
#include "agent/thread/captures.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/thread_scan.h"

static bool nobody_can_run(void)
{
    if (!presence_wait_others_left(0))
        return false;
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        if ((load_acquire(&slot->guard) & 1) || load_acquire(&slot->timer) >= 0)
            return false;
    }
    return true;
}

int thread_reset_all(bool (*is_own)(int tid), uint64_t deadline_ns)
{
    if (thread_tls.entered)
        return -EBUSY;
    while (!nobody_can_run())
        if (!nap_before(deadline_ns))
            return -EBUSY;
    if (__atomic_add_fetch(&thread_generation, 1, __ATOMIC_SEQ_CST) == 0)
        store_release(&thread_generation, 1);
    bool has_names = thread_scan_is_possible();
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        if (load_acquire(&slot->state) != SLOT_USED || load_relaxed(&slot->tid) == 0)
            continue;
        if (!thread_adopt_again(slot))
            thread_release_slot(slot);
        else if (has_names)
            thread_read_name(slot);
    }
    captures_reset();
    thread_scan_all(is_own);
    return 0;
}
