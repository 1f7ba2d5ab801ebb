#include "uploader/container_id.h"

#include <string.h>

#include "agent/base/format.h"

enum { HASH_DIGITS = 64, TASK_DIGITS = 32, UUID_DIGITS = 36 };

static size_t line_length(const char *text)
{
    size_t length = 0;
    while (text[length] && text[length] != '\n')
        length++;
    return length;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static size_t count_hex(const char *text, size_t length)
{
    size_t count = 0;
    while (count < length && is_hex(text[count]))
        count++;
    return count;
}

static bool is_uuid(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text[i] != '-' && text[i] != '_' : !is_hex(text[i]))
            return false;
    }
    return length == UUID_DIGITS;
}

/* Amazon's tasks: 32 hex digits, '-', decimal digits. */
static bool is_task(const char *text, size_t length)
{
    if (length < TASK_DIGITS + 2 || count_hex(text, length) != TASK_DIGITS ||
        text[TASK_DIGITS] != '-')
        return false;
    for (size_t i = TASK_DIGITS + 1; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

/* Where in the path's last part the id begins ("docker-ID", "cri-containerd-ID"); NULL: nowhere. */
static const char *find_id(const char *part, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && is_hex(part[i - 1]))
            continue;
        size_t rest = length - i;
        if ((rest == HASH_DIGITS && count_hex(part + i, rest) == rest) || is_uuid(part + i, rest) ||
            is_task(part + i, rest))
            return part + i;
    }
    return NULL;
}

bool container_id_of_cgroup(const char *text, char out[CONTAINER_ID_SIZE])
{
    static const char scope[] = ".scope";
    out[0] = 0;
    while (*text) {
        size_t length = line_length(text);
        size_t end = length;
        if (end >= sizeof(scope) - 1 &&
            memcmp(text + end - (sizeof(scope) - 1), scope, sizeof(scope) - 1) == 0)
            end -= sizeof(scope) - 1;
        size_t begin = end;
        while (begin > 0 && text[begin - 1] != '/')
            begin--;
        const char *id = begin > 0 ? find_id(text + begin, end - begin) : NULL;
        if (id) {
            format(out, CONTAINER_ID_SIZE, "%.*s", (int)(text + end - id), id);
            return true;
        }
        text += length + (text[length] == '\n');
    }
    return false;
}

bool container_id_of_mountinfo(const char *text, char out[CONTAINER_ID_SIZE])
{
    static const char hostname[] = "/hostname", sandboxes[] = "sandboxes/";
    out[0] = 0;
    while (*text) {
        size_t length = line_length(text);
        const char *end = text + length;
        const char *file = strstr(text, hostname);
        /* .../NOT-sandboxes/64 digits/.../hostname, in one field. */
        for (const char *p = text; file && file < end && p + 1 + HASH_DIGITS <= file; p++) {
            if (*p != '/' || p[1 + HASH_DIGITS] != '/' ||
                count_hex(p + 1, HASH_DIGITS) != HASH_DIGITS || memchr(p, ' ', (size_t)(file - p)))
                continue;
            size_t before = (size_t)(p + 1 - text);
            if (before >= sizeof(sandboxes) - 1 &&
                memcmp(p + 1 - (sizeof(sandboxes) - 1), sandboxes, sizeof(sandboxes) - 1) == 0)
                continue;
            format(out, CONTAINER_ID_SIZE, "%.*s", HASH_DIGITS, p + 1);
            return true;
        }
        text = *end ? end + 1 : end;
    }
    return false;
}
