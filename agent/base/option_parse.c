#include "agent/base/option_parse.h"

#include <signal.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"

enum {
    NAME_MAX_COMPARED = 63,
    GLOB_MAX = 256, /* names of executables have at most 255 bytes (NAME_MAX) */
};

struct unit {
    const char *name; /* lower case */
    uint64_t factor;
};

/* The unit that is meant where none stands comes first; then rising. */
static const struct unit size_units[] = {
    {"b", 1}, {"kib", 1ull << 10}, {"mib", 1ull << 20}, {"gib", 1ull << 30}, {NULL, 0}};
static const struct unit duration_units[] = {{"s", NS_PER_SEC},
                                             {"ms", NS_PER_MS},
                                             {"m", 60 * NS_PER_SEC},
                                             {"h", 3600 * NS_PER_SEC},
                                             {NULL, 0}};

static char to_lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static bool equal_in_any_case(const char *text, const char *lower)
{
    while (*text && to_lower(*text) == *lower) {
        text++;
        lower++;
    }
    return !*text && !*lower;
}

bool same_in_any_case(const char *a, const char *b, size_t length)
{
    for (; length && to_lower(*a) == to_lower(*b); length--) {
        a++;
        b++;
    }
    return length == 0;
}

/* The digits at *text, which is moved behind them. */
static bool take_digits(const char **text, uint64_t *value)
{
    const char *p = *text;
    *value = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (unsigned)(*p - '0'), value))
            return false;
    bool any = p != *text;
    *text = p;
    return any;
}

static bool parse_with_unit(const char *text, const struct unit *units, uint64_t *value)
{
    if (!take_digits(&text, value))
        return false;
    for (const struct unit *unit = units; unit->name; unit++)
        if (equal_in_any_case(text, unit->name) || (!*text && unit == units))
            return !__builtin_mul_overflow(*value, unit->factor, value);
    return false;
}

bool parse_count(const char *text, uint64_t *value)
{
    return take_digits(&text, value) && !*text;
}

bool parse_size(const char *text, uint64_t *bytes)
{
    return parse_with_unit(text, size_units, bytes);
}

bool parse_duration(const char *text, uint64_t *ns)
{
    return parse_with_unit(text, duration_units, ns);
}

bool parse_decimal(const char *text, double *number)
{
    double value = 0, place = 1;
    bool any = false, fraction = false;
    for (; *text; text++) {
        if (*text == '.' && !fraction) {
            fraction = true;
        } else if (*text >= '0' && *text <= '9') {
            any = true;
            if (fraction)
                value += (*text - '0') * (place /= 10);
            else
                value = value * 10 + (*text - '0');
        } else {
            return false;
        }
    }
    *number = value;
    return any;
}

bool parse_bool(const char *text, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on", NULL};
    uint32_t index;
    if (!parse_word(text, words, &index))
        return false;
    *value = index & 1;
    return true;
}

bool parse_word(const char *text, const char *const *words, uint32_t *index)
{
    for (uint32_t i = 0; words[i]; i++)
        if (equal_in_any_case(text, words[i])) {
            *index = i;
            return true;
        }
    return false;
}

/* The kernel's real-time signals are 32 to 64; glibc keeps the first two. */
enum { FIRST_REAL_TIME = 34, LAST_REAL_TIME = 64 };

/* The number behind "RTMIN+" or "RTMAX-", or of either alone. */
static bool parse_real_time(const char *text, uint64_t *number)
{
    bool from_last = same_in_any_case(text, "rtmax", 5);
    if (!from_last && !same_in_any_case(text, "rtmin", 5))
        return false;
    uint64_t distance = 0;
    if (text[5] && (text[5] != (from_last ? '-' : '+') || !parse_count(text + 6, &distance)))
        return false;
    *number = from_last ? LAST_REAL_TIME - distance : FIRST_REAL_TIME + distance;
    return distance <= LAST_REAL_TIME - FIRST_REAL_TIME;
}

