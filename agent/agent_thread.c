#include "agent/agent_thread.h"

#include <errno.h>

#include "agent/agent_looks.h"
#include "agent/agent_work.h"
#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/nap.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/calling_stack.h"
#include "agent/flush.h"
#include "agent/late_thread.h"
#include "agent/left_alone.h"
#include "agent/record/time_recorder.h"
#include "agent/rescan.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/presence.h"
#include "agent/thread/raw_thread.h"
#include "agent/thread/thread_context.h"
#include "agent/ticks_thread.h"
#include "agent/unseen_threads.h"
#include "agent/uploader_thread.h"
#include "agent/ways_out.h"
#include "uploader/uploader.h"

/* When a thread cannot be made (limits), the next try is so much later. */
static const uint64_t retry_ns = 10 * NS_PER_SEC;
/* Who asks for something, or would make a thread while they are to stay away, looks again so much
 * later: the thread that was asked may have gone to rest. */
static const uint64_t look_again_ns = 10 * NS_PER_MS;
/* Without a period, what is watched is looked at so often. */
static const uint64_t look_otherwise_ns = 60 * NS_PER_SEC;

static uint32_t agent_thread;
static uint32_t rested; /* it ended because there was nothing to do */
static uint32_t bell;   /* what the agent's thread sleeps on: grows with each news */
static uint32_t wanted; /* so many requests came */
static uint64_t request_deadline_ns;
static uint32_t served; /* so many of them are done */
static uint32_t undone; /* of these the last one whose profiles were not all written */
static uint32_t ending; /* the number of the one that is the end; 0: none */
static bool stays;      /* the thread neither rests nor ends with a stop: it watches something */
static void (*control)(void);
static uint32_t control_wanted;
static uint32_t said_no_thread;
static bool is_early;

static uint64_t period_end(void)
{
    return options.period_ns ? recorder_window_start_ns() + options.period_ns : UINT64_MAX;
}

/* When a moment is to make the thread. */
static uint64_t birth_due(void)
{
    uint64_t look = stays ? recorder_window_start_ns() + look_otherwise_ns : UINT64_MAX;
    return is_early || (agent_looks_wanted() & LOOK_AT_HEAP) ? 0 : MIN_OF(period_end(), look);
}

static void ring(void)
{
    __atomic_fetch_add(&bell, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&bell, 1);
}

/* A flush, or the last one. True: all is written. */
static bool serve(bool finishes, uint64_t deadline_ns)
{
    if (!agent_work_enter())
        return uploader_is_done();
    unseen_threads_look_now();
    agent_looks_take();
    (void)!flush_window(finishes);
    int error = uploader_thread_write_all(finishes, deadline_ns);
    agent_work_leave();
    return error == 0;
}

/* ---- the agent's thread ---- */

/* True when there was something to write. */
static bool flush_period(void)
{
    if (!agent_work_enter())
        return true;
    agent_looks_scan();
    (void)unseen_threads_check();
    bool has_news = flush_window(false) != 0 || !uploader_is_done();
    if (has_news)
        uploader_thread_need();
    agent_work_leave();
    return has_news;
}

/* Both threads end when a period had nothing to write: an idle process is not woken up, and is what
 * it is without us to whoever counts its threads. The first sample that comes makes them anew. */
static bool goes_to_rest(void)
{
    if (is_early || stays)
        return false;
    bool ended = uploader_thread_pause(clock_monotonic_ns() + NS_PER_SEC);
    if (ended) {
        flush_own_thread_ends(FLUSH_OWN_AGENT);
        flush_own_threads_end();
        store_relaxed(&rested, 1);
        own_thread_is_none(&agent_thread);
        moment_set_due_now();
    }
    return ended;
}

static bool is_end(uint32_t asked)
{
    uint32_t end = load_acquire(&ending);
    return end && (int32_t)(asked - end) >= 0;
}

static void note_served(uint32_t asked, bool done)
{
    if (!done)
        store_relaxed(&undone, asked);
    store_release(&served, asked);
    sys_futex_wake(&served, INT32_MAX);
}

static uint64_t next_look(uint64_t now)
{
    return now + (options.period_ns ? options.period_ns : look_otherwise_ns);
}

/* What is sent from now on needs a thread that libc knows; and where nothing is sent, or profiled,
 * libc is to know of none. */
