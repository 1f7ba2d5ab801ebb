#include "agent/flush.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/capture_files.h"
#include "agent/export/export.h"
#include "agent/export/gathered.h"
#include "agent/export/jit_names.h"
#include "agent/export/line_cache.h"
#include "agent/export/name_cache.h"
#include "agent/flush_comments.h"
#include "agent/heap_watch.h"
#include "agent/lost_tails.h"
#include "agent/record/heap_recorder.h"
#include "agent/record/heap_snapshot.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/wall.h"
#include "agent/thread/captures.h"
#include "agent/thread/left_threads.h"
#include "agent/thread/thread_context.h"
#include "agent/unseen_threads.h"
#include "uploader/uploader.h"

/* A sample takes microseconds; a second means that its thread is stopped. */
static const uint64_t quiescence_limit_ns = NS_PER_SEC;

static struct lock flush_lock = LOCK_INIT(LOCK_FLUSH);
static uint32_t sequence;
static bool has_cpu; /* changes under the lock */

/* The window that was turned away from and is not written yet. */
static struct {
    struct window *window;
    uint64_t end_monotonic_ns;
    uint64_t told_ns; /* before it: up to then each thread's time is in the window */
} pending;

/* The agent's own threads, one of a kind at a time: label, CPU time of those that have ended, and
 * of all what is in a window already. The first has a word with whether the last one is among them,
 * as a flush that sees one without the other has a thread's time twice, or not at all. */
static struct {
    struct thread_label label;
    enum pseudo_frame part;
    uint64_t ended_ns; /* twice; and 1: the last one, too */
    uint64_t accounted_ns;
} own_threads[FLUSH_OWN_THREADS] = {
    [FLUSH_OWN_AGENT] = {.label.name = "libagent", .part = PSEUDO_AGENT},
    [FLUSH_OWN_UPLOADER] = {.label.name = "libagent-up", .part = PSEUDO_UPLOADER},
    [FLUSH_OWN_TICKS] = {.label.name = "libagent-tick", .part = PSEUDO_TICKS},
};

void flush_own_thread_begins(enum flush_own_thread which)
{
    store_release(&own_threads[which].label.tid, (uint64_t)sys_tid());
    store_release(&own_threads[which].ended_ns, load_relaxed(&own_threads[which].ended_ns) & ~1ull);
}

void flush_own_thread_ends(enum flush_own_thread which)
{
    left_threads_add(sys_tid()); /* the next one may begin while this one still ends */
    uint64_t ended_ns = load_relaxed(&own_threads[which].ended_ns) + 2 * clock_thread_cpu_ns();
    store_release(&own_threads[which].ended_ns, ended_ns | 1);
}

static uint64_t own_cpu_ns(size_t which)
{
    uint64_t ended_ns = load_acquire(&own_threads[which].ended_ns);
    uint64_t tid = load_relaxed(&own_threads[which].label.tid);
    return ended_ns / 2 + (tid && !(ended_ns & 1) ? clock_thread_cpu_of_ns((int)tid) : 0);
}

uint64_t flush_own_threads_cpu_ns(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < FLUSH_OWN_THREADS; i++)
        sum += MAX_OF(own_cpu_ns(i), load_relaxed(&own_threads[i].accounted_ns));
    return sum;
}

/* FLUSH_OWN_THREADS: it is none of ours. */
static size_t own_thread_of(int tid)
{
    size_t i = 0;
    while (i < FLUSH_OWN_THREADS && load_acquire(&own_threads[i].label.tid) != (uint64_t)tid)
        i++;
    return i;
}

bool flush_is_own_thread(int tid)
{
    return own_thread_of(tid) < FLUSH_OWN_THREADS;
}

bool flush_is_own_thread_now(int tid)
{
    size_t i = own_thread_of(tid);
    return i < FLUSH_OWN_THREADS && !(load_acquire(&own_threads[i].ended_ns) & 1);
}

uint32_t flush_own_threads_there(void)
{
    uint32_t there = 0;
    for (size_t i = 0; i < FLUSH_OWN_THREADS; i++) {
        uint64_t tid = load_relaxed(&own_threads[i].label.tid);
        there += tid && sys_call3(SYS_tgkill, thread_pid(), tid, 0) == 0;
    }
    return there;
}

