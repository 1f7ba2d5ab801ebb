#include "uploader/shipment.h"

#include <string.h>

#include "agent/base/format.h"
#include "agent/base/protobuf.h"

void uuid_text(char out[UUID_SIZE], const uint64_t random[2])
{
    uint64_t high = (random[0] & ~0xf000ull) | 0x4000;
    uint64_t low = (random[1] & ~(3ull << 62)) | 2ull << 62;
    format(out, UUID_SIZE, "%08x-%04x-%04x-%04x-%04x%08x", (unsigned)(high >> 32),
           (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
           (unsigned)(low >> 32 & 0xffff), (unsigned)low);
}

const char *profile_metric(const char *family)
{
    static const struct {
        const char *family, *metric;
    } metrics[] = {{"cpu", "process_cpu"}, {"heap", "memory"}, {"lock", "mutex"}};
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
        if (strcmp(family, metrics[i].family) == 0)
            return metrics[i].metric;
    return family;
}

static void make_name(char out[TAG_MAX + 2], const char *name, size_t length)
{
    size_t used = 0;
    if (length > 0 && name[0] >= '0' && name[0] <= '9')
        out[used++] = '_';
    for (size_t i = 0; i < length && used < TAG_MAX + 1; i++) {
        char c = name[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        out[used++] = (char)(is_word ? c : '_');
    }
    out[used] = 0;
}

/* Has a tag before `end` the same name? Two tags can become one label. */
static bool is_repeated(const struct tags *tags, const char *end, const char *name)
{
    const char *place = tags->text, *other, *value;
    char other_name[TAG_MAX + 2];
    size_t other_length, value_length;
    while (tags_next(&place, &other, &other_length, &value, &value_length) && place < end) {
        make_name(other_name, other, other_length);
        if (strcmp(other_name, name) == 0)
            return true;
    }
    return false;
}

static bool is_reserved(const char *const *reserved, const char *name)
{
    for (; *reserved; reserved++)
        if (strcmp(*reserved, name) == 0)
            return true;
    return false;
}

bool series_label_next(const struct tags *tags, const char **place, const char *const *reserved,
                       struct series_label *label)
{
    const char *name;
    size_t length;
    while (tags_next(place, &name, &length, &label->value, &label->length)) {
        make_name(label->name, name, length);
        /* Two underscores are Prometheus's own. */
        if (strncmp(label->name, "__", 2) != 0 && !is_reserved(reserved, label->name) &&
            !is_repeated(tags, *place, label->name))
            return true;
    }
    return false;
}

void series_label_add(struct buffer *out, const char *name, const char *value, size_t length)
{
    enum { LABELS = 1, LABEL_NAME = 1, LABEL_VALUE = 2 };
    if (!length)
        return;
    size_t mark = pb_begin(out, LABELS);
    pb_bytes(out, LABEL_NAME, name, strlen(name));
    pb_bytes(out, LABEL_VALUE, value, length);
    pb_end(out, mark);
}

void shipment_request(const struct shipment *shipment, struct http_request *request)
{
    static void (*const makers[])(const struct shipment *, struct http_request *) = {
        [BACKEND_PYROSCOPE] = request_pyroscope,
        [BACKEND_PARCA] = request_parca,
        [BACKEND_DATADOG] = request_datadog,
        [BACKEND_POST] = request_post,
    };
    const struct destination *destination = shipment->destination;
    memcpy(request->socket, destination->socket, sizeof(destination->socket));
    http_add_header(request, "User-Agent: libagent");
    makers[destination->kind](shipment, request);
}
