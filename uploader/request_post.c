/* request_post.c: the profile as it would stand in a file is the body; what the file's name tells,
 * and more, is in headers. */
#include "uploader/shipment.h"

#include "agent/base/format.h"

void request_post(const struct shipment *shipment, struct http_request *request)
{
    const struct blob_header *header = shipment->header;
    const struct upload_identity *identity = shipment->identity;
    format(request->url, sizeof(request->url), "%s", shipment->destination->url);
    http_add_header(request, "Content-Type: application/octet-stream");
    http_add_header(request, "X-Libagent-Service: %s", header->service);
    http_add_header(request, "X-Libagent-Family: %s", header->family);
    http_add_header(request, "X-Libagent-Start-Ns: %llu",
                    (unsigned long long)header->start_unix_ns);
    http_add_header(request, "X-Libagent-End-Ns: %llu", (unsigned long long)header->end_unix_ns);
    http_add_header(request, "X-Libagent-Sequence: %u", header->sequence);
    http_add_header(request, "X-Libagent-Process: %s/%d", identity->runtime, identity->pid);
    if (identity->host[0])
        http_add_header(request, "X-Libagent-Host: %s", identity->host);
    if (identity->tags.length)
        http_add_header(request, "X-Libagent-Tags: %s", identity->tags.text);
    credentials_add_headers(shipment->credentials, request);
    buffer_append(&request->body, shipment->data, shipment->size);
}
