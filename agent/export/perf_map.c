#include "agent/export/perf_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "agent/export/address_search.h"

enum { CHUNK = 64 << 10, LINE_MAX_BYTES = SYMBOL_NAME_MAX + 64 };

struct reader {
    const uint64_t *addresses;
    struct symbol_name *names;
    struct buffer *texts;
    size_t count, unnamed;
    uint8_t bytes[CHUNK + LINE_MAX_BYTES];
};

struct line {
    uint64_t start, size;
    const char *name;
    size_t length;
};

/* Hexadecimal, with or without 0x; *at is behind it and the space that has to follow. */
static bool take_number(const char **at, const char *end, uint64_t *value)
{
    const char *p = *at;
    if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
        p += 2;
    const char *first = p;
    *value = 0;
    for (; p < end && p - first <= 16; p++) {
        unsigned c = (unsigned char)*p, letter = (c | 0x20) - 'a';
        if (c - '0' < 10u)
            *value = *value << 4 | (c - '0');
        else if (letter < 6)
            *value = *value << 4 | (letter + 10);
        else
            break;
    }
    *at = p + 1;
    return p > first && p - first <= 16 && p < end && *p == ' ';
}

static bool parse(const char *at, const char *end, struct line *line)
{
    if (!take_number(&at, end, &line->start) || !take_number(&at, end, &line->size))
        return false;
    while (end > at && (end[-1] == '\r' || end[-1] == ' '))
        end--;
    line->name = at;
    line->length = MIN_OF((size_t)(end - at), (size_t)SYMBOL_NAME_MAX);
    return line->length > 0 && !memchr(line->name, 0, line->length);
}

static int take_line(struct reader *reader, const char *start, const char *end)
{
    struct line line;
    if (!parse(start, end, &line))
        return 0;
    struct symbol_name name = {.length = 0};
    for (size_t i = address_lower_bound(reader->addresses, reader->count, line.start);
         i < reader->count && reader->addresses[i] - line.start < line.size; i++) {
        if (reader->names[i].length)
            continue;
        if (!name.length) {
            name.offset = (uint32_t)reader->texts->size;
            name.length = (uint32_t)line.length;
            buffer_append(reader->texts, line.name, line.length);
            buffer_append(reader->texts, "", 1);
            if (reader->texts->error || reader->texts->size > UINT32_MAX)
                return -ENOMEM;
        }
        name.low = reader->addresses[i];
        name.high = name.low + 1;
        reader->names[i] = name;
        reader->unnamed--;
    }
    return 0;
}

/* The lines in [0, size) of the bytes, the last one first, but for what stands before the first
 * end of a line: its length is *rest. */
static int take_lines(struct reader *reader, size_t size, size_t *rest)
{
    const char *bytes = (const char *)reader->bytes;
    size_t end = size;
    for (size_t at = size; at > 0 && reader->unnamed; at--) {
        if (bytes[at - 1] != '\n')
            continue;
        int error = take_line(reader, bytes + at, bytes + end);
        if (error)
            return error;
        end = at - 1;
    }
    *rest = end;
    return 0;
}

static int read_at(int fd, void *data, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        long got = sys_call4(SYS_pread64, fd, (uint8_t *)data + done, size - done, offset + done);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return got ? (int)got : -EIO; /* cut meanwhile */
        done += (size_t)got;
    }
    return 0;
}

/* Backwards, a chunk at a time; what is left of a chunk's first line comes behind the next one. */
static int read_file(struct reader *reader, int fd, uint64_t size)
{
    uint64_t last = size > PERF_MAP_READ_MAX ? size - PERF_MAP_READ_MAX : 0;
    size_t rest = 0;
    bool is_last_line = true; /* until the first end of a line was seen */
    for (uint64_t at = size; at > last && reader->unnamed;) {
        size_t chunk = (size_t)MIN_OF(at - last, (uint64_t)CHUNK);
        at -= chunk;
        memmove(reader->bytes + chunk, reader->bytes, rest);
        int error = read_at(fd, reader->bytes, chunk, at);
        if (error)
            return error;
        size_t all = chunk + rest;
        while (is_last_line && all > 0 && reader->bytes[all - 1] != '\n')
            all--;
        is_last_line = is_last_line && all == 0;
        error = take_lines(reader, all, &rest);
        if (!error && at == 0 && reader->unnamed)
            error = take_line(reader, (char *)reader->bytes, (char *)reader->bytes + rest);
        if (error)
            return error;
        rest = rest > LINE_MAX_BYTES ? 0 : rest; /* its name is cut */
    }
    return 0;
}

static int open_map(uint64_t *size)
{
    char path[64];
    format(path, sizeof(path), "/tmp/perf-%d.map", sys_pid());
    int fd = sys_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    struct stat status;
    int error = (int)sys_call2(SYS_fstat, fd, &status);
    if (!error && (!S_ISREG(status.st_mode) || (status.st_uid != sys_call0(SYS_geteuid) &&
                                                status.st_uid != sys_call0(SYS_getuid))))
        error = -EPERM;
    if (error) {
        sys_close(fd);
        return error;
    }
    *size = (uint64_t)status.st_size;
    return fd;
}

int perf_map_find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                  struct buffer *texts)
{
    size_t unnamed = 0;
    for (size_t i = 0; i < count; i++)
        unnamed += names[i].length == 0;
    if (!unnamed)
        return 0;
    uint64_t size = 0;
    int fd = open_map(&size);
    if (fd < 0)
        return fd;
    struct reader *reader = sys_map(sizeof(*reader));
    int error = reader ? 0 : -ENOMEM;
    if (reader) {
        reader->addresses = addresses;
        reader->count = count;
        reader->unnamed = unnamed;
        reader->names = names;
        reader->texts = texts;
        error = read_file(reader, fd, size);
        sys_unmap(reader, sizeof(*reader));
    }
    sys_close(fd);
    return error;
}
