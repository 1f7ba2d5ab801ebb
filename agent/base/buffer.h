/* buffer.h: bytes that grow, in their own mapping (mremap), outside the app's heap.
 * A failed growth is remembered: later appends do nothing, `error` tells it at the end.
 * Owns: nothing; one thread uses a buffer at a time. Context: INIT, TICK, UP. Locks: none. */
#ifndef LIBAGENT_BUFFER_H
#define LIBAGENT_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

struct buffer {
    uint8_t *data;
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes mapped */
    int error;       /* 0, -ENOMEM, or what a writer on top of it put there */
};

void buffer_append(struct buffer *buffer, const void *data, size_t size);
/* A text of `length` and the 0 behind it. Where it lies; beyond 4 GiB, which no place tells, the
 * buffer's error is -ENOMEM. */
uint32_t buffer_append_text(struct buffer *buffer, const char *text, size_t length);
/* Room for `size` more bytes at the end, not yet in use; NULL on failure. */
void *buffer_room(struct buffer *buffer, size_t size) MUST_USE;
void buffer_free(struct buffer *buffer);

#endif
