#include "uploader/delivery.h"

#include <string.h>

#include "uploader/http_client.h"
#include "uploader/shipment.h"

void delivery_post(const struct upload_config *config, size_t index,
                   const struct spool_entry *entry, uint64_t deadline_ns, bool (*stop)(void),
                   struct http_response *response)
{
    static struct credentials credentials; /* 10 KiB, of one thread */
    upload_config_credentials(config, index, &credentials);
    const struct shipment shipment = {
        .destination = &config->destinations[index],
        .credentials = &credentials,
        .identity = &entry->identity,
        .header = &entry->header,
        .data = entry->body.data,
        .size = entry->body.size,
        .random = {entry->random[0], entry->random[1]},
    };
    struct http_request request;
    http_request_begin(&request);
    shipment_request(&shipment, &request);
    if (http_request_error(&request))
        *response = (struct http_response){.result = HTTP_NOT_SENT, .reason = "no memory"};
    else
        http_client_post(&request, deadline_ns, stop, response);
    http_request_free(&request);
    memset(&credentials, 0, sizeof(credentials));
}
