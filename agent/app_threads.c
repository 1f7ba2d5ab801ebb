#include "agent/app_threads.h"

#include <errno.h>

#include "agent/agent.h"
#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/flush.h"
#include "agent/left_alone.h"
#include "agent/life.h"
#include "agent/lost_tails.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/unseen_threads.h"
#include "agent/ways_out.h"
#include "uploader/uploader.h"

void app_thread_begins(struct thread_slot *slot)
{
    if (!life_scheduler || !slot)
        return;
    wall_thread_begin(slot, clock_monotonic_ns());
    life_scheduler->thread_begin(slot);
}

void app_thread_adopted(struct thread_slot *slot)
{
    unseen_threads_found();
    if (life_scheduler)
        cpu_sample_before_adoption(slot);
    app_thread_begins(slot);
}

void app_thread_late(struct thread_slot *slot)
{
    unseen_threads_one_known(slot->cpu_last_ns);
    app_thread_begins(slot);
}

/* Those that a bare clone made end without a word: their slots go with a scan. There is one for
 * each so many, and no more are taken on at a time than leave the others room. */
enum { CLONED_MAX = 1024, CLONED_A_SCAN = 64 };
static int32_t cloned;

void app_thread_gone(struct thread_slot *slot)
{
    if (load_relaxed(&slot->thread) != SLOT_OF_OURS)
        add_relaxed(&cloned, -(load_relaxed(&cloned) > 0));
    /* Nobody has seen what it used since its last sample. */
    unseen_threads_one_left(load_relaxed(&slot->cpu_last_ns));
    lost_tails_add(slot);
    if (life_scheduler)
        life_scheduler->thread_end(slot);
}

struct thread_slot *agent_thread_prepare(uintptr_t start_routine, void *argument)
{
    if (thread_tls.internal)
        return NULL;
    if (!life_enter()) /* its end is to be seen */
        return own_threads_of_libc_there() ? thread_prepare(start_routine, argument) : NULL;
    struct thread_slot *slot = thread_prepare(start_routine, argument);
    life_leave();
    return slot;
}

void agent_thread_not_born(struct thread_slot *slot)
{
    thread_release_slot(slot);
}

void agent_thread_cloned(struct thread_slot *slot, int tid)
{
    if (tid < 0 || load_relaxed(&cloned) >= CLONED_MAX || !life_enter()) {
        thread_release_slot(slot);
        return;
    }
    thread_tls.inside++;
    if (thread_is_born(slot, tid)) {
        app_thread_begins(slot);
        if (add_relaxed(&cloned, 1) % CLONED_A_SCAN == CLONED_A_SCAN - 1)
            agent_thread_want_look(LOOK_FOR_THREADS);
    }
    thread_tls.inside--;
    life_leave();
}

/* The agent's thread looks for them. Nobody else may come to have it made: the program's threads
 * may all go to sleep now. */
void agent_threads_of_libc(void)
{
    int saved = errno;
    if (thread_tls.internal || !life_enter())
        return;
    thread_tls.inside++;
    if (life_scheduler) {
        agent_thread_want_look(LOOK_FOR_THREADS);
        moment_pass(true);
    }
    thread_tls.inside--;
    life_leave();
    errno = saved;
}

uintptr_t agent_thread_begin(struct thread_slot *slot, void **argument)
{
    uintptr_t routine = slot->start_routine;
    *argument = slot->start_argument;
    if (!life_enter()) {
        /* As long as a slot waits for its thread no scan adopts any (agent/thread/thread_scan.c).
         */
        thread_release_slot(slot);
        thread_watch_end();
        return routine;
    }
    thread_tls.inside = 1;
    thread_attach_prepared(slot);
    app_thread_begins(slot);
    /* A sanitizer that stands before us does not know the thread yet, and its malloc, which the
     * making of another one calls, would crash. */
    if (!own_thread_uses_libc())
        moment_pass(true);
    thread_tls.inside = 0;
    life_leave();
    return routine;
}

static void account_last(struct thread_slot *slot)
{
    thread_note_last_name(slot);
    thread_guard_enter(slot);
    uint64_t now = clock_thread_cpu_ns();
    cpu_sample_unreached(slot, now);
    cpu_sample_end(slot, now);
    life_scheduler->thread_end(slot);
    cpu_sample_overhead(slot);
    wall_thread_end(slot, clock_monotonic_ns());
    thread_guard_leave(slot);
    unseen_threads_one_left(now);
}

/* No other thread of the app is known. */
static bool is_last_thread(const struct thread_slot *own)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        if (slot != own && load_acquire(&slot->state) == SLOT_USED && load_relaxed(&slot->tid) != 0)
            return false;
    }
    return true;
}

/* libc calls exit in the last thread that it knows. In one of ours that would write the app's
 * buffers to nowhere, as ours have no descriptor of the app's: ours go first. */
static void end_before_last(void)
{
    thread_tls.inside = 1;
    if (flush_is_due_at_end() || !uploader_is_done())
        agent_thread_flush_last(ways_out_exit_deadline_ns());
    (void)agent_thread_pause(clock_monotonic_ns() + NS_PER_SEC);
    agent_thread_go_on();
    thread_tls.inside = 0;
}

void app_thread_leaving(void)
{
    if (!life_enter()) {
        /* One of those that sent is still on its way out. */
        if (own_threads_of_libc_there() &&
            (agent_thread_is_starting() || left_alone_by_this_thread()))
            end_before_last();
        thread_tls.left = 1; /* its slot goes at the next start */
        return;
    }
    struct thread_slot *slot = thread_current();
    bool is_last = own_thread_uses_libc() && slot && thread_owns(slot) && is_last_thread(slot);
    thread_tls.inside = 1;
    if (!slot || thread_owns(slot)) {
        if (slot && life_scheduler)
            account_last(slot);
        if (!is_last)
            thread_leave();
    }
    thread_tls.inside = 0;
    life_leave();
    if (is_last) {
        end_before_last();
        if (life_enter()) {
            thread_leave();
            life_leave();
        } else {
            thread_tls.left = 1;
        }
    }
}

void agent_thread_named(uintptr_t thread, const char *name)
{
    if (!life_enter())
        return;
    if (thread == 0 || thread_is_self(thread))
        thread_named(name);
    else
        thread_other_named();
    life_leave();
}
