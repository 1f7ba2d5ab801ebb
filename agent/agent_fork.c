/* agent_fork.c: fork, whose handlers are ours first and last. The child has one thread and a copy
 * of the parent's memory: what the parent recorded is the parent's to ship, time starts anew. */
#include "agent/agent.h"
#include "agent/agent_thread.h"
#include "agent/alloc/alloc_sample.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/flush.h"
#include "agent/life.h"
#include "agent/rates.h"
#include "agent/record/heap_kept.h"
#include "agent/record/heap_snapshot.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/itimer.h"
#include "agent/sched/thread_tails.h"
#include "agent/sched/wall.h"
#include "agent/thread/thread_context.h"
#include "agent/ticks_thread.h"
#include "agent/unseen_threads.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwinder.h"
#include "agent/ways_out.h"
#include "uploader/uploader.h"

/* LOCK_LIFE and LOCK_MODULES are held over the fork, and signals wait with them: the kernel starts
 * a fork again when a signal is pending, so that with many pages to copy it would never end. */
void agent_fork_prepare(void)
{
    if (!life_is_possible())
        return;
    thread_tls.inside++;
    thread_tls.in_fork = 1;
    ways_out_fork_prepare();
    life_fork_prepare();
    modules_lock_for_fork();
}

static void after_fork(void)
{
    modules_unlock_after_fork();
    thread_tls.in_fork = 0;
    thread_tls.inside--;
}

void agent_fork_parent(void)
{
    if (!thread_tls.in_fork)
        return;
    after_fork();
    ways_out_fork_parent();
    life_fork_parent();
}

static void forget_parents_work(void)
{
    scratch_reset_in_child();
    recorder_reset_in_child(clock_monotonic_ns(), clock_realtime_ns());
    heap_snapshot_reset_in_child();
    heap_kept_reset_in_child();
    stats_reset();
    flush_reset_in_child();
}

void agent_fork_child(void)
{
    if (!thread_tls.in_fork)
        return;
    bool had_threads = thread_reset_in_child() > 0;
    if (had_threads) {
        modules_distrust_loader();
        unwinder_reset_in_child();
    }
    rng_reset_in_child();
    log_reset_in_child();
    forget_parents_work();
    ways_out_fork_child(had_threads);
    uploader_reset_in_child(thread_pid());
    agent_thread_reset_in_child();
    ticks_thread_reset_in_child();
    alloc_reset_in_child();
    after_fork();
    itimer_forget_calls_in_child();
    bool is_on = life_fork_child();
    struct thread_slot *own = thread_current();
    if (!is_on)
        return;
    rates_reset_in_child();
    if (!own)
        own = thread_attach(0, 0);
    unseen_threads_start(clock_monotonic_ns());
    thread_tails_start();
    wall_reset_in_child(own, clock_monotonic_ns());
    if (life_scheduler)
        life_scheduler->reset_in_child(own);
    ticks_thread_start(life_scheduler);
}
