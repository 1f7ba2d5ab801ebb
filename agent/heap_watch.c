#include "agent/heap_watch.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/record/heap_kept.h"
#include "agent/record/heap_recorder.h"

/* A peak is taken anew when it is higher by one in PEAK_STEP; a snapshot takes one in PEAK_SHARE of
 * a processor. */
enum { PEAK_STEP = 20, PEAK_SHARE = 50 };
static const uint64_t peak_pause_ns = 10 * NS_PER_MS; /* at least */
/* When there was no room for it. */
static const uint64_t retry_ns = 10 * NS_PER_SEC;

static bool wants_growth, wants_peak;
static uint64_t start_realtime_ns, start_monotonic_ns;
static uint64_t mark_due_ns = UINT64_MAX;
static uint64_t peak_after_ns; /* not before */
static uint64_t peak_least;    /* bytes that make a new peak */
static uint32_t failure_said[HEAP_KEPT_COUNT];

static struct heap_view view_kept(uint64_t min_age_ns)
{
    return (struct heap_view){
        .now_s = (uint32_t)(clock_monotonic_ns() / NS_PER_SEC),
        .min_age_s = (uint32_t)(min_age_ns / NS_PER_SEC),
        .by_thread = options.thread_labels,
        .by_size = options.heap_bytes,
    };
}

/* Each is counted, the first of a start said: a program may mark at every request. */
static void count_failure(enum heap_kept_which which, int error)
{
    static const char *const what[] = {
        [HEAP_MARK] = "heap-growth, which counts from the mark before",
        [HEAP_PEAK] = "heap-peak",
    };
    stats_add(STAT_HEAP_SNAPSHOTS_FAILED, 1);
    if (!exchange_acq_rel(&failure_said[which], 1))
        log_warn("the live heap could not be kept for %s: %s (errno %d); others like it are not "
                 "told",
                 what[which], error_text(error), -error);
}

/* ---- marks ---- */

static int take_mark(void)
{
    struct heap_view view = view_kept(options.heap_min_age_ns); /* as the window's */
    int error = heap_kept_take(HEAP_MARK, &view, 0);
    if (error)
        count_failure(HEAP_MARK, error);
    return error;
}

int heap_watch_mark(void)
{
    if (!heap_recorder_is_on())
        return -ENODATA;
    int error = take_mark();
    if (!error) {
        wants_growth = true;
        store_relaxed(&mark_due_ns, UINT64_MAX);
    }
    return error;
}

/* ---- the peak ---- */

static bool is_peak(void)
{
    return load_relaxed(&wants_peak) && heap_recorder_inuse() >= load_relaxed(&peak_least);
}

static void take_peak(void)
{
    struct heap_view view = view_kept(0);
    uint64_t began_ns = clock_thread_cpu_ns();
    int error = heap_kept_take(HEAP_PEAK, &view, peak_least);
    uint64_t pause_ns = (clock_thread_cpu_ns() - began_ns) * PEAK_SHARE;
    pause_ns = MAX_OF(pause_ns, peak_pause_ns);
    struct heap_kept_facts facts;
    if (error && error != -EAGAIN) {
        count_failure(HEAP_PEAK, error);
        pause_ns = MAX_OF(pause_ns, retry_ns);
    } else if (!error && heap_kept_facts(HEAP_PEAK, &facts)) {
        store_relaxed(&peak_least, facts.bytes + facts.bytes / PEAK_STEP + 1);
        log_debug("heap peak: %llu bytes", (unsigned long long)facts.bytes);
    }
    store_relaxed(&peak_after_ns, clock_monotonic_ns() + pause_ns);
}

/* ---- when ---- */

void heap_watch_start(bool on)
{
    heap_kept_drop(HEAP_MARK);
    heap_kept_drop(HEAP_PEAK);
    for (int which = 0; which < HEAP_KEPT_COUNT; which++)
        store_relaxed(&failure_said[which], 0);
    start_monotonic_ns = clock_monotonic_ns();
    start_realtime_ns = clock_realtime_ns();
    heap_recorder_forget_highest();
    wants_growth = on && (options.profiles & PROFILE_HEAP_GROWTH);
    store_relaxed(&mark_due_ns, on && options.heap_mark_ns
                                    ? start_monotonic_ns + options.heap_mark_ns
                                    : UINT64_MAX);
    store_relaxed(&peak_least, 1);
    store_relaxed(&peak_after_ns, 0);
    store_relaxed(&wants_peak, on && (options.profiles & PROFILE_HEAP_PEAK));
    /* What an earlier start recorded lives already. */
    if (wants_growth && heap_recorder_inuse())
        (void)!take_mark(); /* said and counted */
}

uint64_t heap_watch_due_ns(void)
{
    uint64_t due_ns = load_relaxed(&mark_due_ns);
    return is_peak() ? MIN_OF(due_ns, load_relaxed(&peak_after_ns)) : due_ns;
}

void heap_watch_look(bool at_flush)
{
    uint64_t now = clock_monotonic_ns();
    if (!heap_recorder_is_on())
        return;
    if (now >= mark_due_ns) {
        if (heap_watch_mark() == 0)
            log_info("heap-growth counts from now on");
        store_relaxed(&mark_due_ns, UINT64_MAX);
    }
    if (is_peak() && (at_flush || now >= peak_after_ns))
        take_peak();
}

/* ---- what is said ---- */

bool heap_watch_has_growth(void)
{
    return wants_growth;
}

bool heap_watch_has_peak(void)
{
    struct heap_kept_facts facts;
    return wants_peak && heap_kept_facts(HEAP_PEAK, &facts);
}

static size_t say_when(char *text, size_t size, const char *what,
                       const struct heap_kept_facts *facts)
{
    uint64_t ago_ms = (clock_monotonic_ns() - facts->monotonic_ns) / NS_PER_MS;
    return format(text, size,
                  "libagent: %s: %llu.%03u unix time, %llu.%03u s before this was written", what,
                  (unsigned long long)(facts->realtime_ns / NS_PER_SEC),
                  (unsigned)(facts->realtime_ns / NS_PER_MS % 1000),
                  (unsigned long long)(ago_ms / 1000), (unsigned)(ago_ms % 1000));
}

size_t heap_watch_comments(char *texts, size_t size)
{
    struct heap_kept_facts facts = {.monotonic_ns = start_monotonic_ns,
                                    .realtime_ns = start_realtime_ns};
    size_t count = 0;
    if (wants_growth) {
        bool has_mark = heap_kept_facts(HEAP_MARK, &facts);
        say_when(texts + count++ * size, size,
                 has_mark ? "heap-growth counts from a mark at"
                          : "heap-growth counts from the start at",
                 &facts);
    }
    if (heap_watch_has_peak() && heap_kept_facts(HEAP_PEAK, &facts)) {
        say_when(texts + count++ * size, size, "heap-peak was taken at", &facts);
        format(texts + count++ * size, size,
               "libagent: heap-peak, live bytes when it was taken: %llu",
               (unsigned long long)facts.bytes);
        format(texts + count++ * size, size,
               "libagent: heap-peak, highest estimate of live bytes: %llu",
               (unsigned long long)heap_recorder_highest());
    }
    return count;
}
