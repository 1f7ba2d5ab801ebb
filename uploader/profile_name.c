#include "uploader/profile_name.h"

#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"

#define TEMPORARY_PREFIX ".libagent."
#define TEMPORARY_SUFFIX ".tmp"

enum { SEQUENCE_DIGITS = 4 };

/* Closed lists, since a looser pattern would match files of other people ("graph.1.0001.frozen.pb"
 * is a common name of machine learning), and what matches may be removed. */
static const char *const families[PROFILE_FAMILIES] = {"cpu",  "heap",        "wall",
                                                       "lock", "heap-growth", "heap-peak"};
static const char *const suffixes[] = {
    [COMPRESSION_GZIP] = ".pb.gz",
    [COMPRESSION_ZSTD] = ".pb.zst",
    [COMPRESSION_NONE] = ".pb",
};
/* With the dot: of these dialects. */
static const char *const text_suffixes[] = {".html", ".collapsed"};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
}

void profile_name_program(char *out, const char *program)
{
    if (!program || !program[0])
        program = "unknown";
    size_t i = 0;
    for (; i < PROFILE_PROGRAM_SIZE - 1 && program[i]; i++)
        out[i] = (char)(is_name_byte(program[i]) ? program[i] : '_');
    out[i] = 0;
    if (out[0] == '.')
        out[0] = '_';
}

/* NULL: the dialect is none of text. */
static const char *text_suffix(const char *dialect)
{
    for (size_t i = 0; i < ARRAY_SIZE(text_suffixes); i++)
        if (strcmp(dialect, text_suffixes[i] + 1) == 0)
            return text_suffixes[i];
    return NULL;
}

bool profile_name_is_text(const char *dialect)
{
    return text_suffix(dialect) != NULL;
}

void profile_name_make(char *out, const char *program, int pid, const struct blob_header *header,
                       enum compression compression, uint64_t copy)
{
    size_t length =
        format(out, PROFILE_NAME_SIZE, "%s.%d.%04u", program, pid, (unsigned)header->sequence);
    if (copy > 0)
        length +=
            format(out + length, PROFILE_NAME_SIZE - length, "-%llu", (unsigned long long)copy);
    const char *suffix = text_suffix(header->dialect);
    format(out + length, PROFILE_NAME_SIZE - length, ".%s%s%s%s", header->family,
           header->capture[0] ? "@" : "", header->capture, suffix ? suffix : suffixes[compression]);
}

void profile_name_make_temporary(char *out, int pid, uint64_t unique)
{
    format(out, PROFILE_NAME_SIZE, TEMPORARY_PREFIX "%d.%llu" TEMPORARY_SUFFIX, pid,
           (unsigned long long)unique);
}

bool profile_name_family_known(const char *family)
{
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        if (strcmp(family, families[i]) == 0)
            return true;
    }
    return false;
}

/* Shortens *end by `text` if name[0..*end) ends with it. */
static bool take_text(const char *name, size_t *end, const char *text)
{
    size_t length = strlen(text);
    if (*end < length || memcmp(name + *end - length, text, length) != 0)
        return false;
    *end -= length;
    return true;
}

/* Shortens *end by the digits at its end; their number. */
static size_t take_digits(const char *name, size_t *end)
{
    size_t start = *end;
    while (*end > 0 && is_digit(name[*end - 1]))
        (*end)--;
    return start - *end;
}

static bool take_suffix(const char *name, size_t *end)
{
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        if (take_text(name, end, suffixes[i]))
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(text_suffixes); i++) {
        if (take_text(name, end, text_suffixes[i]))
            return true;
    }
    return false;
}

/* The "@NAME.NUMBER" of a capture's, if there is one; false: what stands there is none. */
static bool take_capture(const char *name, size_t *end)
{
    size_t number = *end, place = *end;
    while (place > 0 && is_name_byte(name[place - 1]))
        place--;
    if (place == 0 || name[place - 1] != '@')
        return true;
    bool is_one = take_digits(name, &number) > 0 && take_text(name, &number, ".") && number > place;
    *end = place - 1;
    return is_one;
}

static bool take_family(const char *name, size_t *end)
{
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        if (take_text(name, end, families[i]))
            return take_text(name, end, ".");
    }
    return false;
}

static bool take_sequence(const char *name, size_t *end)
{
    size_t digits = take_digits(name, end);
    if (digits > 0 && take_text(name, end, "-"))
        digits = take_digits(name, end);
    return digits >= SEQUENCE_DIGITS && take_text(name, end, ".");
}

/* Read from its end, because a program's name may hold dots and digits itself. */
bool profile_name_matches(const char *name)
{
    size_t end = strlen(name);
    if (!take_suffix(name, &end) || !take_capture(name, &end) || !take_family(name, &end) ||
        !take_sequence(name, &end) || take_digits(name, &end) == 0 || !take_text(name, &end, ".") ||
        name[0] == '.')
        return false;
    while (end > 0 && is_name_byte(name[end - 1]))
        end--;
    return end == 0;
}

bool profile_name_matches_temporary(const char *name)
{
    size_t end = strlen(name);
    return take_text(name, &end, TEMPORARY_SUFFIX) && take_digits(name, &end) > 0 &&
           take_text(name, &end, ".") && take_digits(name, &end) > 0 &&
           end == strlen(TEMPORARY_PREFIX) && memcmp(name, TEMPORARY_PREFIX, end) == 0;
}