static bool is_other_kind(void)
{
    return own_thread_is_known_to_libc() != own_thread_uses_libc();
}

static int need_agent_thread(void);

/* Until there is nothing to do, or it is not to be there. True: it has told that it is not. */
static bool work(void)
{
    /* The window of one that has rested has just begun to fill. */
    uint64_t next_flush_ns =
        exchange_acq_rel(&rested, 0) ? clock_monotonic_ns() + options.period_ns : period_end();
    uint64_t next_look_ns = next_look(clock_monotonic_ns());
    uint64_t nap_ns = own_thread_is_known_to_libc() ? RESCAN_EVERY_NS : UINT64_MAX / 2;
    for (;;) {
        uint32_t news = load_acquire(&bell);
        uint32_t asked = load_acquire(&wanted);
        uint64_t now = clock_monotonic_ns();
        bool is_active = agent_work_is_on();
        if (is_active && own_thread_is_known_to_libc())
            rescan_if_stale(now);
        if (asked != load_relaxed(&served)) {
            bool was_end = is_end(asked);
            note_served(asked, serve(was_end, load_relaxed(&request_deadline_ns)));
            if (was_end && !stays)
                return false;
        } else if (is_active && !own_threads_are_paused() && now >= agent_looks_due_ns()) {
            if (agent_work_enter()) {
                agent_looks_pass(now);
                agent_work_leave();
            }
        } else if (!own_threads_are_paused() &&
                   (exchange_acq_rel(&control_wanted, 0) || (stays && now >= next_look_ns))) {
            left_alone_end();
            control(); /* which may stop all, or start it */
            next_look_ns = next_look(clock_monotonic_ns());
            next_flush_ns = period_end();
        } else if (own_threads_are_paused() || (!is_active && !stays) || is_other_kind()) {
            return false;
        } else if (is_active && now >= next_flush_ns) {
            left_alone_end();
            if (!flush_period() && goes_to_rest())
                return true;
            /* Missed periods are skipped, not made up. */
            next_flush_ns = clock_monotonic_ns() + options.period_ns;
        } else {
            uint64_t due = is_active ? MIN_OF(next_flush_ns, agent_looks_due_ns()) : UINT64_MAX;
            due = MIN_OF(due, stays ? next_look_ns : UINT64_MAX);
            sys_futex_wait(&bell, news, MIN_OF(due, now + nap_ns));
        }
    }
}

/* No moment of the program's makes the thread while nothing is profiled. */
static bool watches_alone(void)
{
    return stays && !agent_work_is_on();
}

static void *agent_main(void *unused)
{
    (void)unused;
    own_thread_enter("libagent");
    flush_own_thread_begins(FLUSH_OWN_AGENT);
    store_release(&agent_thread, OWN_THREAD_RUNNING);
    if (!work()) {
        flush_own_thread_ends(FLUSH_OWN_AGENT);
        if (own_threads_are_paused()) /* and not at the end of all */
            flush_own_threads_end();
        own_thread_is_none(&agent_thread);
    }
    full_fence();
    /* Who wants something of it says so and then looks at its state; it did the other way round. */
    if (load_relaxed(&control_wanted) || watches_alone())
        (void)!need_agent_thread();
    return NULL;
}

/* Makes the agent's thread if there is none. 0, or a negative errno. */
static int need_agent_thread(void)
{
    return own_thread_need(&agent_thread, agent_main, own_threads_are_paused);
}

/* ---- moments ---- */

/* moment_work: something is due. Where the stack is not clean this thread may hold a lock of
 * libc's, which the loader wants, and pthread_create, but not a thread that libc does not know. */
