#include "agent/export/name_limit.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char dots[] = "...";

enum { DOTS = sizeof(dots) - 1 };

static size_t copy_if(char *out, size_t at, const char *text, size_t length)
{
    if (out)
        memcpy(out + at, text, length);
    return at + length;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* Bytes at `at` that are no brackets, though they have such letters: operators, arrows, and the
 * namespace without a name. */
static size_t whole_part(const char *text, const char *at)
{
    static const char word[] = "operator", nameless[] = "(anonymous namespace)";
    if (begins(at, nameless))
        return sizeof(nameless) - 1;
    if (begins(at, "->"))
        return 2;
    if (!begins(at, word) || (at > text && is_word(at[-1])))
        return 0;
    size_t length = sizeof(word) - 1;
    if (begins(at + length, "()") || begins(at + length, "[]"))
        return length + 2;
    while (at[length] && strchr("<>=-!+*/%^&|~,", at[length]))
        length++;
    return length;
}

/* Copies the text (`out` NULL: only counts) with what is in more than `most` brackets left out. The
 * length; *deepest is how deep they go. */
static size_t render(char *out, const char *text, unsigned most, unsigned *deepest)
{
    size_t length = 0;
    unsigned depth = 0;
    *deepest = 0;
    for (const char *at = text; *at;) {
        size_t part = whole_part(text, at);
        if (part == 0) {
            part = 1;
            if ((*at == '>' || *at == ')' || *at == '}') && depth > 0)
                depth--;
        }
        bool is_shown = depth <= most;
        if (is_shown)
            length = copy_if(out, length, at, part);
        if (part == 1 && (*at == '<' || *at == '(' || *at == '{')) {
            depth++;
            *deepest = depth > *deepest ? depth : *deepest;
            bool is_empty = at[1] == '>' || at[1] == ')' || at[1] == '}';
            if (is_shown && depth > most && !is_empty)
                length = copy_if(out, length, dots, DOTS);
        }
        at += part;
    }
    return length;
}

/* How many depths of brackets may be shown so that the rest fits: 0, where even the outermost ones
 * are too much. */
static unsigned depths_that_fit(const char *text, unsigned deepest, size_t limit)
{
    unsigned low = 0, high = deepest;
    while (low < high) {
        unsigned middle = low + (high - low) / 2, unused;
        if (render(NULL, text, middle, &unused) <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t name_limit_copy(char *out, const char *text, size_t limit)
{
    unsigned deepest;
    size_t length = render(NULL, text, UINT32_MAX, &deepest);
    if (length <= limit) {
        memcpy(out, text, length + 1);
        return length;
    }
    unsigned depths = depths_that_fit(text, deepest, limit);
    if (depths > 0) {
        length = render(out, text, depths - 1, &deepest);
        out[length] = 0;
        return length;
    }
    length = limit - DOTS;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not through a character of UTF-8 */
    memcpy(out, text, length);
    memcpy(out + length, dots, sizeof(dots));
    return length + DOTS;
}
