#include "agent/base/options.h"

#include <string.h>

#include "agent/base/default_folder.h"
#include "agent/base/format.h"
#include "agent/base/option_parse.h"
#include "agent/base/option_rows.h"
#include "agent/base/otel_attributes.h"
#include "agent/base/sys.h"

enum {
    TEXT_MAX = 4095, /* bytes of a value: a path (PATH_MAX) */
    SHOWN_MAX = 200, /* bytes of a wrong value in its line */
    UNKNOWN_MAX = 8, /* lines about unknown variables */
    ACCEPTED_SIZE = 192,
};

static const char hidden[] = "(hidden)";

AT_START struct options options;

/* Of each row: the text in force, NULL where a wrong value stands. */
static AT_START const char *text_in_force[ROW_COUNT];
static AT_START uint32_t parts_off; /* one bit for each enum option_part */
/* Room for each row's value and a fall-back at their longest; pages not touched cost nothing. */
static char texts[(ROW_COUNT + 1) * (TEXT_MAX + 1)];
static AT_START size_t texts_used;

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

static AT_START char *const *overlays[OVERLAY_COUNT];

void options_overlay(enum option_overlay which, char *const *pairs)
{
    overlays[which] = pairs;
}

/* As OpenTelemetry has it: a variable that is set to nothing is not set. */
static const char *value_of(char *const *environment, const char *name)
{
    const char *text = NULL;
    for (int i = 0; i < OVERLAY_COUNT && (!text || !*text); i++)
        text = environment_get(overlays[i], name);
    if (!text || !*text)
        text = environment_get(environment, name);
    return text && *text ? text : NULL;
}

/* ---- the copy ---- */

enum { KEPT_BYTES = 65536, KEPT_MAX = 255 };

static char *const *keep(char *const *environment, const char *const *prefixes)
{
    /* cppcheck-suppress unassignedVariable; memcpy fills it */
    static char kept_texts[KEPT_BYTES];
    static char *kept[KEPT_MAX + 1];
    size_t used = 0, count = 0;
    for (; environment && *environment; environment++) {
        const char *const *prefix = prefixes;
        while (*prefix && strncmp(*environment, *prefix, strlen(*prefix)) != 0)
            prefix++;
        if (!*prefix)
            continue;
        size_t size = strlen(*environment) + 1;
        if (size > KEPT_BYTES - used || count == KEPT_MAX) {
            log_warn("%.*s is too long, or one too many: a later start does not see it", 32,
                     *environment);
            continue;
        }
        kept[count++] = memcpy(kept_texts + used, *environment, size);
        used += size;
    }
    kept[count] = NULL;
    return kept;
}

char *const *options_keep(char *const *environment)
{
    /* The agent's own, and the standard ones that are read as fall-backs. */
    static const char *const prefixes[] = {
        OPTION_PREFIX, "OTEL_",        "DD_",          "PYROSCOPE_",
        "PARCA_",      "POD_NAME",     "NODE_NAME=",   "TMPDIR=",
        "http_proxy=", "https_proxy=", "HTTPS_PROXY=", "all_proxy=",
        "ALL_PROXY=",  "no_proxy=",    "NO_PROXY=",    NULL};
    return keep(environment, prefixes);
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

/* Of separators alone a list would be an empty one. */
static bool lists_something(const char *text)
{
    while (*text && strchr(",: ", *text))
        text++;
    return *text;
}

/* Sets the row's member of `target` from `text`. False, and no change, when the text is not
 * accepted. */
static bool set_member(struct options *target, const struct option_row *row, const char *text)
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
        accepted = parse_decimal(text, &value.share) && value.share <= 1;
        break;
    case TYPE_PERCENT:
        accepted = parse_decimal(text, &value.share) && value.share > 0 &&
                   value.share <= (double)row->high;
        break;
    case TYPE_SIGNAL:
        accepted = parse_signal(text, &value.word);
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
        accepted = row->type == TYPE_TEXT_OR_NONE || lists_something(text);
        break;
    }
    /* A narrower member takes the low half of `number`: both processors are little-endian. */
    if (accepted)
        memcpy((char *)target + row->offset, &value, row->size);
    return accepted;
}

static void set_default(enum row_index index)
{
    const struct option_row *row = &option_rows[index];
    if (row->type == TYPE_TEXT_OR_NONE)
        memset((char *)&options + row->offset, 0, row->size);
    else
        set_member(&options, row, row->default_text);
    text_in_force[index] = row->default_text;
}

/* False when the environment has a wrong value; the member then has its default. */
static bool load_row(enum row_index index, char *const *environment)
{
    set_default(index);
    const char *text = value_of(environment, option_rows[index].name);
    if (!text)
        return true;
    const char *copy = copy_text(text);
    text_in_force[index] = copy && set_member(&options, &option_rows[index], copy) ? copy : NULL;
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
    case TYPE_PERCENT:
        format(out, ACCEPTED_SIZE, "a number above 0, up to %lu", row->high);
        break;
    case TYPE_SIGNAL:
        format(out, ACCEPTED_SIZE,
               "none, or a signal that programs may handle, not KILL, STOP, those of faults, 32 or "
               "33, by name or number, as USR2, 12 or RTMIN+3");
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
        format(out, ACCEPTED_SIZE, "one or more, up to %d bytes", TEXT_MAX);
        break;
    case TYPE_TEXT_OR_NONE:
        format(out, ACCEPTED_SIZE, "a text of up to %d bytes", TEXT_MAX);
        break;
    }
}

