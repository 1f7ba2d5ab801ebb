#include "agent/agent_thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/raw_thread.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/thread_scan.h"
#include "agent/ticks_thread.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"
#include "uploader/uploader.h"

/* What a request adds to `wanted`: the low bit tells the end, the others count. */
enum request { REQUEST_FLUSH = 2, REQUEST_FINISH = 3 };

/* When a thread cannot be made (limits), the next try is so much later. */
static const uint64_t retry_ns = 10 * NS_PER_SEC;
/* A scan of the loaded objects costs tens of microseconds: once a second at most. */
static const uint64_t rescan_every_ns = NS_PER_SEC;
/* So many seconds without a rescan are told. */
enum { LATE_RESCANS_TOLD = 10 };
/* At a moment a thread of the app waits, in the middle of its own work. */
static const uint64_t moment_wait_ns = NS_PER_MS;
/* Room below the stack pointer that pthread_create may use: it needs about 2 KiB. */
enum { STACK_ROOM = 16384 };

/* Who asks for something, or would make a thread while they are to stay away, looks again so much
 * later: the thread that was asked may have gone to rest. */
static const uint64_t look_again_ns = 10 * NS_PER_MS;

static uint32_t agent_thread;
static uint32_t rested; /* it ended because there was nothing to do */
static uint32_t uploader_thread;
static uint32_t pauses; /* so many want no thread of ours to be there */
static uint32_t bell;   /* what the agent's thread sleeps on: grows with each news */
static uint32_t wanted;
static uint64_t request_deadline_ns;
static uint32_t served; /* the value of `wanted` up to which all is done */
static uint64_t next_rescan_ns;
static uint32_t said_no_thread;
static uint32_t late_rescans; /* in a row; stays where it was told */
static void (*adopted)(struct thread_slot *);
static void (*gone)(struct thread_slot *);
static bool is_early;

static uint64_t period_end(void)
{
    return options.period_ns ? recorder_window_start_ns() + options.period_ns : UINT64_MAX;
}

static bool is_paused(void)
{
    return __atomic_load_n(&pauses, __ATOMIC_SEQ_CST) != 0;
}

/* The last act of one of our threads. */
static void *ends(uint32_t *thread)
{
    if (is_paused()) /* and not at the end of all */
        flush_own_threads_end();
    own_thread_is_none(thread);
    return NULL;
}

static void ring(void)
{
    __atomic_fetch_add(&bell, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&bell, 1);
}

/* ---- the uploader's thread ---- */

static void *uploader_main(void *unused)
{
    (void)unused;
    own_thread_enter("libagent-up");
    flush_own_thread_begins(FLUSH_OWN_UPLOADER);
    store_release(&uploader_thread, OWN_THREAD_RUNNING);
    uploader_run();
    return ends(&uploader_thread);
}

static void need_uploader(void)
{
    int error = own_thread_need(&uploader_thread, uploader_main, is_paused);
    if (error && error != -EBUSY)
        log_warn("no uploader thread (error %d), tried again after the next period", -error);
}

/* What is queued is written until the deadline: by the uploader's thread where there is one,
 * else by the calling one. */
static void write_all(enum request asked, uint64_t deadline_ns)
{
    bool has_thread = load_acquire(&uploader_thread) != OWN_THREAD_NONE;
    if (asked == REQUEST_FINISH || !has_thread)
        uploader_finish();
    if (!has_thread) {
        uploader_run();
        if (asked != REQUEST_FINISH)
            uploader_resume();
    } else if (uploader_wait_done(deadline_ns) != 0) {
        log_error("the last profiles were not written in time");
    }
}

static void serve(enum request asked, uint64_t deadline_ns)
{
    (void)!flush_window(asked == REQUEST_FINISH);
    write_all(asked, deadline_ns);
}

/* ---- the agent's thread ---- */

static void rescan_if_stale(uint64_t now)
{
    if (!load_relaxed(&modules_stale) || now < load_relaxed(&next_rescan_ns))
        return;
    store_relaxed(&next_rescan_ns, now + rescan_every_ns);
    store_relaxed(&modules_stale, 0);
    /* One that waited in vain is no news where many threads share a processor: who held the lock
     * had just lost it. */
    int error = modules_rescan_within(moment_wait_ns);
    if (error == -ETIMEDOUT && add_relaxed(&late_rescans, 1) + 1 == LATE_RESCANS_TOLD)
        log_warn("the list of loaded objects is not up to date (error %d)", -error);
    if (!error && load_relaxed(&late_rescans) < LATE_RESCANS_TOLD)
        store_relaxed(&late_rescans, 0);
}

/* Asked in this order: a thread of ours says who it is before it is no more starting. */
static bool is_own_thread(int tid)
{
    return ticks_thread_is_starting() || flush_is_own_thread(tid);
}

