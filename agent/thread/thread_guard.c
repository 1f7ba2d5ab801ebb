/* thread_guard.c: whether samples that were under way are over (thread_context.h). */
#include "agent/base/nap.h"
#include "agent/thread/thread_context.h"

bool thread_guard_quiescent(uint64_t deadline_ns)
{
    full_fence();
    uint32_t count = thread_slot_count();
    for (uint32_t i = 0; i < count; i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        uint32_t seen = __atomic_load_n(&slot->guard, __ATOMIC_SEQ_CST);
        if (!(seen & 1))
            continue;
        while (load_acquire(&slot->guard) == seen)
            if (!nap_before(deadline_ns))
                return false;
    }
    return true;
}

void thread_grace_begin(struct thread_grace *grace)
{
    full_fence();
    grace->count = 0;
    uint32_t count = thread_slot_count();
    for (uint32_t i = 0; i < count; i++) {
        uint32_t guard = __atomic_load_n(&thread_slot_at(i)->guard, __ATOMIC_SEQ_CST);
        if (!(guard & 1))
            continue;
        if (grace->count < THREAD_GRACE_OPEN) {
            grace->open[grace->count].slot = i;
            grace->open[grace->count].guard = guard;
        }
        grace->count++;
    }
}

bool thread_grace_over(struct thread_grace *grace)
{
    bool all_noted = grace->count <= THREAD_GRACE_OPEN;
    uint32_t noted = MIN_OF(grace->count, (uint32_t)THREAD_GRACE_OPEN);
    uint32_t left = 0;
    for (uint32_t i = 0; i < noted; i++) {
        if (load_acquire(&thread_slot_at(grace->open[i].slot)->guard) == grace->open[i].guard)
            grace->open[left++] = grace->open[i];
    }
    if (all_noted)
        grace->count = left;
    else
        thread_grace_begin(grace);
    return grace->count == 0;
}