static void add_own_threads(void)
{
    for (size_t i = 0; i < FLUSH_OWN_THREADS; i++) {
        uint64_t now = own_cpu_ns(i);
        if (now <= own_threads[i].accounted_ns)
            continue;
        uint64_t spent = now - own_threads[i].accounted_ns;
        cpu_sample_add_overhead(&own_threads[i].label, own_threads[i].part, spent);
        stats_add(i == FLUSH_OWN_TICKS ? STAT_TICKS_NS : STAT_FLUSH_NS, spent);
        store_relaxed(&own_threads[i].accounted_ns, now);
    }
}

void flush_own_threads_end(void)
{
    lock_acquire(&flush_lock);
    if (has_cpu)
        add_own_threads();
    lock_release(&flush_lock);
}

uint64_t flush_ticks_cpu_ns(void)
{
    uint64_t tid = load_acquire(&own_threads[FLUSH_OWN_TICKS].label.tid);
    return tid ? clock_thread_cpu_of_ns((int)tid) : 0;
}

static void add_threads(bool final)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        if (load_acquire(&slot->state) != SLOT_USED || load_relaxed(&slot->tid) == 0)
            continue;
        uint64_t now = clock_thread_cpu_of_ns(slot->tid);
        cpu_sample_unreached(slot, now);
        wall_flush(slot, clock_monotonic_ns(), now, final);
        if (final && now) /* else it is gone: what it used since is nobody's */
            cpu_sample_tail(slot, now);
        cpu_sample_overhead(slot); /* behind the tail, which may correct it */
    }
    wall_flushed();
}

void flush_hold(void)
{
    lock_acquire(&flush_lock);
    has_cpu = false;
    lock_release(&flush_lock);
}

void flush_start(bool with_cpu)
{
    stats_reset();
    lock_acquire(&flush_lock);
    has_cpu = with_cpu;
    lock_release(&flush_lock);
    flush_comments_start(clock_process_cpu_ns());
}

static bool has_unreached_thread(void)
{
    for (uint32_t i = 0; has_cpu && i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        if (load_acquire(&slot->state) == SLOT_USED && load_relaxed(&slot->tid) != 0 &&
            cpu_sample_is_unreached(slot, clock_thread_cpu_of_ns(slot->tid)))
            return true;
    }
    return false;
}

/* Frees alone make no window of a process that has not written one: a fork child that frees and
 * then execs is not held up. */
static bool is_due(void)
{
    return recorder_has_samples() || (sequence && heap_recorder_has_changed());
}

bool flush_is_due_at_end(void)
{
    return is_due() || load_relaxed(&pending.window) || wall_is_on() || has_unreached_thread() ||
           (has_cpu && unseen_threads_have_time());
}

/* A wall profile takes CPU samples too, which nobody has asked for. */
static bool is_profiled(enum record_family family)
{
    if (family == RECORD_WALL)
        return wall_is_on();
    if (family == FILE_HEAP_GROWTH)
        return heap_watch_has_growth();
    if (family == FILE_HEAP_PEAK)
        return heap_watch_has_peak();
    return family != RECORD_CPU || (options.profiles & PROFILE_CPU);
}

/* The live heap as it is now, for the families to come. False: there is none, or it failed. */
static bool take_live(void)
{
    if (!heap_recorder_is_on())
        return false;
    heap_watch_look(true);
    const struct heap_view view = {
        .now_s = (uint32_t)(clock_monotonic_ns() / NS_PER_SEC),
        .min_age_s = (uint32_t)(options.heap_min_age_ns / NS_PER_SEC),
        .by_thread = options.thread_labels,
        .by_age = options.heap_age,
        .by_size = options.heap_bytes,
    };
    int error = heap_snapshot_prepare(&view);
    if (error) {
        log_error("a window has no live heap: %s (errno %d)", error_text(error), -error);
        stats_add(STAT_HEAP_SNAPSHOTS_FAILED, 1);
    }
    return error == 0;
}

