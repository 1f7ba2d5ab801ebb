#include "agent/export/json.h"

#include <string.h>

#include "agent/base/format.h"

void json_raw(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

void json_number(struct buffer *out, int64_t number)
{
    char digits[20]; /* -2^63 has 20 */
    size_t first = sizeof(digits);
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        digits[--first] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0)
        digits[--first] = '-';
    buffer_append(out, digits + first, sizeof(digits) - first);
}

void json_exact_number(struct buffer *out, int64_t number)
{
    static const int64_t exact_max = 1ll << 53;
    const char *quote = number < -exact_max || number > exact_max ? "\"" : "";
    json_raw(out, quote);
    json_number(out, number);
    json_raw(out, quote);
}

/* The character at `at` where it has to be escaped, and its bytes; else -1. */
static int to_escape(const unsigned char *at, size_t left, size_t *bytes)
{
    unsigned char c = at[0];
    *bytes = 1;
    if (c < ' ' || c == 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&')
        return c;
    if (c == 0xc2 && left >= 2 && at[1] < 0xa0) {
        *bytes = 2;
        return at[1];
    }
    if (c == 0xe2 && left >= 3 && at[1] == 0x80 && (at[2] & 0xfe) == 0xa8) {
        *bytes = 3;
        return 0x2000 + (at[2] & 0x3f);
    }
    return -1;
}

void json_text(struct buffer *out, const char *text, size_t length)
{
    json_raw(out, "\"");
    const unsigned char *at = (const unsigned char *)text, *end = at + length, *plain = at;
    while (at < end) {
        size_t bytes;
        int character = to_escape(at, (size_t)(end - at), &bytes);
        if (character >= 0) {
            char escape[8];
            buffer_append(out, plain, (size_t)(at - plain));
            buffer_append(out, escape, format(escape, sizeof(escape), "\\u%04x", character));
            plain = at + bytes;
        }
        at += bytes;
    }
    buffer_append(out, plain, (size_t)(at - plain));
    json_raw(out, "\"");
}
