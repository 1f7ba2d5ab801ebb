/* request_pyroscope.c: PushRequest of push.v1 (Pyroscope's api/push/v1/push.proto) by Connect. The
 * body is not compressed as a whole: the profile in it is. */
#include "agent/base/protobuf.h"
#include "uploader/shipment.h"

#include <string.h>

#include "agent/base/format.h"

enum {
    PUSH_SERIES = 1,
    SERIES_SAMPLES = 2,
    SAMPLE_PROFILE = 1,
    SAMPLE_ID = 2,
    /* The server takes 30 labels in all. */
    TAGS_MAX = 24,
};

static void add_labels(const struct shipment *shipment, struct buffer *out)
{
    const struct upload_identity *identity = shipment->identity;
    const char *metric = profile_metric(shipment->header->family);
    const char *service = shipment->header->service;
    series_label_add(out, "__name__", metric, strlen(metric));
    series_label_add(out, "service_name", service, strlen(service));
    /* Values are of the window alone; without this the server takes them for sums since the start
     * and stores differences. */
    series_label_add(out, "__delta__", "false", 5);
    series_label_add(out, "host", identity->host, strlen(identity->host));
    static const char *const reserved[] = {"service_name", "host", NULL};
    struct series_label label;
    const char *place = identity->tags.text;
    for (int i = 0; i < TAGS_MAX && series_label_next(&identity->tags, &place, reserved, &label);
         i++)
        series_label_add(out, label.name, label.value, label.length);
}

void request_pyroscope(const struct shipment *shipment, struct http_request *request)
{
    char id[UUID_SIZE];
    uuid_text(id, shipment->random);
    format(request->url, sizeof(request->url), "%s/push.v1.PusherService/Push",
           shipment->destination->url);
    http_add_header(request, "Content-Type: application/proto");
    credentials_add_headers(shipment->credentials, request);
    struct buffer *out = &request->body;
    size_t series = pb_begin(out, PUSH_SERIES);
    add_labels(shipment, out);
    size_t sample = pb_begin(out, SERIES_SAMPLES);
    pb_bytes(out, SAMPLE_PROFILE, shipment->data, shipment->size);
    pb_bytes(out, SAMPLE_ID, id, strlen(id));
    pb_end(out, sample);
    pb_end(out, series);
}
