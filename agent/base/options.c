#include "agent/base/options.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/option_parse.h"

enum {
    TEXT_MAX = 4095, /* bytes of a value: a path (PATH_MAX) */
    SHOWN_MAX = 200, /* bytes of a wrong value in its line */
    UNKNOWN_MAX = 8, /* lines about unknown variables */
    ACCEPTED_SIZE = 128,
};

#define PREFIX "LIBAGENT_"

struct options options;

enum option_type {
    TYPE_BOOL,
    TYPE_SHARE,
    TYPE_WORD,
    TYPE_WORD_SET,
    TYPE_COUNT,
    TYPE_SIZE,
    TYPE_DURATION, /* 0 is accepted beside the bounds */
    TYPE_TEXT,
    TYPE_TEXT_OR_NONE, /* without a value NULL; its default is only what the help says */
};

struct option_row {
    const char *name;
    enum option_type type;
    enum option_part part;
    size_t offset, size; /* of the member of struct options */
    const char *default_text;
    uint64_t low, high;       /* TYPE_COUNT, TYPE_SIZE, TYPE_DURATION */
    const char *const *words; /* TYPE_WORD, TYPE_WORD_SET: in the order of the enum */
    const char *help;
};

enum row_index {
    ROW_ENABLED,
    ROW_PROCESSES,
    ROW_PROCESS_RATE,
    ROW_PROFILES,
    ROW_FREQUENCY,
    ROW_ALLOC_INTERVAL,
    ROW_MAX_FRAMES,
    ROW_UNWINDER,
    ROW_PERIOD,
    ROW_OUTPUT,
    ROW_OUTPUT_LIMIT,
    ROW_COMPRESSION,
    ROW_MEMORY,
    ROW_LOG,
    ROW_LOG_FILE,
    ROW_SERVICE,
    ROW_THREAD_LABELS,
    ROW_HELP,
    ROW_COUNT
};

static const char *const profile_words[] = {"cpu", "alloc", NULL};
static const char *const unwinder_words[] = {"auto", "cfi", "fp", "libunwind", NULL};
static const char *const compression_words[] = {"gzip", "zstd", "none", NULL};
static const char *const log_words[] = {"error", "warn", "info", "debug", NULL};

#define MEMBER(name_)                                                                              \
    .offset = offsetof(struct options, name_), .size = sizeof(((struct options *)0)->name_)