static uint32_t families_profiled(void)
{
    uint32_t families = 0;
    for (int family = 0; family < RECORD_FAMILIES; family++)
        families |= is_profiled((enum record_family)family) ? 1u << family : 0;
    bool has_heap = options.profiles & (PROFILE_ALLOC | PROFILE_HEAP);
    return has_heap ? families : families & ~(1u << RECORD_ALLOC);
}

static int submit(const struct window *window, const struct export_request *request)
{
    const char *dialect = export_dialect_name(request->dialect);
    struct buffer body = {0};
    int error = export_within_limits(window, request, routes_max_bytes(dialect), &body);
    if (error || body.size == 0)
        return error;
    struct blob_header header = {
        .start_unix_ns = request->start_unix_ns,
        .end_unix_ns = request->start_unix_ns + request->duration_ns,
        .sequence = sequence,
    };
    bool is_whole = request->dialect == DIALECT_DATADOG;
    format(header.dialect, sizeof(header.dialect), "%s", dialect);
    format(header.family, sizeof(header.family), "%s",
           is_whole ? "all" : export_family_name(request->family));
    format(header.service, sizeof(header.service), "%s", options.service);
    format(header.capture, sizeof(header.capture), "%s",
           request->capture ? request->capture_name : "");
    error = uploader_submit(&header, &body);
    return error ? error : 1;
}

/* For Parca what is live, as it is at the end of a window, is a profile of its own that lasts no
 * time: with a duration it would be taken for a rate. */
static int submit_parts(const struct window *window, const struct export_request *request)
{
    if (request->dialect != DIALECT_PARCA || request->family != RECORD_ALLOC || !request->has_live)
        return submit(window, request);
    struct export_request allocated = *request, live = *request;
    allocated.has_live = live.has_window = false;
    live.start_unix_ns += live.duration_ns;
    live.duration_ns = 0;
    int blobs = allocated.has_window ? submit(window, &allocated) : 0;
    int more = blobs < 0 ? blobs : submit(window, &live);
    return more < 0 ? more : blobs + more;
}

static struct export_request request_of(const struct window *window, enum record_family family,
                                        bool has_live)
{
    bool is_time = family == RECORD_CPU || family == RECORD_WALL;
    return (struct export_request){
        .family = family,
        .families = families_profiled(),
        .start_unix_ns = window->start_realtime_ns,
        .duration_ns = pending.end_monotonic_ns - window->start_monotonic_ns,
        .period = is_time ? NS_PER_SEC / options.frequency : options.alloc_interval,
        .thread_labels = options.thread_labels,
        .state_label = true,
        .user_labels = true,
        .age_label = options.heap_age,
        .bytes_label = options.heap_bytes,
        .has_window = options.profiles & PROFILE_ALLOC,
        .has_live = has_live && (options.profiles & PROFILE_HEAP),
        .comments = flush_comments(),
        .program = uploader_program(),
        .service = options.service,
        .pid = thread_pid(),
    };
}

/* In each of the first dialects that is wanted. */
static int submit_dialects(const struct window *window, const struct export_request *family,
                           int dialects, bool (*is_wanted)(const char *dialect))
{
    struct export_request request = *family;
    struct gathered gathered = {.is_there = false};
    int blobs = 0;
    request.shared = &gathered;
    for (int i = 0; i < dialects && blobs >= 0; i++) {
        request.dialect = (enum export_dialect)i;
        /* The one file of Datadog's goes with the first family. */
        if (!is_wanted(export_dialect_name(request.dialect)) ||
            (request.dialect == DIALECT_DATADOG &&
             (request.families & -request.families) != 1u << request.family))
            continue;
        int submitted = submit_parts(window, &request);
        blobs = submitted < 0 ? submitted : blobs + submitted;
    }
    gathered_free(&gathered);
    return blobs;
}

static int submit_family(const struct window *window, enum record_family family, bool has_live)
{
    struct export_request request = request_of(window, family, has_live);
    if (family == FILE_HEAP_GROWTH && !has_live)
        return 0;
    /* A backend compares windows itself, and takes no negative values. */
    int dialects = family < RECORD_FAMILIES ? DIALECTS : DIALECT_FILES;
    return submit_dialects(window, &request, dialects, routes_want);
}

static int submit_files(const struct window *window, const struct export_request *request)
{
    return submit_dialects(window, request, DIALECT_FILES, routes_to_files);
}

