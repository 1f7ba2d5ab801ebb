#include "uploader/upload_url.h"

#include <string.h>

#include "agent/base/format.h"

enum { PORT_MAX = 65535 };

struct scheme {
    const char *prefix;
    enum backend_kind kind;
    const char *transport; /* of the URL that is left; "": a path */
};

static const struct scheme schemes[] = {
    {"pyroscope+http://", BACKEND_PYROSCOPE, "http://"},
    {"pyroscope+https://", BACKEND_PYROSCOPE, "https://"},
    {"parca+http://", BACKEND_PARCA, "http://"},
    {"parca+https://", BACKEND_PARCA, "https://"},
    {"datadog+http://", BACKEND_DATADOG, "http://"},
    {"datadog+https://", BACKEND_DATADOG, "https://"},
    {"datadog+unix://", BACKEND_DATADOG, ""},
    {"http://", BACKEND_POST, "http://"},
    {"https://", BACKEND_POST, "https://"},
    {"file://", BACKEND_FILE, ""},
};

static const char *const names[] = {"pyroscope", "parca", "datadog", "post", "file"};

const char *backend_name(enum backend_kind kind)
{
    return names[kind];
}

const char *destination_address(const struct destination *destination)
{
    if (destination->socket[0])
        return destination->socket;
    const char *transport = strstr(destination->url, "://");
    return transport ? transport + 3 : destination->url;
}

size_t destination_name(const struct destination *destination, char *out, size_t size)
{
    const char *address = destination_address(destination);
    bool is_path = destination->socket[0] || destination->kind == BACKEND_FILE;
    const char *path = is_path ? NULL : strchr(address, '/');
    size_t length = path ? (size_t)(path - address) : strlen(address);
    return format(out, size, "%s%s%.*s", backend_name(destination->kind), length ? " at " : "",
                  (int)length, address);
}

size_t upload_url_show(const struct destination *destination, char *out, size_t size)
{
    const struct scheme *scheme = schemes;
    bool is_socket = destination->socket[0];
    const char *rest = is_socket ? destination->socket : destination->url;
    /* Of a kind the one whose transport it has. */
    while (scheme->kind != destination->kind ||
           (is_socket ? scheme->transport[0] != 0
                      : strncmp(rest, scheme->transport, strlen(scheme->transport)) != 0))
        scheme++;
    return format(out, size, "%s%s", scheme->prefix, rest + strlen(scheme->transport));
}

static const struct scheme *find_scheme(const char *text, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        size_t size = strlen(schemes[i].prefix);
        if (length >= size && memcmp(text, schemes[i].prefix, size) == 0)
            return &schemes[i];
    }
    return NULL;
}

static const char *parse_path(const char *rest, size_t length, char *out, size_t size)
{
    if (length < 2 || rest[0] != '/')
        return "it lacks an absolute path (three slashes)";
    if (length >= size)
        return "its path is too long";
    memcpy(out, rest, length);
    out[length] = 0;
    return NULL;
}

/* Of HOST[:PORT]: letters, digits and what stands in addresses. */
static bool is_host(const char *text, size_t length)
{
    static const char others[] = ".-_:[]%";
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_word && (!c || !strchr(others, c)))
            return false;
    }
    return length > 0 && text[0] != ':';
}

/* Behind a name, or an address in brackets; none is as good. */
static bool has_good_port(const char *text, size_t length)
{
    size_t at = length;
    while (at > 0 && text[at - 1] != ':' && text[at - 1] != ']')
        at--;
    if (at == 0 || text[at - 1] == ']')
        return at == 0 || at == length;
    unsigned port = 0;
    for (; at < length && port <= PORT_MAX; at++) {
        if (text[at] < '0' || text[at] > '9')
            return false;
        port = port * 10 + (unsigned)(text[at] - '0');
    }
    return port > 0 && port <= PORT_MAX;
}

static const char *parse_http(const struct scheme *scheme, const char *rest, size_t length,
                              struct destination *destination)
{
    const char *slash = memchr(rest, '/', length);
    size_t host = slash ? (size_t)(slash - rest) : length;
    if (memchr(rest, '@', host))
        return "a name or password in it would be seen by others: LIBAGENT_AUTH_FILE holds them";
    if (!is_host(rest, host))
        return "it names no host";
    if (!has_good_port(rest, host))
        return "its port is none from 1 to 65535";
    for (size_t i = host; i < length; i++)
        if (rest[i] <= ' ' || rest[i] == '?' || rest[i] == '#' || rest[i] == 0x7f)
            return "its path has a character that is not taken there";
    while (length > host && rest[length - 1] == '/')
        length--;
    size_t size = sizeof(destination->url);
    if (strlen(scheme->transport) + length >= size)
        return "it is too long";
    format(destination->url, size, "%s%.*s", scheme->transport, (int)length, rest);
    static const char intake[] = "intake.profile.";
    destination->is_intake = scheme->kind == BACKEND_DATADOG &&
                             (length > host || strncmp(rest, intake, sizeof(intake) - 1) == 0);
    return NULL;
}

const char *upload_url_parse(const char *text, size_t length, struct destination *destination)
{
    *destination = (struct destination){.url = ""};
    const struct scheme *scheme = find_scheme(text, length);
    if (!scheme)
        return "it begins with none of pyroscope+http(s)://, parca+http(s)://, datadog+http(s)://, "
               "datadog+unix://, http(s)://, file://";
    destination->kind = scheme->kind;
    text += strlen(scheme->prefix);
    length -= strlen(scheme->prefix);
    if (scheme->kind == BACKEND_FILE)
        return parse_path(text, length, destination->url, sizeof(destination->url));
    if (scheme->transport[0])
        return parse_http(scheme, text, length, destination);
    /* A host has to stand there in the request, whatever it is. */
    format(destination->url, sizeof(destination->url), "http://localhost");
    return parse_path(text, length, destination->socket, sizeof(destination->socket));
}

/* Behind those before it of its kind. */
static const char *take_place(struct destination *destinations, size_t index)
{
    struct destination *taken = &destinations[index];
    taken->place = 0;
    for (size_t i = 0; i < index; i++) {
        if (destinations[i].kind != taken->kind)
            continue;
        if (strcmp(destinations[i].url, taken->url) == 0 &&
            strcmp(destinations[i].socket, taken->socket) == 0)
            return "it is there twice";
        if (taken->kind == BACKEND_FILE)
            return "it is a second folder";
        taken->place++;
    }
    return NULL;
}

const char *upload_urls_parse(const char *list, struct destination *destinations, size_t *count)
{
    for (*count = 0; *list; (*count)++) {
        size_t length = 0;
        while (list[length] && list[length] != ',')
            length++;
        if (*count == UPLOAD_DESTINATIONS)
            return "it is one more than are taken";
        size_t begin = 0, end = length;
        while (begin < end && list[begin] == ' ')
            begin++;
        while (end > begin && list[end - 1] == ' ')
            end--;
        const char *wrong = upload_url_parse(list + begin, end - begin, &destinations[*count]);
        if (wrong)
            return wrong;
        wrong = take_place(destinations, *count);
        if (wrong)
            return wrong;
        list += length + (list[length] == ',');
    }
    return NULL;
}