static const struct option_row rows[ROW_COUNT] = {
    [ROW_ENABLED] = {.name = PREFIX "ENABLED",
                     .type = TYPE_BOOL,
                     .part = PART_ALL,
                     MEMBER(enabled),
                     .default_text = "1",
                     .help = "0 leaves the program alone: nothing is set up, nothing else is read"},
    [ROW_PROCESSES] = {.name = PREFIX "PROCESSES",
                       .type = TYPE_TEXT,
                       .part = PART_ALL,
                       MEMBER(processes),
                       .default_text = "*",
                       .help = "programs to profile: patterns of * and ?, separated by commas, for "
                               "the base name of the executable, of argv[0] or of the started "
                               "file"},
    [ROW_PROCESS_RATE] = {.name = PREFIX "PROCESS_RATE",
                          .type = TYPE_SHARE,
                          .part = PART_ALL,
                          MEMBER(process_rate),
                          .default_text = "1.0",
                          .help = "share of the processes that are profiled, drawn at their start"},
    [ROW_PROFILES] = {.name = PREFIX "PROFILES",
                      .type = TYPE_WORD_SET,
                      .part = PART_ALL,
                      MEMBER(profiles),
                      .default_text = "cpu,alloc",
                      .words = profile_words,
                      .help = "what is profiled, separated by commas"},
    [ROW_FREQUENCY] = {.name = PREFIX "FREQUENCY",
                       .type = TYPE_COUNT,
                       .part = PART_CPU,
                       MEMBER(frequency),
                       .default_text = "101",
                       .low = 1,
                       .high = 10000,
                       .help = "samples in each second of a thread's CPU time"},
    [ROW_ALLOC_INTERVAL] = {.name = PREFIX "ALLOC_INTERVAL",
                            .type = TYPE_SIZE,
                            .part = PART_ALLOC,
                            MEMBER(alloc_interval),
                            .default_text = "512KiB",
                            .low = 1,
                            .high = 1ull << 40,
                            .help = "mean of allocated bytes between two samples; 1 records every "
                                    "allocation"},
    [ROW_MAX_FRAMES] = {.name = PREFIX "MAX_FRAMES",
                        .type = TYPE_COUNT,
                        .part = PART_ALL,
                        MEMBER(max_frames),
                        .default_text = "256",
                        .low = 1,
                        .high = 1024,
                        .help = "frames kept of a stack"},
    [ROW_UNWINDER] = {.name = PREFIX "UNWINDER",
                      .type = TYPE_WORD,
                      .part = PART_ALL,
                      MEMBER(unwinder),
                      .default_text = "auto",
                      .words = unwinder_words,
                      .help = "how stacks are walked; auto is cfi"},
    [ROW_PERIOD] = {.name = PREFIX "PERIOD",
                    .type = TYPE_DURATION,
                    .part = PART_ALL,
                    MEMBER(period_ns),
                    .default_text = "60s",
                    .low = NS_PER_SEC,
                    .high = 24 * (3600 * NS_PER_SEC),
                    .help = "time between two profiles; 0: one, at exit"},
    [ROW_OUTPUT] = {.name = PREFIX "OUTPUT",
                    .type = TYPE_TEXT_OR_NONE,
                    .part = PART_OUTPUT,
                    MEMBER(output),
                    .default_text = "${TMPDIR:-/tmp}/libagent-UID",
                    .help = "folder for the profiles"},
    [ROW_OUTPUT_LIMIT] = {.name = PREFIX "OUTPUT_LIMIT",
                          .type = TYPE_SIZE,
                          .part = PART_OUTPUT,
                          MEMBER(output_limit),
                          .default_text = "1GiB",
                          .low = 1,
                          .high = 1ull << 40,
                          .help = "size of all profiles in that folder; the oldest go first"},
    [ROW_COMPRESSION] = {.name = PREFIX "COMPRESSION",
                         .type = TYPE_WORD,
                         .part = PART_OUTPUT,
                         MEMBER(compression),
                         .default_text = "gzip",
                         .words = compression_words,
                         .help = "of the profiles; go tool pprof reads gzip and none, not zstd"},
    [ROW_MEMORY] = {.name = PREFIX "MEMORY",
                    .type = TYPE_SIZE,
                    .part = PART_ALL,
                    MEMBER(memory),
                    .default_text = "64MiB",
                    .low = 8ull << 20,
                    .high = 64ull << 30,
                    .help = "memory for all tables, and at most 1/16 of the cgroup's limit"},
    [ROW_LOG] = {.name = PREFIX "LOG",
                 .type = TYPE_WORD,
                 .part = PART_LOG,
                 MEMBER(log),
                 .default_text = "warn",
                 .words = log_words,
                 .help = "lowest level of what is logged"},
    [ROW_LOG_FILE] = {.name = PREFIX "LOG_FILE",
                      .type = TYPE_TEXT_OR_NONE,
                      .part = PART_LOG,
                      MEMBER(log_file),
                      .default_text = "standard error",
                      .help = "file that log lines are appended to"},
    [ROW_SERVICE] = {.name = PREFIX "SERVICE",
                     .type = TYPE_TEXT_OR_NONE,
                     .part = PART_OUTPUT,
                     MEMBER(service),
                     .default_text = "OTEL_SERVICE_NAME, DD_SERVICE, PYROSCOPE_APPLICATION_NAME, "
                                     "or the program's name",
                     .help = "name of the service in the profiles"},
    [ROW_THREAD_LABELS] = {.name = PREFIX "THREAD_LABELS",
                           .type = TYPE_BOOL,
                           .part = PART_ALL,
                           MEMBER(thread_labels),
                           .default_text = "1",
                           .help = "label each sample with its thread's name and id"},
    [ROW_HELP] = {.name = PREFIX "HELP",
                  .type = TYPE_BOOL,
                  .part = PART_LOG,
                  MEMBER(help),
                  .default_text = "0",
                  .help = "1 prints this table, with the values in force"},
};

static const char *const part_consequence[PART_COUNT] = {
    [PART_ALL] = "nothing is profiled",
    [PART_CPU] = "CPU is not profiled",
    [PART_ALLOC] = "allocations are not profiled",
    [PART_OUTPUT] = "no profile is written",
    [PART_LOG] = "it is ignored",
};

/* Of each row: the text in force, NULL where a wrong value stands. */
static const char *text_in_force[ROW_COUNT];
static uint32_t parts_off; /* one bit for each enum option_part */
/* Room for each row's value and a fall-back at their longest; pages not touched cost nothing. */
static char texts[(ROW_COUNT + 1) * (TEXT_MAX + 1)];
static size_t texts_used;

