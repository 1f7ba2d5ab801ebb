/* protobuf.h: a streaming writer of protocol buffers (wire format of proto3) into a buffer.
 * Nested messages are written into their own small buffer first, or by pb_begin/pb_end, which
 * leave room for a length of fixed width (padded varint, legal for every reader).
 * Owns: nothing. Context: INIT, TICK. Locks: none. */
#ifndef LIBAGENT_PROTOBUF_H
#define LIBAGENT_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"

void pb_varint(struct buffer *out, uint64_t value);
/* Field of type uint64/int64/bool; 0 is left out, as proto3 does. */
void pb_uint(struct buffer *out, unsigned field, uint64_t value);
void pb_bytes(struct buffer *out, unsigned field, const void *data, size_t size);
/* Packed repeated int64/uint64. */
void pb_packed(struct buffer *out, unsigned field, const uint64_t *values, size_t count);
/* Begins a nested message; returns a mark for pb_end. Messages up to 2^28 - 1 bytes
 * (more: pb_end makes the buffer's error -EMSGSIZE). */
size_t pb_begin(struct buffer *out, unsigned field);
void pb_end(struct buffer *out, size_t mark);

#endif
