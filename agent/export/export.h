/* export.h: from a quiescent window, and the live heap's open snapshot and kept ones, to the bytes
 * of one pprof file a family.
 *
 * Names are found here, off every hot path: for each object all addresses of the window are
 * sorted, and one pass over its table of symbols (symbols.h tells which) names them; what has no
 * name is `object+0xoffset`. Files are read by pread, never mapped (a file cut meanwhile must
 * not fault), and only when their build id is still that of the loaded object.
 *
 * What was found is kept for later windows (name_cache.h).
 *
 * Owns: nothing else that lasts. Context: TICK, INIT (exit). Locks: LOCK_MODULES for resolving,
 * short. Memory: buffers of its own (mmap), freed before it returns. */
#ifndef LIBAGENT_EXPORT_H
#define LIBAGENT_EXPORT_H

#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/record/time_recorder.h"

/* What differs between receivers inside the file. */
enum export_dialect {
    DIALECT_PPROF,     /* files, plain POST */
    DIALECT_PYROSCOPE, /* no labels of texts, which would each be a series; of limited size */
    DIALECT_PARCA,     /* what is live apart from what a window allocated */
    DIALECT_DATADOG,   /* all families in one file, names of its own */
    DIALECTS
};

struct export_request {
    enum export_dialect dialect;
    enum record_family family; /* of DIALECT_DATADOG the one that gives the period */
    uint32_t families;         /* of DIALECT_DATADOG: 1 << family of each that is profiled */
    uint32_t row_limit;        /* samples at most, 0: no limit; the smallest beyond are folded into
                                * libagent truncated */
    uint64_t start_unix_ns;
    uint64_t duration_ns;
    uint64_t period; /* cpu, wall: nanoseconds between ticks; alloc: interval in bytes */
    bool thread_labels;
    bool state_label;                   /* of wall samples */
    bool user_labels;                   /* the program's own, and captures */
    const struct intern_entry *capture; /* rows of that one alone, a copy of a part of the window;
                                         * NULL: all */
    const char *capture_name;           /* NAME.NUMBER; NULL: none */
    bool age_label, bytes_label;        /* of what is live: as the snapshot was made */
    bool has_window;                    /* the window's values are written */
    bool has_live;                      /* those of the open snapshot of the live heap, too; of
                                         * FILE_HEAP_GROWTH and FILE_HEAP_PEAK there are these alone */
    const char *const *comments;        /* texts, NULL at the end */
};

/* "pprof", "pyroscope", "parca", "datadog". */
const char *export_dialect_name(enum export_dialect dialect);
/* The file's name part: "cpu", "heap", "wall", "heap-growth", "heap-peak". */
const char *export_family_name(enum record_family family);
/* Encodes; `out` is empty before, and stays empty when the family has no row. 0 or a negative
 * errno (out is then freed). */
int export_pprof(const struct window *window, const struct export_request *request,
                 struct buffer *out) MUST_USE;
/* The same, within the limits of the dialect's receiver, and `max_bytes` (0: no more limits). */
int export_within_limits(const struct window *window, const struct export_request *request,
                         size_t max_bytes, struct buffer *out) MUST_USE;

#endif
