#include "uploader/spool_head.h"

#include <string.h>

#include "agent/base/format.h"
#include "agent/base/option_parse.h"

static const char magic[] = "libagent spool 1\n";

/* FNV-1a, 64 bits: files are torn, not forged. */
static uint64_t sum_bytes(uint64_t sum, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3ull;
    return sum;
}

static const uint64_t sum_start = 0xcbf29ce484222325ull;

size_t spool_head_make(const struct spool_entry *entry, char out[SPOOL_HEAD_SIZE])
{
    const struct blob_header *header = &entry->header;
    const struct upload_identity *identity = &entry->identity;
    size_t used = format(
        out, SPOOL_HEAD_SIZE,
        "%skind %s\nfamily %s\nservice %s\nstart %lu\nend %lu\nsequence %u\npid %d\nruntime %s\n"
        "host %s\ncontainer %s\nentity %s\ntags %s\nplain %lu\nid %lu\nid2 %lu\nsize %zu\n",
        magic, backend_name(entry->kind), header->family, header->service, header->start_unix_ns,
        header->end_unix_ns, header->sequence, identity->pid, identity->runtime, identity->host,
        identity->container, identity->entity, identity->tags.text, entry->plain_size,
        entry->random[0], entry->random[1], entry->body.size);
    uint64_t sum = sum_bytes(sum_start, out, used);
    sum = sum_bytes(sum, entry->body.data, entry->body.size);
    return used + format(out + used, SPOOL_HEAD_SIZE - used, "sum %lu\n\n", sum);
}

/* Takes the line "name value" at *place. False: another stands there. */
static bool take_text(const char **place, const char *end, const char *name, char *out, size_t size)
{
    size_t length = strlen(name);
    const char *p = *place;
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    if (!stop || (size_t)(stop - p) < length + 1 || memcmp(p, name, length) != 0 ||
        p[length] != ' ' || (size_t)(stop - p) - length > size)
        return false;
    p += length + 1;
    memcpy(out, p, (size_t)(stop - p));
    out[stop - p] = 0;
    *place = stop + 1;
    return true;
}

static bool take_number(const char **place, const char *end, const char *name, uint64_t *value)
{
    char text[24];
    return take_text(place, end, name, text, sizeof(text)) && parse_count(text, value);
}

static bool take_kind(const char **place, const char *end, enum backend_kind *kind)
{
    char text[16];
    if (!take_text(place, end, "kind", text, sizeof(text)))
        return false;
    for (int i = BACKEND_PYROSCOPE; i <= BACKEND_POST; i++) {
        *kind = (enum backend_kind)i;
        if (strcmp(backend_name(*kind), text) == 0)
            return true;
    }
    return false;
}

static bool take_identity(const char **place, const char *end, struct upload_identity *identity)
{
    uint64_t pid;
    if (!take_number(place, end, "pid", &pid) || pid > INT32_MAX)
        return false;
    identity->pid = (int)pid;
    bool all =
        take_text(place, end, "runtime", identity->runtime, sizeof(identity->runtime)) &&
        take_text(place, end, "host", identity->host, sizeof(identity->host)) &&
        take_text(place, end, "container", identity->container, sizeof(identity->container)) &&
        take_text(place, end, "entity", identity->entity, sizeof(identity->entity)) &&
        take_text(place, end, "tags", identity->tags.text, sizeof(identity->tags.text));
    identity->tags.length = strlen(identity->tags.text);
    return all;
}

size_t spool_head_parse(const char *file, size_t size, struct spool_entry *entry)
{
    const char *place = file + sizeof(magic) - 1;
    const char *end = file + MIN_OF(size, (size_t)SPOOL_HEAD_SIZE);
    struct blob_header *header = &entry->header;
    uint64_t sequence, body, sum;
    if (size < sizeof(magic) || memcmp(file, magic, sizeof(magic) - 1) != 0 ||
        !take_kind(&place, end, &entry->kind) ||
        !take_text(&place, end, "family", header->family, sizeof(header->family)) ||
        !take_text(&place, end, "service", header->service, sizeof(header->service)) ||
        !take_number(&place, end, "start", &header->start_unix_ns) ||
        !take_number(&place, end, "end", &header->end_unix_ns) ||
        !take_number(&place, end, "sequence", &sequence) ||
        !take_identity(&place, end, &entry->identity) ||
        !take_number(&place, end, "plain", &entry->plain_size) ||
        !take_number(&place, end, "id", &entry->random[0]) ||
        !take_number(&place, end, "id2", &entry->random[1]) ||
        !take_number(&place, end, "size", &body))
        return 0;
    header->sequence = (uint32_t)sequence;
    size_t summed = (size_t)(place - file);
    if (!take_number(&place, end, "sum", &sum) || place == end || *place++ != '\n')
        return 0;
    size_t head = (size_t)(place - file);
    if (size - head != body ||
        sum_bytes(sum_bytes(sum_start, file, summed), file + head, body) != sum)
        return 0;
    return head;
}
