#include "agent/agent_looks.h"

#include "agent/base/clock.h"
#include "agent/flush.h"
#include "agent/heap_watch.h"
#include "agent/thread/thread_scan.h"
#include "agent/ticks_thread.h"
#include "agent/unseen_threads.h"
#include "agent/uploader_thread.h"

static uint32_t wanted;
static void (*adopted)(struct thread_slot *);
static void (*gone)(struct thread_slot *);

void agent_looks_start(void (*thread_adopted)(struct thread_slot *),
                       void (*thread_gone)(struct thread_slot *))
{
    adopted = thread_adopted;
    gone = thread_gone;
}

void agent_looks_reset_in_child(void)
{
    wanted = 0;
}

uint32_t agent_looks_want(enum agent_thread_look look)
{
    return __atomic_fetch_or(&wanted, look, __ATOMIC_ACQ_REL);
}

uint32_t agent_looks_wanted(void)
{
    return load_relaxed(&wanted);
}

uint64_t agent_looks_due_ns(void)
{
    return load_relaxed(&wanted) ? 0 : MIN_OF(heap_watch_due_ns(), unseen_threads_due_ns());
}

/* Asked in this order: a thread of ours says who it is before it is no more starting. */
static bool is_own_thread(int tid)
{
    return agent_thread_is_starting() || uploader_thread_is_starting() ||
           ticks_thread_is_starting() || flush_is_own_thread(tid);
}

void agent_looks_scan(void)
{
    thread_scan(is_own_thread, adopted, gone);
}

void agent_looks_take(void)
{
    uint32_t looks = exchange_acq_rel(&wanted, 0);
    if (looks & LOOK_FOR_THREADS)
        agent_looks_scan();
    if ((looks & LOOK_AT_HEAP) || clock_monotonic_ns() >= heap_watch_due_ns())
        flush_heap_look();
}

void agent_looks_pass(uint64_t now_ns)
{
    unseen_threads_watch(now_ns, agent_looks_scan);
    agent_looks_take();
}