bool parse_signal(const char *text, uint32_t *number)
{
    static const struct {
        const char *name;
        uint8_t number;
    } names[] = {
        {"none", 0},       {"hup", SIGHUP},       {"int", SIGINT},   {"quit", SIGQUIT},
        {"usr1", SIGUSR1}, {"usr2", SIGUSR2},     {"pipe", SIGPIPE}, {"alrm", SIGALRM},
        {"term", SIGTERM}, {"chld", SIGCHLD},     {"cont", SIGCONT}, {"tstp", SIGTSTP},
        {"ttin", SIGTTIN}, {"ttou", SIGTTOU},     {"urg", SIGURG},   {"xcpu", SIGXCPU},
        {"xfsz", SIGXFSZ}, {"vtalrm", SIGVTALRM}, {"prof", SIGPROF}, {"winch", SIGWINCH},
        {"io", SIGIO},     {"pwr", SIGPWR},
    };
    uint64_t found = 0;
    if (same_in_any_case(text, "sig", 3))
        text += 3;
    bool is_number = parse_count(text, &found);
    if (!is_number && parse_real_time(text, &found)) {
        *number = (uint32_t)found;
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (is_number ? names[i].number == found : equal_in_any_case(text, names[i].name)) {
            *number = names[i].number;
            return true;
        }
    *number = (uint32_t)found;
    return is_number && found >= FIRST_REAL_TIME && found <= LAST_REAL_TIME;
}

/* Copies the next item of a comma-separated list, without blanks around it, and returns where
 * the list goes on (NULL at its end). An item that is too long becomes an empty one. */
static const char *take_item(const char *list, char item[GLOB_MAX])
{
    const char *end = list;
    while (*end && *end != ',')
        end++;
    const char *next = *end ? end + 1 : NULL;
    while (list < end && *list == ' ')
        list++;
    while (end > list && end[-1] == ' ')
        end--;
    size_t length = (size_t)(end - list);
    if (length >= GLOB_MAX)
        length = 0;
    memcpy(item, list, length);
    item[length] = 0;
    return next;
}

bool parse_word_set(const char *text, const char *const *words, uint32_t *bits)
{
    char item[GLOB_MAX];
    *bits = 0;
    while (text) {
        uint32_t index;
        text = take_item(text, item);
        if (!parse_word(item, words, &index))
            return false;
        *bits |= 1u << index;
    }
    return true;
}

bool glob_list_match(const char *globs, const char *text)
{
    char glob[GLOB_MAX];
    while (globs) {
        globs = take_item(globs, glob);
        if (glob[0] && glob_match(glob, text))
            return true;
    }
    return false;
}

size_t show_size(char *out, size_t size, uint64_t bytes)
{
    static const char *const names[] = {"", "KiB", "MiB", "GiB"};
    unsigned unit = 0;
    for (; unit < ARRAY_SIZE(names) - 1 && bytes != 0 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    return format(out, size, "%lu%s", bytes, names[unit]);
}

size_t show_duration(char *out, size_t size, uint64_t ns)
{
    if (ns % (3600 * NS_PER_SEC) == 0 && ns != 0)
        return format(out, size, "%lluh", ns / (3600 * NS_PER_SEC));
    if (ns % NS_PER_SEC == 0)
        return format(out, size, "%llus", ns / NS_PER_SEC);
    return format(out, size, "%llums", ns / NS_PER_MS);
}

unsigned edit_distance(const char *a, const char *b)
{
    /* One row of the table; `diagonal` is the entry up and left of the one being made. */
    unsigned row[NAME_MAX_COMPARED + 1];
    unsigned length_b = 0;
    while (length_b < NAME_MAX_COMPARED && b[length_b])
        length_b++;
    for (unsigned j = 0; j <= length_b; j++)
        row[j] = j;
    for (unsigned i = 0; i < NAME_MAX_COMPARED && a[i]; i++) {
        unsigned diagonal = row[0];
        row[0] = i + 1;
        for (unsigned j = 1; j <= length_b; j++) {
            unsigned changed = diagonal + (a[i] != b[j - 1]);
            unsigned moved = MIN_OF(row[j], row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = MIN_OF(changed, moved);
        }
    }
    return row[length_b];
}