static void on_moment(bool clean)
{
    if (!stack_has_room() || (!clean && own_thread_uses_libc()))
        return;
    uint64_t now = clock_monotonic_ns();
    if (clean)
        rescan_if_stale(now);
    uint64_t due = UINT64_MAX;
    (void)late_thread_is_gone();
    if (own_threads_are_paused()) {
        due = now + look_again_ns;
    } else if (!own_thread_is_there(&agent_thread)) {
        due = birth_due();
        bool is_wanted = is_early || load_relaxed(&control_wanted) || agent_looks_wanted();
        if (now >= due || is_wanted) {
            bool is_needed = recorder_has_samples() || wall_is_on() || stays || is_wanted;
            int error = is_needed ? need_agent_thread() : 0;
            due = now + retry_ns;
            /* EINVAL: after unshare(CLONE_NEWPID) the program can have no more threads either. */
            if (error == -EINVAL)
                log_info("no thread of the agent in this namespace: profiles are written at exit");
            else if (error && error != -EBUSY && !exchange_acq_rel(&said_no_thread, 1))
                log_warn("no thread of the agent: %s (errno %d): profiles are written at exit",
                         error_text(error), -error);
        }
    }
    due = MIN_OF(due, ways_out_moment(now)); /* the stack is clean where anything is sent */
    due = MIN_OF(due, rescan_due());
    due = MIN_OF(due, ticks_thread_moment(now));
    store_relaxed(&moment_due_ns, due);
    full_fence();
    /* It went to rest meanwhile. */
    if (due > now + retry_ns && ticks_thread_is_missing())
        moment_set_due_now();
}

void agent_thread_start(void (*thread_adopted)(struct thread_slot *),
                        void (*thread_gone)(struct thread_slot *), bool early)
{
    agent_looks_start(thread_adopted, thread_gone);
    is_early = early && options.period_ns;
    store_release(&ending, 0);
    agent_work_begins();
    store_release(&moment_work, on_moment);
    store_relaxed(&moment_due_ns, MIN_OF(MIN_OF(birth_due(), rescan_due()), ways_out_moment(0)));
}

/* ---- control ---- */

void agent_thread_control(void (*work_of_control)(void), bool always)
{
    control = work_of_control;
    stays = always;
    store_release(&moment_work, on_moment);
}

bool agent_thread_call(void)
{
    if (own_thread_is_there(&agent_thread)) {
        ring();
        return true;
    }
    return !own_thread_uses_libc() && stack_has_room() && need_agent_thread() == 0;
}

void agent_thread_want_control(void)
{
    store_release(&control_wanted, 1);
    full_fence();
    if (!agent_thread_call())
        moment_set_due_now();
}

void agent_thread_want_look(enum agent_thread_look look)
{
    uint32_t before = agent_looks_want(look);
    if (look == LOOK_AT_HEAP && (before & look))
        return; /* samples ask again and again */
    if (own_thread_is_there(&agent_thread))
        ring();
    else
        moment_set_due_now();
}

/* ---- requests ---- */

/* Puts a request to the agent's thread, which is made if there is none. 0: there is none, and the
 * caller is to do it. */
static uint32_t put(bool finishes, uint64_t deadline_ns)
{
    (void)late_thread_is_gone();
    if (!own_thread_is_there(&agent_thread) && (!stack_allows_thread() || need_agent_thread() != 0))
        return 0;
    store_relaxed(&request_deadline_ns, deadline_ns);
    if (finishes)
        store_release(&ending, load_relaxed(&wanted) + 1);
    uint32_t number = __atomic_add_fetch(&wanted, 1, __ATOMIC_RELEASE);
    ring();
    return number;
}

/* -EAGAIN: no thread is there any more to do it. */
static int wait_served(uint32_t number, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = load_acquire(&served);
        if ((int32_t)(seen - number) >= 0)
            return 0;
        uint64_t now = clock_monotonic_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        if (!own_thread_is_there(&agent_thread))
            return -EAGAIN;
        sys_futex_wait(&served, seen, MIN_OF(deadline_ns, now + look_again_ns));
    }
}

/* Where the process may end before they are: else they are written later. */
static void say_given_up(void)
{
    uploader_thread_say_left("profiles could not be written in time: given up, lost",
                             flush_is_under_way() ? ", and the last window" : "");
}

/* In this thread; not while another makes all anew. */
static int flush_here(uint64_t deadline_ns)
{
    presence_enter();
    bool done = serve(false, deadline_ns);
    presence_leave();
    return done ? 0 : -ETIMEDOUT;
}

int agent_thread_flush(uint64_t deadline_ns)
{
    presence_enter();
    uint32_t number = put(false, deadline_ns);
    presence_leave();
    int error = number ? wait_served(number, deadline_ns) : -EAGAIN;
    if (error == -EAGAIN)
        return flush_here(deadline_ns);
    /* Now others may be under way already. */
    return error || (int32_t)(load_relaxed(&undone) - number) < 0 ? error : -ETIMEDOUT;
}

