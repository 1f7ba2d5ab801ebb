#include "agent/ticks_thread.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/left_alone.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"

/* When it cannot be made (limits), the next try is so much later. */
static const uint64_t retry_ns = 10 * NS_PER_SEC;

/* Whether the process has ended but for us. */
static const uint64_t look_every_ns = NS_PER_SEC;

static uint32_t state;                    /* an enum own_thread_state */
static const struct scheduler *scheduler; /* NULL: none that ticks */
static uint32_t paused;                   /* it ended for a pause */
static uint32_t said;
static uint64_t next_look_ns; /* for the process's other threads: its own */

static bool stays_away(void)
{
    return !__atomic_load_n(&scheduler, __ATOMIC_SEQ_CST) || own_threads_are_paused();
}

static bool goes_on(void)
{
    uint64_t now = clock_monotonic_ns();
    if (now >= next_look_ns) {
        next_look_ns = now + look_every_ns;
        if (left_alone_look())
            return false;
    }
    return !stays_away();
}

bool ticks_thread_is_starting(void)
{
    return own_thread_is_starting(&state);
}

bool ticks_thread_is_missing(void)
{
    return load_acquire(&scheduler) && load_acquire(&state) == OWN_THREAD_NONE;
}

static void *ticks_main(void *unused)
{
    (void)unused;
    own_thread_enter("libagent-tick");
    own_thread_be_prompt(); /* a late look finds what made room for it: a thread that waits */
    flush_own_thread_begins(FLUSH_OWN_TICKS);
    store_release(&state, OWN_THREAD_RUNNING);
    const struct scheduler *running = load_acquire(&scheduler);
    next_look_ns = clock_monotonic_ns() + look_every_ns;
    if (running)
        running->run(goes_on);
    flush_own_thread_ends(FLUSH_OWN_TICKS);
    flush_own_threads_end();
    own_thread_is_none(&state);
    left_alone_end();
    full_fence();
    if (!stays_away())
        moment_set_due_now();
    return NULL;
}

static int need(void)
{
    int error = own_thread_need(&state, ticks_main, stays_away);
    if (!error || error == -EBUSY)
        return 0;
    if (exchange_acq_rel(&said, 1))
        return error;
    /* EINVAL: after unshare(CLONE_NEWPID) the program can have no more threads either. */
    if (error == -EINVAL)
        log_info("no thread for ticks in this namespace: %s",
                 "time is sampled by each thread's CPU timer");
    else
        log_warn("no thread for ticks: %s (errno %d): %s", error_text(error), -error,
                 "time is sampled by each thread's CPU timer");
    return error;
}

uint64_t ticks_thread_moment(uint64_t now_ns)
{
    return ticks_thread_is_missing() && need() != 0 ? now_ns + retry_ns : UINT64_MAX;
}

void ticks_thread_start(const struct scheduler *chosen)
{
    state = OWN_THREAD_NONE;
    paused = 0;
    said = 0;
    if (!chosen || !chosen->run)
        return;
    store_release(&scheduler, chosen);
    if (chosen->runs_at_once())
        (void)need();
    else
        moment_set_due_now();
}

static bool wait_gone(const struct scheduler *running, uint64_t deadline_ns)
{
    running->ring();
    return own_thread_wait_none(&state, deadline_ns);
}

void ticks_thread_stop(uint64_t deadline_ns)
{
    const struct scheduler *running = load_acquire(&scheduler);
    if (running)
        running->run_ends(sys_tid());
    __atomic_store_n(&scheduler, NULL, __ATOMIC_SEQ_CST);
    if (running && own_thread_is_there(&state))
        (void)wait_gone(running, deadline_ns);
}

bool ticks_thread_is_over(uint64_t deadline_ns)
{
    return own_thread_wait_none(&state, deadline_ns);
}

void ticks_thread_reset_in_child(void)
{
    state = OWN_THREAD_NONE;
}

bool ticks_thread_pause(uint64_t deadline_ns)
{
    const struct scheduler *running = load_acquire(&scheduler);
    if (!running || !own_thread_is_there(&state))
        return true;
    store_release(&paused, 1);
    return wait_gone(running, deadline_ns);
}

void ticks_thread_go_on(void)
{
    const struct scheduler *running = load_acquire(&scheduler);
    if (running && exchange_acq_rel(&paused, 0) && need() != 0)
        running->rest();
    if (ticks_thread_is_missing())
        moment_set_due_now();
}
