#include "agent/life.h"

#include <errno.h>

#include "agent/agent_thread.h"
#include "agent/alloc/alloc_sample.h"
#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/nap.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/sched/wall.h"
#include "agent/start.h"
#include "agent/thread/moment.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_context.h"
#include "agent/ticks_thread.h"

enum agent_state { AGENT_OFF, AGENT_STARTING, AGENT_ON, AGENT_STOPPING };

/* A sample takes microseconds; a second means that its thread is stopped. */
static const uint64_t stop_wait_ns = NS_PER_SEC;
/* What a last window may take: a start that comes meanwhile waits for it so long. */
static const uint64_t write_limit_ns = 3 * NS_PER_SEC;

static struct lock life_lock = LOCK_INIT(LOCK_LIFE);
static AT_START uint32_t state; /* a futex word */
static AT_START uint32_t starts;
static bool switched_off;
static AT_START bool is_possible;
static int32_t stopper;  /* tid of the thread that stops it */
static uint32_t callers; /* threads in a public function */

const struct scheduler *life_scheduler;

void life_begin(bool on)
{
    switched_off = !on;
    store_release(&is_possible, true);
}

bool life_is_possible(void)
{
    return load_acquire(&is_possible);
}

bool life_is_on(void)
{
    return load_acquire(&state) == AGENT_ON;
}

bool life_call_begins(void)
{
    __atomic_fetch_add(&callers, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&is_possible, __ATOMIC_SEQ_CST))
        return true;
    life_call_ends();
    return false;
}

void life_call_ends(void)
{
    __atomic_fetch_sub(&callers, 1, __ATOMIC_RELEASE);
}

void life_wait_calls_over(uint64_t deadline_ns)
{
    while (__atomic_load_n(&callers, __ATOMIC_SEQ_CST) != 0)
        if (!nap_before(deadline_ns))
            return;
}

bool life_enter(void)
{
    /* Most processes are never on: no locked instruction there. */
    if (!life_is_on())
        return false;
    presence_enter();
    if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == AGENT_ON)
        return true;
    presence_leave();
    return false;
}

void life_leave(void)
{
    presence_leave();
}

static void set_state(enum agent_state new)
{
    __atomic_store_n(&state, new, __ATOMIC_SEQ_CST);
    sys_futex_wake(&state, INT32_MAX);
}

/* ---- on and off ---- */

/* Under the lock; the state is OFF. */
static int turn_on(void)
{
    uint64_t deadline = clock_monotonic_ns() + stop_wait_ns;
    if (!presence_wait_others_left(deadline) || !ticks_thread_is_over(deadline)) {
        log_error("not profiled: a thread is still inside the agent, from before the last stop");
        return -EBUSY;
    }
    if (!agent_thread_is_over(deadline)) {
        log_error("not profiled: what was recorded before the last stop is still being written");
        return -EBUSY;
    }
    set_state(AGENT_STARTING);
    int error = start_all();
    set_state(error ? AGENT_OFF : AGENT_ON);
    if (!error)
        start_done();
    return error;
}

/* Under the lock; the state is ON, and STOPPING afterwards. True: nobody is inside any more. */
static bool switch_off(bool waits_for_others)
{
    set_state(AGENT_STOPPING);
    stopper = sys_tid();
    alloc_stop();
    store_release(&moment_look, NULL);
    ticks_thread_stop(clock_monotonic_ns() + stop_wait_ns);
    if (life_scheduler)
        life_scheduler->stop();
    return !waits_for_others || presence_wait_others_left(clock_monotonic_ns() + stop_wait_ns);
}

/* Not under the lock; the state is STOPPING. */
static int finish_stop(bool all_left, uint64_t deadline_ns)
{
    int error = agent_thread_stop(deadline_ns);
    if (all_left)
        wall_stop();
    lock_acquire(&life_lock);
    stopper = 0;
    if (load_relaxed(&state) == AGENT_STOPPING) /* not in a child that was forked meanwhile */
        set_state(AGENT_OFF);
    lock_release(&life_lock);
    log_info("stopped");
    log_flush();
    return error || !all_left ? -ETIMEDOUT : 0;
}

/* Under the lock, which is given up meanwhile: waits until nobody is stopping it. */
static int wait_stopped(uint64_t deadline_ns)
{
    while (load_acquire(&state) == AGENT_STOPPING) {
        lock_release(&life_lock);
        bool is_late = clock_monotonic_ns() >= deadline_ns || stopper == sys_tid();
        if (!is_late)
            sys_futex_wait(&state, AGENT_STOPPING, deadline_ns);
        lock_acquire(&life_lock);
        if (is_late)
            return -EBUSY;
    }
    return 0;
}

void life_wait_stopped(uint64_t deadline_ns)
{
    lock_acquire(&life_lock);
    (void)!wait_stopped(deadline_ns);
    lock_release(&life_lock);
}

