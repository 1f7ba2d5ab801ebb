#include "agent/base/option_pairs.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"

static const char *skip_blanks(const char *text, const char *end)
{
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    return text;
}

static const char *drop_blanks(const char *text, const char *end)
{
    while (end > text && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return end;
}

/* One "key=value" from `text` to `end`. */
static int add(struct option_pairs *pairs, const char *text, const char *end, bool may_disable,
               const char *whose)
{
    text = skip_blanks(text, end);
    end = drop_blanks(text, end);
    const char *equals = memchr(text, '=', (size_t)(end - text));
    if (!equals) {
        log_error("%s: %.*s is no key=value", whose, (int)MIN_OF(end - text, 100), text);
        return -EINVAL;
    }
    const char *value = skip_blanks(equals + 1, end);
    size_t key_length = (size_t)(drop_blanks(text, equals) - text);
    char *room = pairs->texts + pairs->used;
    size_t left = OPTION_PAIRS_BYTES - pairs->used;
    size_t value_length = (size_t)(end - value);
    const size_t name_room = 64; /* of the longest option */
    if (pairs->count == OPTION_PAIRS_MAX || left < value_length + 1 + name_room) {
        log_error("%s: too many options", whose);
        return -EINVAL;
    }
    /* The value comes to its place behind a name that is not known yet, so it is put there twice.
     */
    memcpy(room, value, value_length);
    room[value_length] = 0;
    const char *name = options_check(text, key_length, room, may_disable, whose);
    if (!name)
        return -EINVAL;
    size_t name_length = strlen(name);
    memmove(room + name_length + 1, room, value_length + 1);
    memcpy(room, name, name_length);
    room[name_length] = '=';
    /* The last one counts, and the first one is found. */
    memmove(pairs->list + 1, pairs->list, pairs->count * sizeof(pairs->list[0]));
    pairs->list[0] = room;
    pairs->list[++pairs->count] = NULL;
    pairs->used += name_length + value_length + 2;
    return 0;
}

static void clear(struct option_pairs *pairs)
{
    pairs->count = pairs->used = 0;
    pairs->list[0] = NULL;
}

static const char *find_or_end(const char *text, char c)
{
    while (*text && *text != c)
        text++;
    return text;
}

/* The end of the pair at `text`: a comma before something that has a `=` of its own. */
static const char *end_of_pair(const char *text)
{
    for (;;) {
        const char *comma = find_or_end(text, ',');
        const char *next_comma = *comma ? find_or_end(comma + 1, ',') : comma;
        if (!*comma || memchr(comma, '=', (size_t)(next_comma - comma)))
            return comma;
        text = comma + 1;
    }
}

int option_pairs_from_list(struct option_pairs *pairs, const char *text)
{
    int error = 0;
    clear(pairs);
    while (!error && *text) {
        const char *end = end_of_pair(text);
        error = add(pairs, text, end, false, "libagent_start");
        text = *end ? end + 1 : end;
    }
    return error;
}

int option_pairs_from_lines(struct option_pairs *pairs, const char *text, const char *file)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    char whose[512];
    int error = 0;
    clear(pairs);
    if (strncmp(text, byte_order_mark, sizeof(byte_order_mark) - 1) == 0)
        text += sizeof(byte_order_mark) - 1;
    for (unsigned number = 1; !error && *text; number++) {
        const char *end = find_or_end(text, '\n');
        const char *start = skip_blanks(text, end);
        if (start < end && *start != '#' && *start != '\r') {
            format(whose, sizeof(whose), "%.*s, line %u", (int)sizeof(whose) - 32, file, number);
            error = add(pairs, start, end, true, whose);
        }
        text = *end ? end + 1 : end;
    }
    return error;
}

const char *option_pairs_get(const struct option_pairs *pairs, const char *name)
{
    return environment_get(pairs->list, name);
}

bool option_pairs_equal(const struct option_pairs *a, const struct option_pairs *b)
{
    return a->used == b->used && memcmp(a->texts, b->texts, a->used) == 0;
}