const char *environment_get(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    /* The first letter before a call: each program that starts looks at all its variables. */
    for (; environment && *environment; environment++)
        if (**environment == *name && strncmp(*environment, name, length) == 0 &&
            (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* As OpenTelemetry has it: a variable that is set to nothing is not set. */
static const char *value_of(char *const *environment, const char *name)
{
    const char *text = environment_get(environment, name);
    return text && *text ? text : NULL;
}

/* NULL when it is too long. */
static const char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    if (size > TEXT_MAX + 1)
        return NULL;
    char *copy = memcpy(texts + texts_used, text, size);
    texts_used += size;
    return copy;
}

static bool within(const struct option_row *row, uint64_t value)
{
    return value >= row->low && value <= row->high;
}

/* Sets the row's member from `text`. False, and no change, when the text is not accepted. */
static bool set_member(const struct option_row *row, const char *text)
{
    union {
        bool flag;
        double share;
        uint32_t word;
        uint64_t number;
        const char *text;
    } value = {0};
    bool accepted = false;
    switch (row->type) {
    case TYPE_BOOL:
        accepted = parse_bool(text, &value.flag);
        break;
    case TYPE_SHARE:
        accepted = parse_share(text, &value.share);
        break;
    case TYPE_WORD:
        accepted = parse_word(text, row->words, &value.word);
        break;
    case TYPE_WORD_SET:
        accepted = parse_word_set(text, row->words, &value.word);
        break;
    case TYPE_COUNT:
        accepted = parse_count(text, &value.number) && within(row, value.number);
        break;
    case TYPE_SIZE:
        accepted = parse_size(text, &value.number) && within(row, value.number);
        break;
    case TYPE_DURATION:
        accepted =
            parse_duration(text, &value.number) && (value.number == 0 || within(row, value.number));
        break;
    case TYPE_TEXT:
    case TYPE_TEXT_OR_NONE:
        value.text = text;
        accepted = true;
        break;
    }
    /* A narrower member takes the low half of `number`: both processors are little-endian. */
    if (accepted)
        memcpy((char *)&options + row->offset, &value, row->size);
    return accepted;
}

static void set_default(enum row_index index)
{
    const struct option_row *row = &rows[index];
    if (row->type == TYPE_TEXT_OR_NONE)
        memset((char *)&options + row->offset, 0, row->size);
    else
        set_member(row, row->default_text);
    text_in_force[index] = row->default_text;
}

/* False when the environment has a wrong value; the member then has its default. */
static bool load_row(enum row_index index, char *const *environment)
{
    set_default(index);
    const char *text = value_of(environment, rows[index].name);
    if (!text)
        return true;
    const char *copy = copy_text(text);
    text_in_force[index] = copy && set_member(&rows[index], copy) ? copy : NULL;
    return text_in_force[index] != NULL;
}

static void describe_words(const char *const *words, char *out, size_t size)
{
    for (size_t used = 0; *words; words++)
        used += format(out + used, size - used, "%s%s", used ? ", " : "", *words);
}

/* What the row accepts, in words. */
static void describe(const struct option_row *row, char out[ACCEPTED_SIZE])
{
    char low[24], high[24], words[64];
    switch (row->type) {
    case TYPE_BOOL:
        format(out, ACCEPTED_SIZE, "0, 1, false, true, no, yes, off or on");
        break;
    case TYPE_SHARE:
        format(out, ACCEPTED_SIZE, "a number from 0 to 1");
        break;
    case TYPE_WORD:
        describe_words(row->words, words, sizeof(words));
        format(out, ACCEPTED_SIZE, "one of %s", words);
        break;
    case TYPE_WORD_SET:
        describe_words(row->words, words, sizeof(words));
        format(out, ACCEPTED_SIZE, "one or more of %s", words);
        break;
    case TYPE_COUNT:
        format(out, ACCEPTED_SIZE, "a whole number from %lu to %lu", row->low, row->high);
        break;
    case TYPE_SIZE:
        show_size(low, sizeof(low), row->low);
        show_size(high, sizeof(high), row->high);
        format(out, ACCEPTED_SIZE, "a size from %s to %s, in B, KiB, MiB or GiB", low, high);
        break;
    case TYPE_DURATION:
        show_duration(low, sizeof(low), row->low);
        show_duration(high, sizeof(high), row->high);
        format(out, ACCEPTED_SIZE, "0, or a time from %s to %s, in ms, s, m or h", low, high);
        break;
    case TYPE_TEXT:
    case TYPE_TEXT_OR_NONE:
        format(out, ACCEPTED_SIZE, "a text of up to %d bytes", TEXT_MAX);
        break;
    }
}

static COLD void refuse(enum row_index index, char *const *environment)
{
    const struct option_row *row = &rows[index];
    char accepted[ACCEPTED_SIZE];
    describe(row, accepted);
    parts_off |= 1u << row->part;
    log_error("%s=%.*s is not understood: it takes %s; %s", row->name, SHOWN_MAX,
              value_of(environment, row->name), accepted, part_consequence[row->part]);
}

static COLD void warn_of_unknown(const char *name, size_t length)
{
    char shown[64];
    length = format(shown, sizeof(shown), "%.*s", (int)MIN_OF(length, sizeof(shown)), name);
    const char *nearest = NULL;
    unsigned least = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        /* What is a beginning of the option's name is nearest of all. */
        unsigned distance =
            strncmp(shown, rows[i].name, length) == 0 ? 0 : 1 + edit_distance(shown, rows[i].name);
        if (!nearest || distance < least) {
            nearest = rows[i].name;
            least = distance;
        }
    }
    log_warn("%s is not an option; the nearest is %s", shown, nearest);
}

static bool is_option(const char *name, size_t length)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (strncmp(rows[i].name, name, length) == 0 && !rows[i].name[length])
            return true;
    return false;
}

