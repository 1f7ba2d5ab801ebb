#include "agent/unseen_threads.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/left_threads.h"
#include "agent/thread/thread_context.h"

/* Looks at 0.1 s, 0.2 s, 0.4 s and so on; a minute has ten. */
static const uint64_t first_look_ns = 100 * NS_PER_MS;
static const uint64_t last_look_ns = 60 * NS_PER_SEC;

static uint64_t start_ns;
static uint64_t next_ns = UINT64_MAX;
static uint32_t left_before; /* threads, at the last look */

void unseen_threads_start(uint64_t now_ns)
{
    start_ns = now_ns;
    left_before = left_threads_count();
    store_relaxed(&next_ns, now_ns + first_look_ns);
}

static uint32_t threads_known(void)
{
    uint32_t known = flush_own_threads_there();
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        known += load_relaxed(&thread_slot_at(i)->state) == SLOT_USED;
    return known;
}

void unseen_threads_look(uint64_t now_ns)
{
    uint64_t due = load_relaxed(&next_ns);
    if (likely(now_ns < due))
        return;
    uint64_t age = now_ns - start_ns;
    uint64_t next = age < last_look_ns ? start_ns + 2 * age : UINT64_MAX;
    if (!__atomic_compare_exchange_n(&next_ns, &due, next, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    unseen_threads_last_look();
}

void unseen_threads_last_look(void)
{
    struct stat task;
    uint32_t left = left_threads_count();
    /* The kernel may still have some that have left since. */
    uint32_t leaving = left - exchange_acq_rel(&left_before, left);
    /* The folder has a link for each thread, and two of its own. */
    if (sys_call4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &task, 0) == 0 &&
        task.st_nlink > threads_known() + leaving + 2)
        agent_thread_want_look(LOOK_FOR_THREADS);
}
