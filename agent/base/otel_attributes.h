/* otel_attributes.h: OTEL_RESOURCE_ATTRIBUTES, taken apart: "name=value,...", percent-encoded.
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_OTEL_ATTRIBUTES_H
#define LIBAGENT_OTEL_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>

struct otel_attribute {
    char name[204], value[204]; /* decoded, cut where longer */
    size_t name_length, value_length;
};

/* The attribute at *place (begin with the text), and *place behind it. False: no more. */
bool otel_attribute_next(const char **place, struct otel_attribute *attribute);

#endif
