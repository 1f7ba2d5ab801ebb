/* export.h: from a quiescent window, and the live heap's open snapshot and kept ones, to the bytes
 * of one file a family and dialect: pprof, a page for a browser, collapsed stacks.
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
    /* Of files: the same, written in other ways. */
    DIALECT_PPROF,     /* plain POST, too */
    DIALECT_HTML,      /* a page that shows itself (html.c) */
    DIALECT_COLLAPSED, /* a line of text a stack (collapsed.c) */
    DIALECT_FILES,
    /* Of backends. */
    DIALECT_PYROSCOPE = DIALECT_FILES, /* no labels of texts, which would each be a series; of
                                        * limited size */
    DIALECT_PARCA,                     /* what is live apart from what a window allocated */
    DIALECT_DATADOG,                   /* all families in one file, names of its own */
    DIALECTS
};

struct gathered;

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
    const char *program, *service;      /* of pages; NULL: not known */
    int pid;
    uint64_t byte_limit;     /* pages and lines that become larger are -E2BIG; 0: no limit */
    struct gathered *shared; /* rows and names of the files' dialects, kept from one to the next for
                              * the same window and a request that differs in the dialect alone;
                              * NULL: not kept */
};

/* "pprof", "html", "collapsed", "pyroscope", "parca", "datadog". */
const char *export_dialect_name(enum export_dialect dialect);
/* The file's name part: "cpu", "heap", "wall", "heap-growth", "heap-peak". */
const char *export_family_name(enum record_family family);
/* Encodes; `out` is empty before, and stays empty when the family has no row. 0 or a negative
 * errno (out is then freed). */
int export_pprof(const struct window *window, const struct export_request *request,
                 struct buffer *out) MUST_USE;
int export_html(const struct window *window, const struct export_request *request,
                struct buffer *out) MUST_USE;
int export_collapsed(const struct window *window, const struct export_request *request,
                     struct buffer *out) MUST_USE;
/* The request's dialect, within the limits of its receiver, and `max_bytes` (0: no more limits).
 * What does not fit is libagent truncated. */
int export_within_limits(const struct window *window, const struct export_request *request,
                         size_t max_bytes, struct buffer *out) MUST_USE;

#endif