/* True when `key` is the row's name, in any case, with the prefix or without. */
static bool is_named(const struct option_row *row, const char *key, size_t length)
{
    const size_t prefix = strlen(OPTION_PREFIX);
    bool is_long = length > prefix && same_in_any_case(key, OPTION_PREFIX, prefix);
    const char *name = is_long ? row->name : row->name + prefix;
    return strlen(name) == length && same_in_any_case(key, name, length);
}

const char *options_check(const char *key, size_t length, const char *value, bool may_disable,
                          const char *whose)
{
    static struct options unused;
    const struct option_row *row = option_rows;
    while (row < option_rows + ROW_COUNT && !is_named(row, key, length))
        row++;
    char accepted[ACCEPTED_SIZE];
    int shown = (int)MIN_OF(length, (size_t)SHOWN_MAX);
    if (row == option_rows + ROW_COUNT) {
        log_error("%s: %.*s is not an option", whose, shown, key);
    } else if (row->fixed || (row == &option_rows[ROW_ENABLED] && !may_disable)) {
        log_error("%s: %s can be set in the environment only", whose, row->name);
    } else if (*value && (strlen(value) > TEXT_MAX || !set_member(&unused, row, value))) {
        describe(row, accepted);
        log_error("%s: %s=%.*s is not understood: it takes %s", whose, row->name, SHOWN_MAX,
                  row->hidden ? hidden : value, accepted);
    } else {
        return row->name;
    }
    return NULL;
}

static COLD void refuse(enum row_index index, char *const *environment)
{
    const struct option_row *row = &option_rows[index];
    char accepted[ACCEPTED_SIZE];
    describe(row, accepted);
    parts_off |= 1u << row->part;
    log_error_once("%s=%.*s is not understood: it takes %s; %s", row->name, SHOWN_MAX,
                   row->hidden ? hidden : value_of(environment, row->name), accepted,
                   option_consequence[row->part]);
}

static COLD void warn_of_unknown(const char *name, size_t length)
{
    char shown[64];
    format(shown, sizeof(shown), "%.*s", (int)MIN_OF(length, sizeof(shown)), name);
    const char *meant = option_meant(shown + strlen(OPTION_PREFIX));
    if (meant)
        log_warn_once("%s is not an option; %s is", shown, meant);
    else
        log_warn_once("%s is not an option; LIBAGENT_HELP=1 lists them", shown);
}

static bool is_option(const char *name, size_t length)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (strncmp(option_rows[i].name, name, length) == 0 && !option_rows[i].name[length])
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
        if (strncmp(name, OPTION_PREFIX, strlen(OPTION_PREFIX)) == 0 && !is_option(name, length)) {
            warn_of_unknown(name, length);
            said++;
        }
    }
}

/* The value of service.name, in `attribute`; NULL: there is none. */
static const char *service_of_attributes(const char *list, struct otel_attribute *attribute)
{
    while (otel_attribute_next(&list, attribute))
        if (strcmp(attribute->name, "service.name") == 0 && attribute->value[0])
            return attribute->value;
    return NULL;
}

static void find_service(char *const *environment, const char *program)
{
    static const char *const fall_backs[] = {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
                                             "DD_SERVICE", "PYROSCOPE_APPLICATION_NAME"};
    struct otel_attribute attribute;
    for (size_t i = 0; i < ARRAY_SIZE(fall_backs) && !options.service; i++) {
        const char *text = value_of(environment, fall_backs[i]);
        if (text && i == 1)
            text = service_of_attributes(text, &attribute);
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
    bool is_wrong[ROW_COUNT];
    texts_used = 0;
    parts_off = 0;
    for (int i = 0; i < ROW_COUNT; i++)
        is_wrong[i] = !load_row((enum row_index)i, environment);
    /* Before the first line about the others. */
    log_start(options.log, options.log_file);
    for (int i = 0; i < ROW_COUNT; i++)
        if (is_wrong[i])
            refuse((enum row_index)i, environment);
    if (!options.service)
        find_service(environment, program);
    look_for_unknown(environment);
}

bool options_ok(enum option_part part)
{
    return !(parts_off & (1u << part | 1u << PART_ALL));
}

bool options_is_set(const void *member)
{
    size_t offset = (size_t)((const char *)member - (const char *)&options);
    for (int i = 0; i < ROW_COUNT; i++)
        if (option_rows[i].offset == offset)
            return text_in_force[i] != option_rows[i].default_text;
    return false;
}

static const char *shown_text(const struct option_shown *shown, const struct option_row *row)
{
    for (; shown && shown->member; shown++)
        if ((const char *)shown->member - (const char *)&options == (ptrdiff_t)row->offset)
            return shown->text;
    return NULL;
}

size_t options_help(char *const *environment, const struct option_shown *shown, char *out,
                    size_t size)
{
    char folder[256];
    format(folder, sizeof(folder), "%s/" DEFAULT_FOLDER_NAME,
           default_folder_parent(environment_get(environment, "TMPDIR")),
           (unsigned)sys_call0(SYS_geteuid));
    size_t used = 0;
    for (int i = 0; i < ROW_COUNT && used < size; i++) {
        char accepted[ACCEPTED_SIZE];
        const char *text = text_in_force[i] ? text_in_force[i] : "(wrong value)";
        const char *instead = text_in_force[i] ? shown_text(shown, &option_rows[i]) : NULL;
        describe(&option_rows[i], accepted);
        if (i == ROW_OUTPUT && text == option_rows[i].default_text)
            text = folder;
        if (option_rows[i].hidden && text_in_force[i] && text != option_rows[i].default_text)
            text = hidden;
        if (instead)
            text = instead;
        used +=
            format(out + used, size - used, "%s=%s\n    %s (%s; default %s)\n", option_rows[i].name,
                   text, option_rows[i].help, accepted, option_rows[i].default_text);
    }
    return used;
}
