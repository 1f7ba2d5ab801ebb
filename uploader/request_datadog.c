/* request_datadog.c: multipart/form-data with event.json (version 4) and the profile, to the agent
 * (/profiling/v1/input, also by its unix socket) or to the intake, which wants the key. */
#include "uploader/shipment.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/utc_time.h"

enum { EVENT_SIZE = 8192, TIME_SIZE = 40 };

static void format_time(char out[TIME_SIZE], uint64_t unix_ns)
{
    char seconds[UTC_TIME_SIZE];
    utc_time(seconds, unix_ns);
    format(out, TIME_SIZE, "%s.%09uZ", seconds, (unsigned)(unix_ns % NS_PER_SEC));
}

/* Text in a JSON string. What would need an escape of another kind is not in it: tags, services and
 * hosts are printable. */
static size_t add_json(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (; *text && used + 2 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        out[used++] = *text;
    }
    out[used] = 0;
    return used;
}

/* A colon at the end of a tag would be dropped, and commas separate. */
static void add_tag(char *out, size_t *used, const char *name, const char *value, size_t length)
{
    char tag[TAG_MAX + 1];
    size_t size = format(tag, sizeof(tag), "%s:%.*s", name, (int)length, value);
    for (size_t i = 0; i < size; i++)
        if (tag[i] == ',')
            tag[i] = '_';
    if (length > 0 && *used + 2 * size + 2 < EVENT_SIZE - 1024) {
        out[(*used)++] = ',';
        *used += add_json(out + *used, EVENT_SIZE - *used, tag);
    }
}

static void make_event(const struct shipment *shipment, char out[EVENT_SIZE])
{
    const struct blob_header *header = shipment->header;
    const struct upload_identity *identity = shipment->identity;
    char start[TIME_SIZE], end[TIME_SIZE];
    format_time(start, header->start_unix_ns);
    format_time(end, header->end_unix_ns);
    size_t used = format(out, EVENT_SIZE,
                         "{\"attachments\":[\"profile.pprof\"],\"tags_profiler\":\"language:native,"
                         "runtime:native,runtime-id:%s,process_id:%d,profile_seq:%u",
                         identity->runtime, identity->pid, header->sequence);
    add_tag(out, &used, "service", header->service, strlen(header->service));
    const char *place = identity->tags.text, *name, *value;
    size_t name_length, length;
    while (tags_next(&place, &name, &name_length, &value, &length)) {
        char copy[TAG_MAX + 1];
        format(copy, sizeof(copy), "%.*s", (int)name_length, name);
        if (strcmp(copy, "service") != 0)
            add_tag(out, &used, copy, value, length);
    }
    format(out + used, EVENT_SIZE - used,
           "\",\"start\":\"%s\",\"end\":\"%s\",\"family\":\"native\",\"version\":\"4\","
           "\"endpoint_counts\":null,\"internal\":{},\"info\":{}}",
           start, end);
}

static void add_part(struct buffer *out, const char *boundary, const char *name, const char *file,
                     const char *type, const void *data, size_t size)
{
    char head[512];
    size_t length = format(head, sizeof(head),
                           "--%s\r\nContent-Disposition: form-data; name=\"%s\"; "
                           "filename=\"%s\"\r\nContent-Type: %s\r\n\r\n",
                           boundary, name, file, type);
    buffer_append(out, head, length);
    buffer_append(out, data, size);
    buffer_append(out, "\r\n", 2);
}

static void make_url(const struct destination *destination, char *out)
{
    /* Behind "https://": a path means that the whole address is given. */
    const char *host = strstr(destination->url, "//") + 2;
    const char *path = strchr(host, '/')        ? ""
                       : destination->is_intake ? "/api/v2/profile"
                                                : "/profiling/v1/input";
    format(out, HTTP_URL_SIZE, "%s%s", destination->url, path);
}

void request_datadog(const struct shipment *shipment, struct http_request *request)
{
    const struct upload_identity *identity = shipment->identity;
    char boundary[UUID_SIZE], event[EVENT_SIZE];
    uuid_text(boundary, shipment->random);
    make_event(shipment, event);
    make_url(shipment->destination, request->url);
    http_add_header(request, "Content-Type: multipart/form-data; boundary=%s", boundary);
    http_add_header(request, "DD-EVP-ORIGIN: libagent");
    http_add_header(request, "DD-EVP-ORIGIN-VERSION: 0.1");
    if (identity->container[0])
        http_add_header(request, "Datadog-Container-ID: %s", identity->container);
    if (identity->entity[0])
        http_add_header(request, "Datadog-Entity-ID: %s", identity->entity);
    const char *key = shipment->credentials->text[CREDENTIAL_KEY];
    if (shipment->destination->is_intake && key[0])
        http_add_header(request, "DD-API-KEY: %s", key);
    struct buffer *out = &request->body;
    add_part(out, boundary, "event", "event.json", "application/json", event, strlen(event));
    add_part(out, boundary, "profile.pprof", "profile.pprof", "application/octet-stream",
             shipment->data, shipment->size);
    char tail[UUID_SIZE + 8];
    buffer_append(out, tail, format(tail, sizeof(tail), "--%s--\r\n", boundary));
}
