/* shipment.h: what a backend makes a request of, and the functions that do.
 *
 * A backend is a pure function from a shipment to a request, in a file of its own; it looks at the
 * header and never inside the profile. The wire forms are those of the servers' sources.
 *
 * Owns: nothing. Context: UP. Locks: none. */
#ifndef LIBAGENT_SHIPMENT_H
#define LIBAGENT_SHIPMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "uploader/blob.h"
#include "uploader/credentials.h"
#include "uploader/http_message.h"
#include "uploader/tags.h"
#include "uploader/upload_url.h"

/* Who the profiles are from. */
struct upload_identity {
    struct tags tags; /* env, version, pod_name, ... */
    char host[64];
    char container[80]; /* its id, 64 hex digits mostly, else empty */
    char entity[96];    /* as Datadog names it: ci-ID, in-INODE, else empty */
    char runtime[37];   /* a UUID, another for each process */
    int pid;
};

struct shipment {
    const struct destination *destination;
    const struct credentials *credentials;
    const struct upload_identity *identity;
    const struct blob_header *header;
    const void *data; /* compressed: gzip, for Datadog zstd */
    size_t size;
    uint64_t random[2]; /* of the profile's id, of a boundary */
};

enum { UUID_SIZE = 37 };
/* Of 16 random bytes, as RFC 4122's version 4. */
void uuid_text(char out[UUID_SIZE], const uint64_t random[2]);
/* What a metric's name is in Pyroscope and Parca: process_cpu, memory, wall, mutex. */
const char *profile_metric(const char *family);
/* A label of a series, made of a tag: the name as Prometheus takes it (letters, digits and '_', no
 * digit first), none twice, none that the receiver keeps for itself. */
struct series_label {
    char name[TAG_MAX + 2];
    const char *value;
    size_t length;
};
/* The label of the tag at *place (begin with the text), and *place behind it. `reserved`: names,
 * NULL at the end. False: no more. */
bool series_label_next(const struct tags *tags, const char **place, const char *const *reserved,
                       struct series_label *label);
/* Adds a label to a series of Pyroscope's or a label set of Parca's, which have the same fields;
 * one without a value is left out. */
void series_label_add(struct buffer *out, const char *name, const char *value, size_t length);

/* Each makes a request, which http_request_begin has begun. What lacks memory is found in it. */
void request_pyroscope(const struct shipment *shipment, struct http_request *request);
void request_parca(const struct shipment *shipment, struct http_request *request);
void request_datadog(const struct shipment *shipment, struct http_request *request);
void request_post(const struct shipment *shipment, struct http_request *request);
/* By the destination's kind. */
void shipment_request(const struct shipment *shipment, struct http_request *request);

#endif