/* True when there was something to write. */
static bool flush_period(void)
{
    thread_scan(is_own_thread, adopted, gone);
    bool has_news = flush_window(false) != 0 || !uploader_is_done();
    if (has_news)
        need_uploader();
    return has_news;
}

/* Both threads end when a period had nothing to write: an idle process is not woken up, and is what
 * it is without us to whoever counts its threads. The first sample that comes makes them anew. */
static bool goes_to_rest(void)
{
    if (is_early)
        return false;
    uploader_pause(true);
    bool ended = own_thread_wait_none(&uploader_thread, clock_monotonic_ns() + NS_PER_SEC);
    uploader_pause(false);
    if (ended) {
        flush_own_threads_end();
        store_relaxed(&rested, 1);
        own_thread_is_none(&agent_thread);
        moment_set_due_now();
    }
    return ended;
}

static void *agent_main(void *unused)
{
    (void)unused;
    own_thread_enter("libagent");
    flush_own_thread_begins(FLUSH_OWN_AGENT);
    store_release(&agent_thread, OWN_THREAD_RUNNING);
    /* The window of one that has rested has just begun to fill. */
    uint64_t next_flush_ns =
        exchange_acq_rel(&rested, 0) ? clock_monotonic_ns() + options.period_ns : period_end();
    uint64_t nap_ns = own_thread_is_known_to_libc() ? rescan_every_ns : UINT64_MAX / 2;
    for (;;) {
        uint32_t news = load_acquire(&bell);
        uint32_t asked = load_acquire(&wanted);
        uint64_t now = clock_monotonic_ns();
        if (own_thread_is_known_to_libc())
            rescan_if_stale(now);
        if (asked != load_relaxed(&served)) {
            bool is_end = asked & 1;
            serve(is_end ? REQUEST_FINISH : REQUEST_FLUSH, load_relaxed(&request_deadline_ns));
            store_release(&served, asked);
            sys_futex_wake(&served, INT32_MAX);
            if (is_end)
                return ends(&agent_thread);
        } else if (is_paused()) {
            return ends(&agent_thread);
        } else if (now >= next_flush_ns) {
            if (!flush_period() && goes_to_rest())
                return NULL;
            /* Missed periods are skipped, not made up. */
            next_flush_ns = clock_monotonic_ns() + options.period_ns;
        } else {
            sys_futex_wait(&bell, news, MIN_OF(next_flush_ns, now + nap_ns));
        }
    }
}

/* Makes the agent's thread if there is none. 0, or a negative errno. */
static int need_agent_thread(void)
{
    return own_thread_need(&agent_thread, agent_main, is_paused);
}

/* ---- moments ---- */

static bool has_stack_room(void)
{
    return sys_readable((uintptr_t)__builtin_frame_address(0) - STACK_ROOM);
}

/* moment_work: something is due. Where the stack is not clean this thread may hold a lock of
 * libc's, which the loader wants, and pthread_create, but not a thread that libc does not know. */
static void on_moment(bool clean)
{
    if (!has_stack_room() || (!clean && own_thread_is_known_to_libc()))
        return;
    uint64_t now = clock_monotonic_ns();
    if (clean)
        rescan_if_stale(now);
    uint64_t due = UINT64_MAX;
    if (is_paused()) {
        due = now + look_again_ns;
    } else if (load_acquire(&agent_thread) == OWN_THREAD_NONE) {
        due = period_end();
        if (now >= due || is_early) {
            bool has_news = recorder_has_samples() || wall_is_on() || is_early;
            int error = has_news ? need_agent_thread() : 0;
            due = now + retry_ns;
            /* EINVAL: after unshare(CLONE_NEWPID) the program can have no more threads either. */
            if (error == -EINVAL)
                log_info("no thread of the agent in this namespace: profiles are written at exit");
            else if (error && error != -EBUSY && !exchange_acq_rel(&said_no_thread, 1))
                log_warn("no thread of the agent (error %d): profiles are written at exit", -error);
        }
    }
    if (load_relaxed(&modules_stale))
        due = MIN_OF(due, load_relaxed(&next_rescan_ns));
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
    adopted = thread_adopted;
    gone = thread_gone;
    is_early = early && options.period_ns;
    store_release(&moment_work, on_moment);
    store_relaxed(&moment_due_ns, is_early ? 0 : period_end());
}

/* ---- requests ---- */

/* May pthread_create be called here? Yes when no frame of libc, the loader or the allocator lies
 * under the call that led to us (exit, exec) but the outermost ones. */
