/* option_rows.h: the rows of the table of options: names, what they accept, where they go.
 *
 * Owns: the rows. Context: any (constants). Locks: none. */
#ifndef LIBAGENT_OPTION_ROWS_H
#define LIBAGENT_OPTION_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/options.h"

#define OPTION_PREFIX "LIBAGENT_"

enum option_type {
    TYPE_BOOL,
    TYPE_SHARE,
    TYPE_PERCENT, /* more than 0, at most `high` */
    TYPE_WORD,
    TYPE_WORD_SET,
    TYPE_COUNT,
    TYPE_SIZE,
    TYPE_DURATION, /* 0 is accepted beside the bounds */
    TYPE_SIGNAL,   /* 0: none */
    TYPE_TEXT,
    TYPE_TEXT_OR_NONE, /* without a value NULL; its default is only what the help says */
};

struct option_row {
    const char *name;
    enum option_type type;
    enum option_part part;
    size_t offset, size; /* of the member of struct options */
    const char *default_text;
    uint64_t low, high;       /* TYPE_PERCENT, TYPE_COUNT, TYPE_SIZE, TYPE_DURATION */
    const char *const *words; /* TYPE_WORD, TYPE_WORD_SET: in the order of the enum */
    bool fixed;               /* in the environment alone: it says what this process is */
    bool hidden;              /* its value may hold what is secret: no line shows it */
    const char *help;
};

enum row_index {
    ROW_ENABLED,
    ROW_PROCESSES,
    ROW_PROCESS_RATE,
    ROW_PROFILES,
    ROW_FREQUENCY,
    ROW_SCHEDULER,
    ROW_WALL_SIGNAL,
    ROW_SIGNALS,
    ROW_ALLOC_INTERVAL,
    ROW_OVERHEAD,
    ROW_HEAP_SAMPLE_RATE,
    ROW_HEAP_AGE,
    ROW_HEAP_MIN_AGE,
    ROW_HEAP_BYTES,
    ROW_HEAP_MARK,
    ROW_MAX_FRAMES,
    ROW_UNWINDER,
    ROW_PERIOD,
    ROW_OUTPUT,
    ROW_OUTPUT_LIMIT,
    ROW_FORMAT,
    ROW_COMPRESSION,
    ROW_MEMORY,
    ROW_LOG,
    ROW_LOG_FILE,
    ROW_UPLOAD_URL,
    ROW_AUTH_FILE,
    ROW_CA_FILE,
    ROW_EXIT_TIMEOUT,
    ROW_SPOOL,
    ROW_SPOOL_LIMIT,
    ROW_DIALECT,
    ROW_TAGS,
    ROW_SERVICE,
    ROW_THREAD_LABELS,
    ROW_START,
    ROW_CONFIG,
    ROW_TOGGLE_SIGNAL,
    ROW_FLUSH_SIGNAL,
    ROW_TERM_FLUSH,
    ROW_SYMBOLS,
    ROW_SYMBOL_LIMIT,
    ROW_DEBUG_PATH,
    ROW_NAME_LIMIT,
    ROW_HELP,
    ROW_COUNT
};

extern HIDDEN const struct option_row option_rows[ROW_COUNT];
/* What a wrong value leads to, in words. */
extern HIDDEN const char *const option_consequence[PART_COUNT];
/* Which option was meant by a name without the prefix, in any case; NULL: none is like it. */
const char *option_meant(const char *name);

#endif