/* Takes the lock, where changes are possible. `waits`: while another thread is stopping it: not
 * what the agent's thread does, which that one waits for. */
static int begin_change(bool waits)
{
    if (thread_tls.entered || (thread_tls.inside && !thread_tls.internal))
        return -EDEADLK;
    /* A child that was made past libc has the state of its parent, and none of its own. */
    if (!life_is_possible() || (thread_pid() != 0 && !thread_in_process()))
        return -ESHUTDOWN;
    thread_tls.inside++;
    lock_acquire(&life_lock);
    int error = waits ? wait_stopped(clock_monotonic_ns() + write_limit_ns) : 0;
    if (!error && !life_is_possible())
        error = -ESHUTDOWN;
    if (error) {
        lock_release(&life_lock);
        thread_tls.inside--;
    }
    return error;
}

static void end_change(void)
{
    lock_release(&life_lock);
    thread_tls.inside--;
}

static bool is_to_be_on(void)
{
    return starts != 0 && !switched_off && life_is_possible();
}

/* Ends the change, after which it is not to be on any more. */
static int follow_off(uint64_t deadline_ns)
{
    int error = 0;
    if (load_relaxed(&state) == AGENT_ON) {
        bool all_left = switch_off(true);
        lock_release(&life_lock);
        error = finish_stop(all_left, deadline_ns);
        lock_acquire(&life_lock);
    }
    end_change();
    return error;
}

/* Under the lock. */
static int follow_on(void)
{
    return is_to_be_on() && load_relaxed(&state) == AGENT_OFF ? turn_on() : 0;
}

int life_count_start(int (*before)(const char *, bool), const char *options)
{
    int error = begin_change(true);
    if (error)
        return error;
    bool was_started = starts++ != 0;
    if (before)
        error = before(options, !was_started);
    /* Where an earlier one failed this one tries again. */
    if (!error)
        error = follow_on();
    starts -= error != 0;
    end_change();
    return error ? error : was_started;
}

int life_count_stop(uint64_t deadline_ns)
{
    int error = begin_change(true);
    if (error)
        return error;
    if (starts == 0) {
        end_change();
        return -EALREADY;
    }
    if (--starts == 0)
        return follow_off(deadline_ns);
    end_change();
    return 1;
}

bool life_is_switched_on(void)
{
    return !load_relaxed(&switched_off);
}

int life_switch(bool on)
{
    int error = begin_change(false);
    if (error)
        return error;
    store_relaxed(&switched_off, !on);
    if (!on)
        return follow_off(clock_monotonic_ns() + write_limit_ns);
    error = follow_on();
    end_change();
    return error;
}

int life_toggle(bool *on)
{
    int error = begin_change(false);
    if (error)
        return error;
    *on = !is_to_be_on();
    store_relaxed(&switched_off, !*on);
    if (!*on)
        return follow_off(clock_monotonic_ns() + write_limit_ns);
    bool is_start = starts == 0;
    if (is_start) /* as the environment has it */
        options_overlay(OVERLAY_START, NULL);
    starts += is_start;
    error = follow_on();
    starts -= is_start && error;
    end_change();
    return error;
}

int life_change(void (*change)(void))
{
    int error = begin_change(false);
    if (error)
        return error;
    while (load_relaxed(&state) == AGENT_ON) {
        bool all_left = switch_off(true);
        lock_release(&life_lock);
        (void)!finish_stop(all_left, clock_monotonic_ns() + write_limit_ns);
        lock_acquire(&life_lock);
    }
    change();
    error = follow_on();
    end_change();
    return error;
}

bool life_end(uint64_t deadline_ns, bool waits_for_others)
{
    if (!life_is_possible())
        return false;
    if (lock_acquire_until(&life_lock, deadline_ns) != 0)
        return false;
    (void)!wait_stopped(deadline_ns);
    bool was_on = load_relaxed(&state) == AGENT_ON;
    __atomic_store_n(&is_possible, false, __ATOMIC_SEQ_CST);
    if (was_on)
        (void)!switch_off(waits_for_others);
    else
        set_state(AGENT_STOPPING);
    alloc_stop_for_good();
    store_release(&moment_work, NULL);
    lock_release(&life_lock);
    return was_on;
}

/* ---- fork ---- */

void life_fork_prepare(void)
{
    lock_acquire(&life_lock);
}

void life_fork_parent(void)
{
    lock_release(&life_lock);
}

bool life_fork_child(void)
{
    presence_reset_in_child();
    stopper = 0;
    callers = 0;
    if (state == AGENT_STOPPING)
        state = AGENT_OFF;
    bool is_on = state == AGENT_ON;
    lock_release(&life_lock);
    return is_on;
}
