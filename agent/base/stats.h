/* stats.h: the agent's own figures, one list. Each becomes a pprof comment of the window in
 * which it changed. Counters only grow; relaxed atomics.
 * Owns: the counters. Context: any. Locks: none. */
#ifndef LIBAGENT_STATS_H
#define LIBAGENT_STATS_H

#include <stdint.h>

#include "agent/base/compiler.h"

/* name, text as it stands in the comment */
#define STATS_LIST(X)                                                                              \
    X(CPU_SAMPLES, "cpu samples")                                                                  \
    X(CPU_DROPPED_INSIDE, "cpu samples put off: thread was inside the agent")                      \
    X(CPU_DROPPED_BUSY, "cpu samples put off: no scratch buffer")                                  \
    X(WALL_SAMPLES, "wall samples")                                                                \
    X(BLOCKED_READ, "stacks of blocked threads read from outside")                                 \
    X(BLOCKED_MOVED, "stacks of blocked threads dropped: they went on")                            \
    X(LOOKS_PUT_OFF, "looks at what threads do put off: what these take is bounded")               \
    X(BLOCKED_REFUSED, "stacks of blocked threads that could not be read")                         \
    X(BLOCKED_INCOMPLETE, "stacks of blocked threads that did not reach main or thread start")     \
    X(ALLOC_SAMPLES, "allocation samples")                                                         \
    X(ALLOC_DROPPED_BUSY, "allocation samples folded: no scratch buffer")                          \
    X(ALLOC_DROPPED_UNTRACKED, "allocation samples dropped: thread not tracked")                   \
    X(HEAP_THINNED, "live heap: samples thinned out, near LIBAGENT_MEMORY")                        \
    X(HEAP_DROPPED, "live heap: samples dropped: tables full")                                     \
    X(HEAP_TRUNCATED, "live heap: samples whose stack had no room: libagent truncated")            \
    X(HEAP_SNAPSHOTS_FAILED, "live heap: snapshots that failed")                                   \
    X(HEAP_MISSED_FREES, "live heap: frees that were not seen")                                    \
    X(SAMPLES_TRUNCATED, "samples folded into libagent truncated: table full")                     \
    X(LABELS_DROPPED, "samples without their thread's label: table full")                          \
    X(CAPTURES_REFUSED, "captures refused: as many as there may be are not in a file yet")         \
    X(CAPTURES_DROPPED, "files of captures dropped: queue full")                                   \
    X(STACKS_INCOMPLETE, "stacks that did not reach main or thread start")                         \
    X(STACKS_CUT, "stacks cut at LIBAGENT_MAX_FRAMES")                                             \
    X(THREADS_UNTRACKED, "threads not tracked: table full")                                        \
    X(THREADS_FOREIGN, "threads that are not libc's")                                              \
    X(TIMERS_REFUSED, "threads without cpu samples: timer refused")                                \
    X(WINDOWS_DROPPED, "windows dropped: queue full")                                              \
    X(WINDOWS_FAILED, "windows that could not be written")                                         \
    X(UPLOADS_SENT, "profiles sent")                                                               \
    X(UPLOADS_DROPPED, "profiles not sent: dropped")                                               \
    X(UPLOADS_SPOOLED, "profiles kept in LIBAGENT_SPOOL")                                          \
    X(UPLOADS_UNKNOWN, "profiles sent, answer unknown")                                            \
    X(UPLOADS_REPEATED, "tries to send a profile that failed and are repeated")                    \
    X(FILES_REMOVED, "old profiles removed: LIBAGENT_OUTPUT_LIMIT")                                \
    X(HANDLERS_NS, "nanoseconds in sampling handlers")                                             \
    X(HOOKS_NS, "nanoseconds in allocation hooks")                                                 \
    X(TICKS, "ticks")                                                                              \
    X(TICKS_NS, "nanoseconds of cpu in the ticks' thread")                                         \
    X(FLUSH_NS, "nanoseconds of cpu in the agent's other threads")                                 \
    X(LINES_PUT_OFF, "addresses without file and line yet: put off to the next profile")           \
    X(LINES_LEFT_OUT, "addresses without file and line: LIBAGENT_SYMBOL_LIMIT, or damaged")        \
    X(UNWIND_NOT_LIBUNWIND, "stacks walked by cfi: libunwind was in use")                          \
    X(UNWIND_NOT_RECORDS, "stacks walked by cfi: frame records did not lead to their end")         \
    X(UNWIND_CACHE_MISSES, "unwind rules interpreted")                                             \
    X(MODULES_LOADED, "objects registered")                                                        \
    X(FRAMES_LEFT_OUT, "objects with call frame information too large or compressed: left out")

/* Not `enum stat`: the tag is taken by sys/stat.h. */
enum stat_id {
#define X(name, text) STAT_##name,
    STATS_LIST(X)
#undef X
        STAT_COUNT
};

extern HIDDEN uint64_t stats_values[STAT_COUNT];

static inline void stats_add(enum stat_id stat, uint64_t value)
{
    add_relaxed(&stats_values[stat], value);
}

static inline uint64_t stats_get(enum stat_id stat)
{
    return load_relaxed(&stats_values[stat]);
}

const char *stats_text(enum stat_id stat);
/* In a fork child: all back to 0. */
void stats_reset(void);

#endif