void agent_thread_flush_last(uint64_t deadline_ns)
{
    /* Before it, others have put their windows behind ours. */
    if (agent_thread_flush(deadline_ns) != 0 && clock_monotonic_ns() >= deadline_ns)
        say_given_up();
}

void agent_thread_want_flush(void)
{
    if (!own_thread_is_there(&agent_thread) &&
        (own_thread_uses_libc() || !stack_has_room() || need_agent_thread() != 0))
        return;
    store_relaxed(&request_deadline_ns, clock_monotonic_ns() + NS_PER_SEC);
    __atomic_add_fetch(&wanted, 1, __ATOMIC_RELEASE);
    ring();
}

static void finish(uint64_t deadline_ns)
{
    uint32_t number = thread_tls.internal ? 0 : put(true, deadline_ns);
    int error = number ? wait_served(number, deadline_ns) : -EAGAIN;
    if (error == -EAGAIN)
        (void)!serve(true, deadline_ns);
    else if (error)
        say_given_up();
}

void agent_thread_finish(uint64_t deadline_ns)
{
    if (!own_thread_is_there(&agent_thread) && !flush_is_due_at_end() && uploader_is_done() &&
        !agent_looks_wanted())
        return;
    finish(deadline_ns);
    ways_out_say_where();
}

int agent_thread_stop(uint64_t deadline_ns)
{
    if (!stays)
        store_release(&moment_work, NULL);
    if (own_thread_is_there(&agent_thread) || flush_is_due_at_end() || !uploader_is_done())
        finish(deadline_ns);
    own_thread_use_libc(false);
    agent_work_ends();
    note_served(load_acquire(&wanted), uploader_is_done());
    ring();
    bool ended = uploader_thread_end(deadline_ns);
    if (!thread_tls.internal && !stays) {
        ended &= own_thread_wait_none(&agent_thread, deadline_ns);
        if (ended) /* the kernel counts a thread a little longer */
            agent_thread_wait_gone(deadline_ns);
    } else if (!thread_tls.internal) {
        while (own_threads_of_libc_there() && nap_before(deadline_ns))
            ;
    }
    flush_own_threads_end();
    return ended && uploader_is_done() ? 0 : -ETIMEDOUT;
}

bool agent_thread_is_over(uint64_t deadline_ns)
{
    agent_work_ends(); /* in a child that was forked in the middle of a stop it has not */
    return agent_work_wait_left(deadline_ns) && uploader_thread_wait_none(deadline_ns);
}

/* ---- pauses ---- */

void agent_thread_wait_gone(uint64_t deadline_ns)
{
    while (flush_own_threads_there() || own_threads_of_libc_there())
        if (!nap_before(deadline_ns))
            return;
}

bool agent_thread_is_starting(void)
{
    return own_thread_is_starting(&agent_thread);
}

bool agent_thread_are_gone(void)
{
    return !own_thread_is_there(&agent_thread) && !uploader_thread_is_there() &&
           !flush_own_threads_there();
}

bool agent_thread_pause(uint64_t deadline_ns)
{
    own_threads_pause();
    if (!late_thread_is_gone()) /* which was waited for */
        return true;
    bool ended = ticks_thread_pause(deadline_ns);
    if (ended && agent_thread_are_gone())
        return true;
    ring();
    ended &= own_thread_wait_none(&agent_thread, deadline_ns);
    ended &= uploader_thread_pause(deadline_ns);
    if (ended) {
        uploader_thread_go_on();
        raw_threads_wait_ended();
    }
    agent_thread_wait_gone(deadline_ns ? deadline_ns : clock_monotonic_ns() + NS_PER_SEC);
    return ended;
}

void agent_thread_go_on(void)
{
    if (!own_threads_go_on())
        return;
    store_relaxed(&moment_due_ns, birth_due());
    uploader_thread_go_on();
    ticks_thread_go_on();
    if (load_relaxed(&control_wanted) || watches_alone())
        agent_thread_want_control();
}

void agent_thread_reset_in_child(void)
{
    rested = said_no_thread = 0;
    own_threads_reset_in_child();
    agent_thread = OWN_THREAD_NONE;
    uploader_thread_reset_in_child();
    wanted = served = undone = ending = 0;
    agent_work_reset_in_child();
    agent_looks_reset_in_child();
    rescan_reset_in_child();
    store_relaxed(&moment_due_ns, birth_due());
}