/* Those of its captures. */
static int submit_captures(const struct window *window)
{
    struct export_request request = request_of(window, RECORD_CPU, false);
    int result = capture_files_submit(window, &request, pending.told_ns, submit_files);
    captures_free(pending.told_ns);
    return result;
}

/* Encodes and submits the pending window if nobody can still write into it. */
static int write_pending(void)
{
    if (!thread_guard_quiescent(clock_monotonic_ns() + quiescence_limit_ns)) {
        log_warn("a thread is stopped in the middle of a sample: the window waits");
        return -EAGAIN;
    }
    struct window *window = pending.window;
    bool has_live = take_live();
    flush_comments_make(window, has_live);
    int blobs = 0;
    int result = 0;
    for (int family = 0; family < FILE_FAMILIES; family++) {
        if (!is_profiled((enum record_family)family))
            continue;
        int submitted = submit_family(window, (enum record_family)family, has_live);
        if (submitted < 0) {
            log_error("a window's %s profile is lost: %s (errno %d)",
                      export_family_name((enum record_family)family), error_text(submitted),
                      -submitted);
            stats_add(STAT_WINDOWS_FAILED, 1);
            result = submitted;
        } else {
            blobs += submitted;
        }
    }
    int of_captures = submit_captures(window);
    blobs += MAX_OF(of_captures, 0);
    result = MIN_OF(result, of_captures);
    jit_names_forget();
    if (blobs)
        sequence++;
    if (has_live)
        heap_snapshot_finish();
    recorder_clear(window);
    store_relaxed(&pending.window, NULL);
    return result ? result : blobs;
}

int flush_left_over(void)
{
    lock_acquire(&flush_lock);
    int result = pending.window ? write_pending() : 0;
    lock_release(&flush_lock);
    return MIN_OF(result, 0);
}

static int flush_locked(bool final)
{
    int waited = 0;
    if (pending.window) {
        waited = write_pending();
        if (pending.window)
            return waited;
    }
    /* At the end no sample begins any more; one under way may still be. */
    if (final)
        (void)thread_guard_quiescent(clock_monotonic_ns() + quiescence_limit_ns);
    uint64_t told = clock_monotonic_ns();
    captures_end_late(told);
    if (has_cpu) {
        add_own_threads();
        add_threads(final);
        cpu_sample_tell_ends();
        cpu_sample_add_unseen(lost_tails_tell(unseen_threads_take_time()));
    }
    if (!is_due()) {
        if (thread_guard_quiescent(0)) /* no sample has them */
            captures_free(told);
        return waited;
    }
    uint64_t now = clock_monotonic_ns();
    store_relaxed(&pending.window, recorder_turn(now, clock_realtime_ns()));
    pending.end_monotonic_ns = now;
    pending.told_ns = told;
    int result = write_pending();
    return waited < 0 || result < 0 ? MIN_OF(waited, result) : waited + result;
}

int flush_window(bool final)
{
    lock_acquire(&flush_lock);
    int result = flush_locked(final);
    lock_release(&flush_lock);
    return result;
}

bool flush_is_under_way(void)
{
    return load_relaxed(&flush_lock.word) != 0 || load_relaxed(&pending.window);
}

void flush_heap_start(bool on)
{
    lock_acquire(&flush_lock);
    heap_watch_start(on);
    lock_release(&flush_lock);
}

void flush_heap_look(void)
{
    lock_acquire(&flush_lock);
    heap_watch_look(false);
    lock_release(&flush_lock);
}

int flush_heap_mark(void)
{
    lock_acquire(&flush_lock);
    int error = heap_watch_mark();
    lock_release(&flush_lock);
    return error;
}

void flush_reset_in_child(void)
{
    if (load_relaxed(&flush_lock.word) != 0) { /* by a thread that is not here */
        name_cache_abandon();
        line_cache_abandon();
        jit_names_abandon();
    }
    lock_reset(&flush_lock);
    sequence = 0;
    pending.window = NULL;
    for (size_t i = 0; i < FLUSH_OWN_THREADS; i++)
        own_threads[i].label.tid = own_threads[i].ended_ns = own_threads[i].accounted_ns = 0;
    flush_comments_start(0);
}
