#include "agent/base/format.h"

#include <string.h>

struct sink {
    char *out;
    size_t size; /* without the final 0 */
    size_t used;
};

static void put(struct sink *sink, const char *text, size_t length)
{
    size_t room = sink->size - sink->used;
    if (length > room)
        length = room;
    memcpy(sink->out + sink->used, text, length);
    sink->used += length;
}

static void put_number(struct sink *sink, uint64_t value, unsigned base, bool negative,
                       unsigned width, char pad)
{
    char digits[20]; /* 2^64 - 1 has 20 */
    unsigned count = 0;
    do {
        digits[sizeof(digits) - ++count] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    unsigned length = count + negative;
    if (negative && pad == '0')
        put(sink, "-", 1);
    for (; length < width; length++)
        put(sink, &pad, 1);
    if (negative && pad != '0')
        put(sink, "-", 1);
    put(sink, digits + sizeof(digits) - count, count);
}

static void put_text(struct sink *sink, const char *text, size_t most)
{
    if (!text)
        text = "(null)";
    size_t length = 0;
    while (length < most && text[length])
        length++;
    put(sink, text, length);
}

/* What stands between % and the conversion's letter. */
struct directive {
    char pad;
    unsigned width;
    size_t precision;
    bool is_long; /* l, ll or z: 64 bits on the processors supported */
};

size_t format_list(char *out, size_t size, const char *pattern, va_list list)
{
    if (size == 0)
        return 0;
    struct sink sink = {.out = out, .size = size - 1};
    va_list args;
    va_copy(args, list);
    const char *p = pattern;
    while (*p) {
        const char *plain = p;
        while (*p && *p != '%')
            p++;
        put(&sink, plain, (size_t)(p - plain));
        if (!*p)
            break;
        const char *start = p++;
        struct directive d = {.pad = ' ', .precision = SIZE_MAX};
        if (*p == '0')
            d.pad = *p++;
        for (; *p >= '0' && *p <= '9'; p++)
            d.width = d.width * 10 + (unsigned)(*p - '0');
        if (p[0] == '.' && p[1] == '*') {
            d.precision = (size_t)va_arg(args, int); /* a negative one is huge: no limit */
            p += 2;
        }
        for (; *p == 'l' || *p == 'z'; p++)
            d.is_long = true;
        char letter = *p;
        if (letter == '%') {
            put(&sink, "%", 1);
        } else if (letter == 's') {
            put_text(&sink, va_arg(args, const char *), d.precision);
        } else if (letter == 'c') {
            char c = (char)va_arg(args, int);
            put(&sink, &c, 1);
        } else if (letter == 'd') {
            int64_t value = d.is_long ? va_arg(args, long) : va_arg(args, int);
            uint64_t size_of_value = value < 0 ? -(uint64_t)value : (uint64_t)value;
            put_number(&sink, size_of_value, 10, value < 0, d.width, d.pad);
        } else if (letter == 'u' || letter == 'x') {
            uint64_t value = d.is_long ? va_arg(args, unsigned long) : va_arg(args, unsigned);
            put_number(&sink, value, letter == 'u' ? 10 : 16, false, d.width, d.pad);
        } else if (letter == 'p') {
            put(&sink, "0x", 2);
            put_number(&sink, (uintptr_t)va_arg(args, void *), 16, false, 0, ' ');
        } else {
            /* Not known: the arguments that follow cannot be told apart any more. */
            put_text(&sink, start, SIZE_MAX);
            break;
        }
        p++;
    }
    va_end(args);
    out[sink.used] = 0;
    return sink.used;
}

size_t format(char *out, size_t size, const char *pattern, ...)
{
    va_list list;
    va_start(list, pattern);
    size_t length = format_list(out, size, pattern, list);
    va_end(list);
    return length;
}

bool glob_match(const char *pattern, const char *text)
{
    /* On a mismatch only the last * need take one more byte: an earlier one could not help. */
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = text;
        } else if (*pattern && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* Length of the well-formed character at `in` (Unicode 15, table 3-7), or 0. */
static size_t utf8_character(const unsigned char *in, size_t length)
{
    unsigned char lead = in[0];
    if (lead < 0x80)
        return 1;
    size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length < size)
        return 0;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte: no overlong, no surrogate */
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (in[1] < low || in[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++)
        if ((in[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

static bool is_control(const unsigned char *in)
{
    return in[0] < ' ' || in[0] == 0x7f || (in[0] == 0xc2 && in[1] < 0xa0);
}

size_t make_printable(char *text, size_t length)
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        const unsigned char *in = (const unsigned char *)text + at;
        size_t step = utf8_character(in, length - at);
        if (step == 0 || is_control(in)) {
            text[used++] = '?';
        } else {
            memmove(text + used, in, step);
            used += step;
        }
        at += step ? step : 1;
    }
    return used;
}

size_t utf8_copy(char *out, size_t size, const char *in, size_t length)
{
    static const char replacement[] = "\xef\xbf\xbd";
    if (size == 0)
        return 0;
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        size_t step = utf8_character((const unsigned char *)in + at, length - at);
        const char *from = step ? in + at : replacement;
        size_t bytes = step ? step : sizeof(replacement) - 1;
        if (bytes > size - 1 - used)
            break;
        memcpy(out + used, from, bytes);
        used += bytes;
        at += step ? step : 1;
    }
    out[used] = 0;
    return used;
}

const char *base_name(const char *path)
{
    const char *name = path;
    for (const char *p = path; *p; p++)
        if (*p == '/')
            name = p + 1;
    return name;
}
