/* options.h: all options of the agent, one table (options.c holds the rows).
 *
 * The environment is read from `environ` itself, not through getenv (bash has its own), once, by
 * options_load at each start, from a copy that options_keep made in the constructor (the program
 * may change its environment); later reads are plain loads. Before the environment come pairs that
 * a start was given, and before these those of a file (option_pairs.h). A value that does not parse
 * is logged in one line (option, value, what is accepted); its part stays off: options_ok tells. A
 * variable that is set to nothing is not set, as OpenTelemetry has it. Words and units are taken in
 * any case of letters. How texts become values: option_parse.h.
 *
 * Owns: `options`. Context: options_load INIT; reads of `options` any. Locks: none. */
#ifndef LIBAGENT_OPTIONS_H
#define LIBAGENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/log.h"

enum {
    PROFILE_CPU = 1,
    PROFILE_ALLOC = 2,
    PROFILE_WALL = 4,
    PROFILE_HEAP = 8,
    PROFILE_HEAP_GROWTH = 16,
    PROFILE_HEAP_PEAK = 32
};
/* A live heap is recorded. */
enum { PROFILE_LIVE = PROFILE_HEAP | PROFILE_HEAP_GROWTH | PROFILE_HEAP_PEAK };
enum unwinder_id { UNWINDER_AUTO, UNWINDER_CFI, UNWINDER_FP, UNWINDER_LIBUNWIND };
enum scheduler_id {
    SCHEDULER_AUTO,
    SCHEDULER_CPUTIMER,
    SCHEDULER_SIGPROF,
    SCHEDULER_SIGALRM,
    SCHEDULER_SLEEP,
    SCHEDULER_EVENT
};
enum symbols { SYMBOLS_NAMES, SYMBOLS_LINES, SYMBOLS_OFF };
enum { FORMAT_PPROF = 1, FORMAT_HTML = 2, FORMAT_COLLAPSED = 4 };
enum compression { COMPRESSION_GZIP, COMPRESSION_ZSTD, COMPRESSION_NONE };

/* In the order of uploader/upload_url.h's kinds of backends. */
enum dialect { SPOOL_PYROSCOPE, SPOOL_PARCA, SPOOL_DATADOG, SPOOL_POST };

/* One member a row of the table, in its order; the text values point into a copy made at load,
 * never into the live environment. */
struct options {
    bool enabled;                 /* LIBAGENT_ENABLED */
    const char *processes;        /* LIBAGENT_PROCESSES: globs */
    double process_rate;          /* LIBAGENT_PROCESS_RATE: 0 to 1 */
    uint32_t profiles;            /* LIBAGENT_PROFILES: PROFILE_ bits */
    uint32_t frequency;           /* LIBAGENT_FREQUENCY: Hz of CPU time, 1 to 10000 */
    enum scheduler_id scheduler;  /* LIBAGENT_SCHEDULER */
    bool wall_signal;             /* LIBAGENT_WALL_SIGNAL */
    bool signals;                 /* LIBAGENT_SIGNALS */
    uint64_t alloc_interval;      /* LIBAGENT_ALLOC_INTERVAL: bytes, at least 1 */
    double overhead;              /* LIBAGENT_OVERHEAD: percent, above 0, to 20 */
    uint64_t heap_sample_rate;    /* LIBAGENT_HEAP_SAMPLE_RATE: at least 1 */
    bool heap_age;                /* LIBAGENT_HEAP_AGE */
    uint64_t heap_min_age_ns;     /* LIBAGENT_HEAP_MIN_AGE: 0 or 1 s to a year */
    bool heap_bytes;              /* LIBAGENT_HEAP_BYTES */
    uint64_t heap_mark_ns;        /* LIBAGENT_HEAP_MARK: 0 or 1 ms to a year */
    uint32_t max_frames;          /* LIBAGENT_MAX_FRAMES: 1 to 1024 */
    enum unwinder_id unwinder;    /* LIBAGENT_UNWINDER */
    uint64_t period_ns;           /* LIBAGENT_PERIOD: 0 or 1 s to 24 h */
    const char *output;           /* LIBAGENT_OUTPUT: folder, NULL: the default one */
    uint64_t output_limit;        /* LIBAGENT_OUTPUT_LIMIT: bytes */
    uint32_t formats;             /* LIBAGENT_FORMAT: FORMAT_ bits */
    enum compression compression; /* LIBAGENT_COMPRESSION */
    uint64_t memory;              /* LIBAGENT_MEMORY: bytes for all tables */
    enum log_level log;           /* LIBAGENT_LOG */
    const char *log_file;         /* LIBAGENT_LOG_FILE, NULL: standard error */
    const char *upload_url;       /* LIBAGENT_UPLOAD_URL, NULL: none */
    const char *tags;             /* LIBAGENT_TAGS, NULL: none */
    const char *auth_file;        /* LIBAGENT_AUTH_FILE, NULL: none */
    const char *ca_file;          /* LIBAGENT_CA_FILE, NULL: the system's */
    uint64_t exit_timeout_ns;     /* LIBAGENT_EXIT_TIMEOUT */
    const char *spool;            /* LIBAGENT_SPOOL: folder, NULL: none */
    uint64_t spool_limit;         /* LIBAGENT_SPOOL_LIMIT: bytes */
    enum dialect dialect;         /* LIBAGENT_DIALECT, of a spool alone */
    const char *service;          /* LIBAGENT_SERVICE and its fall-backs, else the program's name */
    bool thread_labels;           /* LIBAGENT_THREAD_LABELS */
    bool manual_start;            /* LIBAGENT_START */
    const char *config;           /* LIBAGENT_CONFIG, NULL: none */
    uint32_t toggle_signal;       /* LIBAGENT_TOGGLE_SIGNAL: number, 0: none */
    uint32_t flush_signal;        /* LIBAGENT_FLUSH_SIGNAL: the same */
    bool term_flush;              /* LIBAGENT_TERM_FLUSH */
    enum symbols symbols;         /* LIBAGENT_SYMBOLS */
    uint64_t symbol_limit;        /* LIBAGENT_SYMBOL_LIMIT: bytes */
    const char *debug_path;       /* LIBAGENT_DEBUG_PATH: folders, separated by colons */
    uint32_t name_limit;          /* LIBAGENT_NAME_LIMIT: bytes, 64 to 1024 */
    bool help;                    /* LIBAGENT_HELP */
};

