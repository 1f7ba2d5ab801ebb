#include "agent/base/option_rows.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/option_parse.h"

enum { BEGINNING_MIN = 3 }; /* letters by which an option is told */

static const char *const profile_words[] = {"cpu",         "alloc",     "wall", "heap",
                                            "heap-growth", "heap-peak", NULL};
static const char *const scheduler_words[] = {"auto",  "cputimer", "sigprof", "sigalrm",
                                              "sleep", "event",    NULL};
static const char *const unwinder_words[] = {"auto", "cfi", "fp", "libunwind", NULL};
static const char *const format_words[] = {"pprof", "html", "collapsed", NULL};
static const char *const compression_words[] = {"gzip", "zstd", "none", NULL};
static const char *const start_words[] = {"auto", "manual", NULL};
static const char *const symbols_words[] = {"names", "lines", "off", NULL};
static const char *const dialect_words[] = {"pyroscope", "parca", "datadog", "post", NULL};
static const char *const log_words[] = {"error", "warn", "info", "debug", NULL};

#define MEMBER(name_)                                                                              \
    .offset = offsetof(struct options, name_), .size = sizeof(((struct options *)0)->name_)

const struct option_row option_rows[ROW_COUNT] = {
    [ROW_ENABLED] = {.name = OPTION_PREFIX "ENABLED",
                     .type = TYPE_BOOL,
                     .part = PART_ALL,
                     MEMBER(enabled),
                     .default_text = "1",
                     .help = "0 leaves the program alone: nothing is set up, nothing else is read"},
    [ROW_PROCESSES] = {.name = OPTION_PREFIX "PROCESSES",
                       .type = TYPE_TEXT,
                       .part = PART_ALL,
                       MEMBER(processes),
                       .default_text = "*",
                       .fixed = true,
                       .help = "programs to profile: patterns of * and ?, separated by commas, for "
                               "the base name of the executable, of argv[0] or of the started "
                               "file"},
    [ROW_PROCESS_RATE] = {.name = OPTION_PREFIX "PROCESS_RATE",
                          .type = TYPE_SHARE,
                          .part = PART_ALL,
                          MEMBER(process_rate),
                          .default_text = "1.0",
                          .fixed = true,
                          .help = "share of the processes that are profiled, drawn at their start"},
    [ROW_PROFILES] = {.name = OPTION_PREFIX "PROFILES",
                      .type = TYPE_WORD_SET,
                      .part = PART_ALL,
                      MEMBER(profiles),
                      .default_text = "cpu,alloc,heap",
                      .words = profile_words,
                      .help = "what is profiled, separated by commas"},
    [ROW_FREQUENCY] = {.name = OPTION_PREFIX "FREQUENCY",
                       .type = TYPE_COUNT,
                       .part = PART_CPU,
                       MEMBER(frequency),
                       .default_text = "101",
                       .low = 1,
                       .high = 10000,
                       .help =
                           "samples in each second of a thread's CPU time, and of its wall time"},
    [ROW_SCHEDULER] =
        {.name = OPTION_PREFIX "SCHEDULER",
         .type = TYPE_WORD,
         .part = PART_CPU,
         MEMBER(scheduler),
         .default_text = "auto",
         .words = scheduler_words,
         .help = "what tells when a thread is sampled; auto is cputimer, for wall time event"},
    [ROW_WALL_SIGNAL] = {.name = OPTION_PREFIX "WALL_SIGNAL",
                         .type = TYPE_BOOL,
                         .part = PART_CPU,
                         MEMBER(wall_signal),
                         .default_text = "0",
                         .help = "1 lets a wall profile interrupt blocked threads by a signal, "
                                 "where the kernel does not show their stacks (a process that "
                                 "changed its user)"},
    [ROW_SIGNALS] = {.name = OPTION_PREFIX "SIGNALS",
                     .type = TYPE_BOOL,
                     .part = PART_CPU,
                     MEMBER(signals),
                     .default_text = "1",
                     .help = "0: no signal is used; CPU time is told by thread, without stacks"},
    [ROW_ALLOC_INTERVAL] = {.name = OPTION_PREFIX "ALLOC_INTERVAL",
                            .type = TYPE_SIZE,
                            .part = PART_ALLOC,
                            MEMBER(alloc_interval),
                            .default_text = "512KiB",
                            .low = 1,
                            .high = 1ull << 40,
                            .help = "mean of allocated bytes between two samples; 1 records every "
                                    "allocation"},
    [ROW_OVERHEAD] = {.name = OPTION_PREFIX "OVERHEAD",
                      .type = TYPE_PERCENT,
                      .part = PART_ALL,
                      MEMBER(overhead),
                      .default_text = "1",
                      .high = 20,
                      .help = "percent of the program's CPU time that samples may take: beyond, "
                              "they become rarer; rates that are set are kept unless this is set, "
                              "too"},
    [ROW_HEAP_SAMPLE_RATE] = {.name = OPTION_PREFIX "HEAP_SAMPLE_RATE",
                              .type = TYPE_COUNT,
                              .part = PART_HEAP,
                              MEMBER(heap_sample_rate),
                              .default_text = "1",
                              .low = 1,
                              .high = 1000000,
                              .help = "of so many sampled allocations one is kept for the live "
                                      "heap"},
    [ROW_HEAP_AGE] = {.name = OPTION_PREFIX "HEAP_AGE",
                      .type = TYPE_BOOL,
                      .part = PART_HEAP,
                      MEMBER(heap_age),
                      .default_text = "0",
                      .help = "label what is live with age_seconds, in powers of two"},
    [ROW_HEAP_MIN_AGE] = {.name = OPTION_PREFIX "HEAP_MIN_AGE",
                          .type = TYPE_DURATION,
                          .part = PART_HEAP,
                          MEMBER(heap_min_age_ns),
                          .default_text = "0",
                          .low = NS_PER_SEC,
                          .high = 8760 * (3600 * NS_PER_SEC),
                          .help = "younger blocks are left out of what is live"},
    [ROW_HEAP_BYTES] = {.name = OPTION_PREFIX "HEAP_BYTES",
                        .type = TYPE_BOOL,
                        .part = PART_HEAP,
                        MEMBER(heap_bytes),
                        .default_text = "0",
                        .help = "label what is live with bytes, the blocks' size class"},
    [ROW_HEAP_MARK] = {.name = OPTION_PREFIX "HEAP_MARK",
                       .type = TYPE_DURATION,
                       .part = PART_HEAP,
                       MEMBER(heap_mark_ns),
                       .default_text = "0",
                       .low = NS_PER_MS,
                       .high = 8760 * (3600 * NS_PER_SEC),
                       .help = "so long after the start heap-growth begins to count, and to be "
                               "written; 0: from the start, if LIBAGENT_PROFILES has it"},
    [ROW_MAX_FRAMES] = {.name = OPTION_PREFIX "MAX_FRAMES",
                        .type = TYPE_COUNT,
                        .part = PART_ALL,
                        MEMBER(max_frames),
                        .default_text = "256",
                        .low = 1,
                        .high = 1024,
                        .help = "frames kept of a stack"},
    [ROW_UNWINDER] = {.name = OPTION_PREFIX "UNWINDER",
                      .type = TYPE_WORD,
                      .part = PART_ALL,
                      MEMBER(unwinder),
                      .default_text = "auto",
                      .words = unwinder_words,
                      .help = "how stacks are walked; auto is cfi"},
    [ROW_PERIOD] = {.name = OPTION_PREFIX "PERIOD",
                    .type = TYPE_DURATION,
                    .part = PART_ALL,
                    MEMBER(period_ns),
                    .default_text = "60s",
                    .low = NS_PER_SEC,
                    .high = 24 * (3600 * NS_PER_SEC),
                    .help = "time between two profiles; 0: one, at exit"},
    [ROW_OUTPUT] = {.name = OPTION_PREFIX "OUTPUT",
                    .type = TYPE_TEXT_OR_NONE,
                    .part = PART_OUTPUT,
                    MEMBER(output),
                    .default_text = "${TMPDIR:-/tmp}/libagent-UID",
                    .help = "folder for the profiles"},
    [ROW_OUTPUT_LIMIT] = {.name = OPTION_PREFIX "OUTPUT_LIMIT",
                          .type = TYPE_SIZE,
                          .part = PART_OUTPUT,
                          MEMBER(output_limit),
                          .default_text = "1GiB",
                          .low = 1,
                          .high = 1ull << 40,
                          .help = "size of all profiles in that folder; the oldest go first"},
    [ROW_FORMAT] = {.name = OPTION_PREFIX "FORMAT",
                    .type = TYPE_WORD_SET,
                    .part = PART_OUTPUT,
                    MEMBER(formats),
                    .default_text = "pprof",
                    .words = format_words,
                    .help =
                        "what files are written as, separated by commas: pprof; html, a page "
                        "that shows a flame graph; collapsed, a line a stack, for flamegraph.pl "
                        "and others"},
    [ROW_COMPRESSION] = {.name = OPTION_PREFIX "COMPRESSION",
                         .type = TYPE_WORD,
                         .part = PART_OUTPUT,
                         MEMBER(compression),
                         .default_text = "gzip",
                         .words = compression_words,
                         .help = "of the profiles; go tool pprof reads gzip and none, not zstd"},
    [ROW_MEMORY] = {.name = OPTION_PREFIX "MEMORY",
                    .type = TYPE_SIZE,
                    .part = PART_ALL,
                    MEMBER(memory),
                    .default_text = "64MiB",
                    .low = 8ull << 20,
                    .high = 64ull << 30,
                    .help = "memory for all tables, and at most 1/16 of the cgroup's limit"},
    [ROW_LOG] = {.name = OPTION_PREFIX "LOG",
                 .type = TYPE_WORD,
                 .part = PART_LOG,
                 MEMBER(log),
                 .default_text = "warn",
                 .words = log_words,
                 .help = "lowest level of what is logged"},
    [ROW_LOG_FILE] =
        {.name = OPTION_PREFIX "LOG_FILE",
         .type = TYPE_TEXT_OR_NONE,
         .part = PART_LOG,
         MEMBER(log_file),
         .default_text = "standard error",
         .help = "file that log lines are appended to, each behind the time (UTC) and the pid"},
    [ROW_UPLOAD_URL] = {.name = OPTION_PREFIX "UPLOAD_URL",
                        .type = TYPE_TEXT_OR_NONE,
                        .part = PART_UPLOAD,
                        MEMBER(upload_url),
                        .default_text = "PYROSCOPE_SERVER_ADDRESS; DD_TRACE_AGENT_URL or "
                                        "DD_AGENT_HOST where DD_PROFILING_ENABLED is true; none",
                        .hidden = true,
                        .help = "where profiles are sent, separated by commas: "
                                "pyroscope+http(s)://, parca+http(s)://, datadog+http(s)://, "
                                "datadog+unix://, http(s)://, file://"},
    [ROW_AUTH_FILE] = {.name = OPTION_PREFIX "AUTH_FILE",
                       .type = TYPE_TEXT_OR_NONE,
                       .part = PART_UPLOAD,
                       MEMBER(auth_file),
                       .default_text = "none",
                       .help = "file with credentials for that, lines NAME=VALUE, read before each "
                               "upload"},
    [ROW_CA_FILE] = {.name = OPTION_PREFIX "CA_FILE",
                     .type = TYPE_TEXT_OR_NONE,
                     .part = PART_UPLOAD,
                     MEMBER(ca_file),
                     .default_text = "the system's",
                     .help = "certificates (PEM) that servers are verified by"},
    [ROW_EXIT_TIMEOUT] = {.name = OPTION_PREFIX "EXIT_TIMEOUT",
                          .type = TYPE_DURATION,
                          .part = PART_UPLOAD,
                          MEMBER(exit_timeout_ns),
                          .default_text = "2s",
                          .low = NS_PER_MS,
                          .high = 60 * NS_PER_SEC,
                          .help = "time for the last uploads, at exit"},
    [ROW_SPOOL] = {.name = OPTION_PREFIX "SPOOL",
                   .type = TYPE_TEXT_OR_NONE,
                   .part = PART_UPLOAD,
                   MEMBER(spool),
                   .default_text = "none",
                   .help = "folder where profiles wait that could not be sent, or, without "
                           "LIBAGENT_UPLOAD_URL, all of them, for libagent-uploader"},
    [ROW_SPOOL_LIMIT] = {.name = OPTION_PREFIX "SPOOL_LIMIT",
                         .type = TYPE_SIZE,
                         .part = PART_UPLOAD,
                         MEMBER(spool_limit),
                         .default_text = "256MiB",
                         .low = 1,
                         .high = 1ull << 40,
                         .help = "size of what is in that folder; the oldest go first"},
    [ROW_DIALECT] = {.name = OPTION_PREFIX "DIALECT",
                     .type = TYPE_WORD,
                     .part = PART_UPLOAD,
                     MEMBER(dialect),
                     .default_text = "pyroscope",
                     .words = dialect_words,
                     .help = "which backend profiles in a spool are for, without "
                             "LIBAGENT_UPLOAD_URL"},
    [ROW_TAGS] = {.name = OPTION_PREFIX "TAGS",
                  .type = TYPE_TEXT_OR_NONE,
                  .part = PART_UPLOAD,
                  MEMBER(tags),
                  .default_text =
                      "OTEL_RESOURCE_ATTRIBUTES, DD_ENV, DD_VERSION, DD_TAGS, POD_NAME, "
                      "POD_NAMESPACE, NODE_NAME",
                  .help = "labels of what is sent: name:value, separated by commas; those of the "
                          "variables are added"},
    [ROW_SERVICE] = {.name = OPTION_PREFIX "SERVICE",
                     .type = TYPE_TEXT_OR_NONE,
                     .part = PART_OUTPUT,
                     MEMBER(service),
                     .default_text = "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, DD_SERVICE, "
                                     "PYROSCOPE_APPLICATION_NAME, or the program's name",
                     .help = "name of the service in the profiles"},
    [ROW_THREAD_LABELS] = {.name = OPTION_PREFIX "THREAD_LABELS",
                           .type = TYPE_BOOL,
                           .part = PART_ALL,
                           MEMBER(thread_labels),
                           .default_text = "1",
                           .help = "label each sample with its thread's name and id"},
    [ROW_START] = {.name = OPTION_PREFIX "START",
                   .type = TYPE_WORD,
                   .part = PART_ALL,
                   MEMBER(manual_start),
                   .default_text = "auto",
                   .words = start_words,
                   .fixed = true,
                   .help = "manual: not before the program calls libagent_start, or "
                           "LIBAGENT_TOGGLE_SIGNAL comes"},
    [ROW_CONFIG] = {.name = OPTION_PREFIX "CONFIG",
                    .type = TYPE_TEXT_OR_NONE,
                    .part = PART_LOG,
                    MEMBER(config),
                    .default_text = "none",
                    .fixed = true,
                    .help = "file of lines KEY=value that override the environment, looked at once "
                            "a period: changes options, and switches off and on (ENABLED), "
                            "without a restart"},
    [ROW_TOGGLE_SIGNAL] = {.name = OPTION_PREFIX "TOGGLE_SIGNAL",
                           .type = TYPE_SIGNAL,
                           .part = PART_LOG,
                           MEMBER(toggle_signal),
                           .default_text = "none",
                           .fixed = true,
                           .help = "signal that switches profiling off, and on again; with "
                                   "LIBAGENT_START=manual first on"},
    [ROW_FLUSH_SIGNAL] = {.name = OPTION_PREFIX "FLUSH_SIGNAL",
                          .type = TYPE_SIGNAL,
                          .part = PART_LOG,
                          MEMBER(flush_signal),
                          .default_text = "none",
                          .fixed = true,
                          .help = "signal that writes what was recorded so far"},
    [ROW_TERM_FLUSH] = {.name = OPTION_PREFIX "TERM_FLUSH",
                        .type = TYPE_BOOL,
                        .part = PART_LOG,
                        MEMBER(term_flush),
                        .default_text = "0",
                        .fixed = true,
                        .help = "1: where SIGTERM ends the program, the last profile is written "
                                "before, within a second"},
    [ROW_SYMBOLS] = {.name = OPTION_PREFIX "SYMBOLS",
                     .type = TYPE_WORD,
                     .part = PART_OUTPUT,
                     MEMBER(symbols),
                     .default_text = "names",
                     .words = symbols_words,
                     .help = "what is told of addresses: functions' names; those with files, lines "
                             "and inlined functions; or nothing, which leaves it to the reader"},
    [ROW_SYMBOL_LIMIT] = {.name = OPTION_PREFIX "SYMBOL_LIMIT",
                          .type = TYPE_SIZE,
                          .part = PART_OUTPUT,
                          MEMBER(symbol_limit),
                          .default_text = "16MiB",
                          .low = 1 << 20,
                          .high = 1ull << 30,
                          .help = "memory for names, files and lines, and for debugging "
                                  "information while it is unpacked"},
    [ROW_DEBUG_PATH] = {.name = OPTION_PREFIX "DEBUG_PATH",
                        .type = TYPE_TEXT,
                        .part = PART_OUTPUT,
                        MEMBER(debug_path),
                        .default_text = "/usr/lib/debug",
                        .help = "folders with separate debug files, separated by colons"},
    [ROW_NAME_LIMIT] = {.name = OPTION_PREFIX "NAME_LIMIT",
                        .type = TYPE_COUNT,
                        .part = PART_OUTPUT,
                        MEMBER(name_limit),
                        .default_text = "400",
                        .low = 64,
                        .high = 1024,
                        .help = "bytes of a C++ or Rust name; in longer ones template arguments "
                                "and parameters become ..., the innermost first"},
    [ROW_HELP] = {.name = OPTION_PREFIX "HELP",
                  .type = TYPE_BOOL,
                  .part = PART_LOG,
                  MEMBER(help),
                  .default_text = "0",
                  .fixed = true,
                  .help = "1 prints this table, with the values in force"},
};

const char *const option_consequence[PART_COUNT] = {
    [PART_ALL] = "nothing is profiled",
    [PART_CPU] = "CPU and wall time are not profiled",
    [PART_ALLOC] = "allocations are not profiled",
    [PART_HEAP] = "the live heap is not profiled",
    [PART_OUTPUT] = "no profile is written",
    [PART_UPLOAD] = "nothing is uploaded",
    [PART_LOG] = "it is ignored",
};

/* A third of its letters may be wrong, or one of both be how the other begins. */
COLD const char *option_meant(const char *name)
{
    char capitals[64];
    size_t length = format(capitals, sizeof(capitals), "%s", name);
    for (char *c = capitals; *c; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - ('a' - 'A'));
    const char *meant = NULL;
    unsigned least = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        const char *option = option_rows[i].name + strlen(OPTION_PREFIX);
        size_t same = 0;
        while (capitals[same] && capitals[same] == option[same])
            same++;
        bool begins = same >= BEGINNING_MIN && (!capitals[same] || !option[same]);
        unsigned distance = edit_distance(capitals, option);
        if ((begins || distance <= length / 3) && (!meant || distance < least)) {
            meant = option_rows[i].name;
            least = distance;
        }
    }
    return meant;
}
