#include "agent/export/jit_names.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/pair_map.h"
#include "agent/base/sys.h"

/* Longer than a name of a file, and the number behind it. */
enum { READ_SIZE = 32 << 10, FILE_NAME_MAX = 255, NAME_SIZE = FILE_NAME_MAX + 20 };

struct region {
    uint64_t start, end, offset;
    bool is_code;
    const char *file; /* behind the last '/', not ended by a 0; "" for none */
    size_t file_length;
    bool is_made;
};

struct walk {
    const uint64_t *addresses;
    struct symbol_name *names;
    size_t count, next; /* address */
    struct symbol_name jit;
    struct buffer *texts;
    char bytes[READ_SIZE];
};

static uint64_t take_hex(const char **at, const char *end)
{
    uint64_t value = 0;
    for (; *at < end; ++*at) {
        unsigned c = (unsigned char)**at;
        unsigned digit = c - '0' < 10u ? c - '0' : c - 'a' < 6u ? c - 'a' + 10 : 16;
        if (digit == 16)
            break;
        value = value << 4 | digit;
    }
    ++*at; /* what ends it */
    return value;
}

static bool ends_with(const char *at, const char *end, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(end - at) >= length && memcmp(end - length, text, length) == 0;
}

/* "7f00-7f01 r-xp 00001000 08:01 1234   /path" */
static struct region parse(const char *at, const char *end)
{
    struct region region = {.is_made = true};
    region.start = take_hex(&at, end);
    region.end = take_hex(&at, end);
    if (end - at < 5)
        return region;
    region.is_code = at[2] == 'x';
    at += 5;
    region.offset = take_hex(&at, end);
    const char *path = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
    if (!path)
        return region; /* none, or "[heap]" and its like */
    region.is_made = memcmp(path, "/memfd:", MIN_OF((size_t)7, (size_t)(end - path))) == 0 ||
                     ends_with(path, end, "/dev/zero") || ends_with(path, end, " (deleted)");
    region.file = end;
    while (region.file > path && region.file[-1] != '/')
        region.file--;
    region.file_length = (size_t)(end - region.file);
    return region;
}

static struct symbol_name add_text(struct walk *walk, const char *text, size_t length)
{
    struct symbol_name name = {.offset = (uint32_t)walk->texts->size, .length = (uint32_t)length};
    buffer_append(walk->texts, text, length + 1);
    return name;
}

static void name_address(struct walk *walk, const struct region *region, size_t i)
{
    uint64_t address = walk->addresses[i];
    struct symbol_name name;
    if (region->is_made) {
        if (!walk->jit.length)
            walk->jit = add_text(walk, "[jit]", 5);
        name = walk->jit;
    } else {
        char text[NAME_SIZE];
        unsigned long long offset = address - region->start + region->offset;
        size_t length =
            format(text, sizeof(text), "%.*s+0x%llx",
                   (int)MIN_OF(region->file_length, (size_t)FILE_NAME_MAX), region->file, offset);
        name = add_text(walk, text, length);
    }
    name.low = address;
    name.high = address + 1;
    walk->names[i] = name;
}

static void take_line(struct walk *walk, const char *start, const char *end)
{
    struct region region = parse(start, end);
    while (walk->next < walk->count && walk->addresses[walk->next] < region.start)
        walk->next++;
    for (; walk->next < walk->count && walk->addresses[walk->next] < region.end; walk->next++)
        if (region.is_code && walk->names[walk->next].length == 0)
            name_address(walk, &region, walk->next);
}

static void read_maps(struct walk *walk)
{
    /* Where main has ended its list is empty. Before Linux 3.17 there is no other. */
    int fd = sys_open("/proc/thread-self/maps", O_RDONLY, 0);
    if (fd < 0)
        fd = sys_open("/proc/self/maps", O_RDONLY, 0);
    if (fd < 0)
        return;
    size_t kept = 0;
    while (walk->next < walk->count && kept < READ_SIZE) {
        long got = sys_call3(SYS_read, fd, walk->bytes + kept, READ_SIZE - kept);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            break;
        size_t size = kept + (size_t)got, done = 0;
        for (const char *end; (end = memchr(walk->bytes + done, '\n', size - done));
             done = (size_t)(end + 1 - walk->bytes))
            take_line(walk, walk->bytes + done, end);
        kept = size - done;
        memmove(walk->bytes, walk->bytes + done, kept);
    }
    sys_close(fd);
}

static int find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                struct buffer *texts)
{
    int error = perf_map_find(addresses, count, names, texts);
    if (error == -ENOMEM)
        return error;
    struct walk *walk = sys_map(sizeof(*walk));
    if (!walk)
        return -ENOMEM;
    walk->addresses = addresses;
    walk->names = names;
    walk->count = count;
    walk->texts = texts;
    read_maps(walk);
    sys_unmap(walk, sizeof(*walk));
    return texts->error;
}

/* ---- what was found ---- */

static struct {
    struct pair_map by_address; /* (address, 0) to its number + 1 */
    struct buffer names;        /* struct symbol_name; length 0: there is none */
    struct buffer texts;
} known;

void jit_names_forget(void)
{
    pair_map_free(&known.by_address);
    buffer_free(&known.names);
    buffer_free(&known.texts);
}

void jit_names_abandon(void)
{
    memset(&known, 0, sizeof(known));
}

static int keep(const uint64_t *addresses, const struct symbol_name *names, size_t count)
{
    uint32_t number = (uint32_t)(known.names.size / sizeof(*names));
    buffer_append(&known.names, names, count * sizeof(*names));
    int error = known.names.error;
    for (size_t i = 0; !error && i < count; i++)
        error = pair_map_add(&known.by_address, addresses[i], 0, ++number);
    return error;
}

/* Of the addresses those `fresh` ones that are not known yet. */
static int find_fresh(const uint64_t *addresses, size_t count, size_t fresh)
{
    size_t size = fresh * (sizeof(uint64_t) + sizeof(struct symbol_name)), found = 0;
    uint64_t *asked = sys_map(size);
    if (!asked)
        return -ENOMEM;
    struct symbol_name *names = (struct symbol_name *)(void *)(asked + fresh);
    for (size_t i = 0; i < count; i++)
        if (!pair_map_get(&known.by_address, addresses[i], 0))
            asked[found++] = addresses[i];
    int error = find(asked, fresh, names, &known.texts);
    if (!error)
        error = keep(asked, names, fresh);
    sys_unmap(asked, size);
    return error;
}

int jit_names_find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                   const char **texts)
{
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++)
        fresh += !pair_map_get(&known.by_address, addresses[i], 0);
    int error = fresh ? find_fresh(addresses, count, fresh) : 0;
    if (error) {
        jit_names_forget(); /* errors of buffers are remembered */
        return error;
    }
    const struct symbol_name *all = (const void *)known.names.data;
    for (size_t i = 0; i < count; i++)
        names[i] = all[pair_map_get(&known.by_address, addresses[i], 0) - 1];
    *texts = (const char *)known.texts.data;
    return 0;
}