static bool stack_allows_thread(void)
{
    struct thread_slot *slot = thread_tls.slot;
    struct record_stack *stack = slot && thread_owns(slot) ? scratch_claim() : NULL;
    if (!stack)
        return false;
    struct unwind_regs regs;
    struct unwind_stack home = {slot->stack_low, slot->stack_high};
    uint32_t flags;
    uint32_t generation;
    thread_guard_enter(slot);
    unwind_regs_here(&regs);
    uint32_t count =
        unwind_walk(&regs, false, &home, stack->pcs, options.max_frames, &flags, &generation);
    const struct module_list *list = load_acquire(&modules_list);
    uint32_t changes = 0; /* between the system's code and the app's, from the innermost on */
    bool in_system = true;
    /* The outermost frame may be the program's _start, under libc's own. */
    for (uint32_t i = 0; i + 1 < count; i++) {
        const struct module *module = modules_find(list, stack->pcs[i]);
        bool is_system = !module || module->object->is_system;
        changes += is_system != in_system;
        in_system = is_system;
    }
    thread_guard_leave(slot);
    scratch_give(stack);
    /* System (exit), app, system (libc's start): two changes at most. */
    return (flags & UNWIND_COMPLETE) && !(flags & UNWIND_INTERRUPTED) && changes <= 2 &&
           has_stack_room();
}

static void ask(enum request asked, uint64_t deadline_ns)
{
    bool has_thread = load_acquire(&agent_thread) != OWN_THREAD_NONE ||
                      (stack_allows_thread() && need_agent_thread() == 0);
    if (!has_thread) {
        serve(asked, deadline_ns);
        return;
    }
    store_relaxed(&request_deadline_ns, deadline_ns);
    uint32_t ticket = __atomic_add_fetch(&wanted, (uint32_t)asked, __ATOMIC_RELEASE);
    ring();
    for (;;) {
        uint32_t seen = load_acquire(&served);
        if ((int32_t)(seen - ticket) >= 0)
            return;
        uint64_t now = clock_monotonic_ns();
        if (now >= deadline_ns) {
            log_error("profiles could not be written in time: given up");
            return;
        }
        if (load_acquire(&agent_thread) == OWN_THREAD_NONE) {
            serve(asked, deadline_ns);
            return;
        }
        sys_futex_wait(&served, seen, MIN_OF(deadline_ns, now + look_again_ns));
    }
}

void agent_thread_flush(uint64_t deadline_ns)
{
    ask(REQUEST_FLUSH, deadline_ns);
}

static void say_where(void)
{
    char files[1024];
    char line[1200];
    if (!log_stderr_is_terminal() || uploader_last_files(files, sizeof(files)) == 0)
        return;
    format(line, sizeof(line), "libagent: profiles: %s (open with: pprof -http=: FILE)\n", files);
    log_plain(line);
}

void agent_thread_finish(uint64_t deadline_ns)
{
    if (load_acquire(&agent_thread) == OWN_THREAD_NONE && !flush_is_due_at_end() &&
        uploader_is_done())
        return;
    ask(REQUEST_FINISH, deadline_ns);
    say_where();
}

/* ---- pauses ---- */

void agent_thread_wait_gone(uint64_t deadline_ns)
{
    static const struct timespec pause = {0, 200000};
    while (flush_has_own_thread() && clock_monotonic_ns() < deadline_ns)
        sys_call2(SYS_nanosleep, &pause, NULL);
}

void agent_thread_pause(uint64_t deadline_ns)
{
    __atomic_fetch_add(&pauses, 1, __ATOMIC_SEQ_CST);
    bool ended = ticks_thread_pause(deadline_ns);
    if (ended && !own_thread_is_there(&agent_thread) && !own_thread_is_there(&uploader_thread) &&
        !flush_has_own_thread())
        return;
    ring();
    ended &= own_thread_wait_none(&agent_thread, deadline_ns);
    uploader_pause(true);
    ended &= own_thread_wait_none(&uploader_thread, deadline_ns);
    uploader_pause(false);
    if (ended)
        raw_threads_wait_ended();
    /* The kernel counts a thread a little longer than it uses its memory. */
    agent_thread_wait_gone(deadline_ns ? deadline_ns : clock_monotonic_ns() + NS_PER_SEC);
}

void agent_thread_go_on(void)
{
    if (__atomic_sub_fetch(&pauses, 1, __ATOMIC_SEQ_CST) != 0)
        return;
    store_relaxed(&moment_due_ns, is_early ? 0 : period_end());
    ticks_thread_go_on();
}

void agent_thread_start_ticks(const struct scheduler *scheduler)
{
    ticks_thread_start(scheduler, is_paused);
}

void agent_thread_reset_in_child(void)
{
    pauses = 0;
    rested = 0;
    agent_thread = OWN_THREAD_NONE;
    uploader_thread = OWN_THREAD_NONE;
    wanted = 0;
    served = 0;
    said_no_thread = 0;
    next_rescan_ns = 0;
    store_relaxed(&moment_due_ns, is_early ? 0 : period_end());
}