extern HIDDEN struct options options;

/* A part that a wrong value switches off; PART_ALL switches off every one. */
enum option_part {
    PART_ALL,
    PART_CPU,
    PART_ALLOC,
    PART_HEAP,
    PART_OUTPUT,
    PART_UPLOAD,
    PART_LOG,
    PART_COUNT
};

/* Step 1, in every process: enabled, AT_SECURE (`secure`), processes (matched against each of
 * `names`, a list ended by NULL: those that the program is known by), process rate (`unit` in
 * [0, 1) decides). Reads nothing else. True: go on. */
bool options_select(char *const *environment, bool secure, const char *const *names, double unit);
/* Step 2, only where selected: everything else. Calls log_start, then logs what is wrong and
 * which variables are no options. `program` (a base name) is the last fall-back of `service`. */
void options_load(char *const *environment, const char *program);
/* Copies what options are read from; NULL at its end. INIT, once. */
char *const *options_keep(char *const *environment);
/* The name of the option that `key` means, in any case of letters and with or without LIBAGENT_, if
 * it may be set outside of the environment and takes that value (empty: as the environment has it);
 * else NULL, and a line in the log that begins with `whose`. `may_disable`: LIBAGENT_ENABLED may.
 */
const char *options_check(const char *key, size_t length, const char *value, bool may_disable,
                          const char *whose) MUST_USE;
/* "NAME=VALUE" pairs that go before the environment's, from the next options_load on; NULL: none.
 * They stay the caller's. */
enum option_overlay { OVERLAY_FILE, OVERLAY_START, OVERLAY_COUNT };
void options_overlay(enum option_overlay which, char *const *pairs);
/* False when a wrong value switched the part off. */
bool options_ok(enum option_part part);
/* Was the member of `options` set, to whatever value? */
bool options_is_set(const void *member);
/* What is in force where a member of `options` alone does not say it. */
struct option_shown {
    const void *member; /* NULL at the end of a list */
    const char *text;   /* NULL: as without */
};
/* The table with the values in force, as LIBAGENT_HELP=1 shows it, into `out`; returns the
 * length. `environment`: that of options_load; `shown` may be NULL. The README's table has the same
 * names, defaults and texts. */
size_t options_help(char *const *environment, const struct option_shown *shown, char *out,
                    size_t size);
/* The value of a variable of `environment`, or NULL. */
const char *environment_get(char *const *environment, const char *name);

#endif
