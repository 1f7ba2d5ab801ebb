#include "agent/base/otel_attributes.h"

#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 'a' - 'A';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A percent that no two digits follow stays. */
static size_t decode(char *out, size_t size, const char *text, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < size; i++) {
        int high = text[i] == '%' && i + 2 < length ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        out[used++] = (char)(low >= 0 ? high * 16 + low : text[i]);
        i += low >= 0 ? 2 : 0;
    }
    out[used] = 0;
    return used;
}

bool otel_attribute_next(const char **place, struct otel_attribute *attribute)
{
    const char *p = *place;
    if (!*p)
        return false;
    size_t length = 0;
    while (p[length] && p[length] != ',')
        length++;
    *place = p + length + (p[length] == ',');
    const char *equals = memchr(p, '=', length);
    size_t name = equals ? (size_t)(equals - p) : length;
    while (name > 0 && *p == ' ') {
        p++;
        name--;
        length--;
    }
    attribute->name_length = decode(attribute->name, sizeof(attribute->name), p, name);
    attribute->value_length =
        equals ? decode(attribute->value, sizeof(attribute->value), equals + 1, length - name - 1)
               : 0;
    return true;
}
