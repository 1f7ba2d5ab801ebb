/* delivery.h: one profile on its way to one destination: the request is made and posted.
 *
 * Owns: nothing. Context: UP. Locks: none. */
#ifndef LIBAGENT_DELIVERY_H
#define LIBAGENT_DELIVERY_H

#include "uploader/http_message.h"
#include "uploader/upload_config.h"

/* The entry stays. Time and `stop` as http_client_post has them. */
void delivery_post(const struct upload_config *config, size_t index,
                   const struct spool_entry *entry, uint64_t deadline_ns, bool (*stop)(void),
                   struct http_response *response);

#endif