static void look_for_unknown(char *const *environment)
{
    int said = 0;
    for (; environment && *environment && said < UNKNOWN_MAX; environment++) {
        const char *name = *environment;
        size_t length = 0;
        while (name[length] && name[length] != '=')
            length++;
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0 && !is_option(name, length)) {
            warn_of_unknown(name, length);
            said++;
        }
    }
}

static void find_service(char *const *environment, const char *program)
{
    static const char *const fall_backs[] = {"OTEL_SERVICE_NAME", "DD_SERVICE",
                                             "PYROSCOPE_APPLICATION_NAME"};
    for (size_t i = 0; i < ARRAY_SIZE(fall_backs) && !options.service; i++) {
        const char *text = value_of(environment, fall_backs[i]);
        options.service = text ? copy_text(text) : NULL;
    }
    if (!options.service)
        options.service = copy_text(program);
    if (text_in_force[ROW_SERVICE])
        text_in_force[ROW_SERVICE] = options.service;
}

/* One row that decides whether this process is profiled at all. */
static bool select_by(enum row_index index, char *const *environment)
{
    bool good = load_row(index, environment);
    if (!good)
        refuse(index, environment);
    return good;
}

static bool matches_one(const char *const *names)
{
    for (; *names; names++)
        if (glob_list_match(options.processes, *names))
            return true;
    return false;
}

bool options_select(char *const *environment, bool secure, const char *const *names, double unit)
{
    texts_used = 0;
    parts_off = 0;
    if (secure || !select_by(ROW_ENABLED, environment) || !options.enabled)
        return false;
    if (!select_by(ROW_PROCESSES, environment) || !matches_one(names))
        return false;
    return select_by(ROW_PROCESS_RATE, environment) && unit < options.process_rate;
}

void options_load(char *const *environment, const char *program)
{
    uint32_t wrong = 0;
    texts_used = 0;
    parts_off = 0;
    for (int i = 0; i < ROW_COUNT; i++)
        if (!load_row((enum row_index)i, environment))
            wrong |= 1u << i;
    /* Before the first line about the others. */
    log_start(options.log, options.log_file);
    for (int i = 0; i < ROW_COUNT; i++)
        if (wrong & 1u << i)
            refuse((enum row_index)i, environment);
    if (!options.service)
        find_service(environment, program);
    look_for_unknown(environment);
}

bool options_ok(enum option_part part)
{
    return !(parts_off & (1u << part | 1u << PART_ALL));
}

size_t options_help(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < ROW_COUNT && used < size; i++) {
        char accepted[ACCEPTED_SIZE];
        describe(&rows[i], accepted);
        used += format(out + used, size - used, "%s=%s\n    %s (%s; default %s)\n", rows[i].name,
                       text_in_force[i] ? text_in_force[i] : "(wrong value)", rows[i].help,
                       accepted, rows[i].default_text);
    }
    return used;
}
