/* request_parca.c: WriteRawRequest of parca.profilestore.v1alpha1 by gRPC-Web, which is plain
 * HTTP/1.1: a frame of 5 bytes (0, length) before the message. */
#include "agent/base/protobuf.h"
#include "uploader/shipment.h"

#include <string.h>

#include "agent/base/format.h"

enum {
    REQUEST_SERIES = 2,
    REQUEST_NORMALIZED = 3,
    SERIES_LABEL_SET = 1,
    SERIES_SAMPLES = 2,
    SAMPLE_PROFILE = 1,
    FRAME = 5,
};

static void add_labels(const struct shipment *shipment, struct buffer *out)
{
    const struct upload_identity *identity = shipment->identity;
    const char *metric = profile_metric(shipment->header->family);
    const char *service = shipment->header->service;
    series_label_add(out, "__name__", metric, strlen(metric));
    series_label_add(out, "job", service, strlen(service));
    series_label_add(out, "node", identity->host, strlen(identity->host));
    /* A name that comes twice is refused with the profile. */
    static const char *const reserved[] = {"job", "node", NULL};
    struct series_label label;
    const char *place = identity->tags.text;
    while (series_label_next(&identity->tags, &place, reserved, &label))
        series_label_add(out, label.name, label.value, label.length);
}

void request_parca(const struct shipment *shipment, struct http_request *request)
{
    format(request->url, sizeof(request->url),
           "%s/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
           shipment->destination->url);
    http_add_header(request, "Content-Type: application/grpc-web+proto");
    http_add_header(request, "Accept: application/grpc-web+proto");
    http_add_header(request, "X-Grpc-Web: 1");
    credentials_add_headers(shipment->credentials, request);
    struct buffer *out = &request->body;
    static const uint8_t no_length[FRAME];
    buffer_append(out, no_length, FRAME);
    size_t series = pb_begin(out, REQUEST_SERIES);
    size_t labels = pb_begin(out, SERIES_LABEL_SET);
    add_labels(shipment, out);
    pb_end(out, labels);
    size_t sample = pb_begin(out, SERIES_SAMPLES);
    pb_bytes(out, SAMPLE_PROFILE, shipment->data, shipment->size);
    pb_end(out, sample);
    pb_end(out, series);
    pb_uint(out, REQUEST_NORMALIZED, 1);
    uint32_t length = __builtin_bswap32((uint32_t)(out->size - FRAME));
    if (!out->error)
        memcpy(out->data + 1, &length, sizeof(length));
}
