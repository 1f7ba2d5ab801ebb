#include "agent/agent_work.h"

#include "agent/base/nap.h"

static uint32_t is_on;
static uint32_t working; /* so many threads */

void agent_work_begins(void)
{
    __atomic_store_n(&is_on, 1, __ATOMIC_SEQ_CST);
}

void agent_work_ends(void)
{
    __atomic_store_n(&is_on, 0, __ATOMIC_SEQ_CST);
}

bool agent_work_is_on(void)
{
    return load_acquire(&is_on);
}

bool agent_work_enter(void)
{
    __atomic_fetch_add(&working, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&is_on, __ATOMIC_SEQ_CST))
        return true;
    agent_work_leave();
    return false;
}

void agent_work_leave(void)
{
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELEASE);
}

bool agent_work_wait_left(uint64_t deadline_ns)
{
    while (__atomic_load_n(&working, __ATOMIC_SEQ_CST) != 0)
        if (!nap_before(deadline_ns))
            return false;
    return true;
}

void agent_work_reset_in_child(void)
{
    working = 0;
}
