#include "uploader/credentials.h"

#include <string.h>

#include "agent/base/format.h"
#include "agent/base/options.h"

static const char *const variables[][CREDENTIALS] = {
    [BACKEND_PYROSCOPE] = {"PYROSCOPE_BASIC_AUTH_USER", "PYROSCOPE_BASIC_AUTH_PASSWORD",
                           "PYROSCOPE_AUTH_TOKEN", "PYROSCOPE_TENANT_ID", NULL},
    [BACKEND_PARCA] = {NULL, NULL, "PARCA_BEARER_TOKEN", NULL, NULL},
    [BACKEND_DATADOG] = {NULL, NULL, NULL, NULL, "DD_API_KEY"},
    [BACKEND_POST] = {"UPLOAD_BASIC_AUTH_USER", "UPLOAD_BASIC_AUTH_PASSWORD", "UPLOAD_AUTH_TOKEN",
                      NULL, NULL},
    [BACKEND_FILE] = {NULL},
};

/* A line's end in it would be another header. */
static bool is_value(const char *value, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)value[i] < ' ' || value[i] == 0x7f)
            return false;
    return length < CREDENTIAL_SIZE;
}

static bool set(char *out, const char *value, size_t length)
{
    bool good = is_value(value, length);
    size_t kept = good ? length : 0;
    memcpy(out, value, kept);
    out[kept] = 0;
    return good;
}

bool credentials_take(struct credentials *credentials, enum backend_kind kind,
                      char *const *environment)
{
    bool all = true;
    for (int i = 0; i < CREDENTIALS; i++) {
        const char *name = variables[kind][i];
        /* A plain receiver's are no variables that anybody has set. */
        const char *value =
            name && kind != BACKEND_POST ? environment_get(environment, name) : NULL;
        all &= set(credentials->text[i], value ? value : "", value ? strlen(value) : 0);
    }
    return all;
}

/* Its index among those of the kind; negative: the kind has none of that name. */
static int find_name(enum backend_kind kind, const char *name, size_t length)
{
    for (int i = 0; i < CREDENTIALS; i++) {
        const char *variable = variables[kind][i];
        if (variable && strlen(variable) == length && memcmp(variable, name, length) == 0)
            return i;
    }
    return -1;
}

/* False: no backend has that name, or the value is none. `applies`: it is for the destination. */
static bool take_line(struct credentials *credentials, enum backend_kind kind, bool applies,
                      const char *line, size_t length)
{
    const char *equals = memchr(line, '=', length);
    if (!equals)
        return length == 0;
    const char *value = equals + 1;
    size_t name = (size_t)(equals - line), size = length - name - 1;
    int own = find_name(kind, line, name);
    if (applies && own >= 0)
        return set(credentials->text[own], value, size);
    bool known = false;
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        known |= find_name((enum backend_kind)i, line, name) >= 0;
    return known && is_value(value, size);
}

/* "[ADDRESS]": is it the destination's? */
static bool is_section_of(const struct destination *destination, const char *line, size_t length)
{
    const char *address = destination_address(destination);
    if (length < 3 || line[length - 1] != ']')
        return false;
    size_t size = length - 2;
    return strlen(address) >= size && memcmp(line + 1, address, size) == 0 &&
           (!address[size] || address[size] == '/');
}

struct wrong_lines credentials_read(struct credentials *credentials,
                                    const struct destination *destination, const char *text)
{
    bool has_section = false, applies = true;
    struct wrong_lines wrong = {0};
    for (unsigned number = 1; *text; number++) {
        bool good = true;
        size_t length = 0;
        while (text[length] && text[length] != '\n')
            length++;
        size_t step = length + (text[length] == '\n');
        while (length > 0 && (text[length - 1] == '\r' || text[length - 1] == ' '))
            length--;
        if (length && text[0] == '[') {
            good = length >= 3 && text[length - 1] == ']';
            applies = is_section_of(destination, text, length);
            if (applies && !has_section)
                memset(credentials, 0, sizeof(*credentials));
            has_section |= applies;
        } else if (text[0] != '#') {
            good = take_line(credentials, destination->kind, applies, text, length);
        }
        if (!good && !wrong.count++)
            wrong.first = number;
        text += step;
    }
    return wrong;
}

size_t credentials_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t k = 0; k < ARRAY_SIZE(variables); k++)
        for (int i = 0; i < CREDENTIALS; i++)
            if (variables[k][i])
                used += format(out + used, size - used, "%s%s", used ? ", " : "", variables[k][i]);
    return used;
}

/* RFC 4648; `out` has room for 4 characters of each 3 bytes begun, and the 0. */
static void base64(char *out, const char *text, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < length ? (unsigned char)text[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            *out++ = (char)(i + j > length ? '=' : digits[bits >> (18 - 6 * j) & 63]);
    }
    *out = 0;
}

static bool has(const struct credentials *credentials, int which)
{
    return credentials->text[which][0] != 0;
}

void credentials_add_headers(const struct credentials *credentials, struct http_request *request)
{
    const char(*text)[CREDENTIAL_SIZE] = credentials->text;
    char pair[2 * CREDENTIAL_SIZE], encoded[2 * sizeof(pair)];
    if (has(credentials, CREDENTIAL_TOKEN)) {
        http_add_header(request, "Authorization: Bearer %s", text[CREDENTIAL_TOKEN]);
    } else if (has(credentials, CREDENTIAL_USER)) {
        size_t length =
            format(pair, sizeof(pair), "%s:%s", text[CREDENTIAL_USER], text[CREDENTIAL_PASSWORD]);
        base64(encoded, pair, length);
        http_add_header(request, "Authorization: Basic %s", encoded);
    }
    if (has(credentials, CREDENTIAL_TENANT))
        http_add_header(request, "X-Scope-OrgID: %s", text[CREDENTIAL_TENANT]);
}

size_t credentials_describe(const struct credentials *credentials, char *out, size_t size)
{
    static const char *const words[CREDENTIALS] = {"user", "password", "token", "tenant",
                                                   "API key"};
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < CREDENTIALS; i++)
        if (has(credentials, i))
            used += format(out + used, size - used, "%s%s (hidden)", used ? ", " : "", words[i]);
    return used;
}
