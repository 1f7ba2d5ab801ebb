#include "agent/base/protobuf.h"

#include <errno.h>

enum wire_type { WIRE_VARINT = 0, WIRE_BYTES = 2 };

enum {
    VARINT_MAX = 10,  /* bytes of a 64-bit varint */
    LENGTH_BYTES = 4, /* of a nested message: 28 bits */
};

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

void pb_varint(struct buffer *out, uint64_t value)
{
    uint8_t *room = buffer_room(out, VARINT_MAX);
    if (!room)
        return;
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        room[size++] = (uint8_t)(value | 0x80);
    room[size++] = (uint8_t)value;
    out->size += size;
}

static void put_tag(struct buffer *out, unsigned field, enum wire_type type)
{
    pb_varint(out, (uint64_t)field << 3 | type);
}

void pb_uint(struct buffer *out, unsigned field, uint64_t value)
{
    if (value == 0)
        return;
    put_tag(out, field, WIRE_VARINT);
    pb_varint(out, value);
}

void pb_bytes(struct buffer *out, unsigned field, const void *data, size_t size)
{
    put_tag(out, field, WIRE_BYTES);
    pb_varint(out, size);
    buffer_append(out, data, size);
}

void pb_packed(struct buffer *out, unsigned field, const uint64_t *values, size_t count)
{
    if (count == 0)
        return;
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += varint_size(values[i]);
    put_tag(out, field, WIRE_BYTES);
    pb_varint(out, size);
    for (size_t i = 0; i < count; i++)
        pb_varint(out, values[i]);
}

size_t pb_begin(struct buffer *out, unsigned field)
{
    put_tag(out, field, WIRE_BYTES);
    if (buffer_room(out, LENGTH_BYTES))
        out->size += LENGTH_BYTES;
    return out->size;
}

void pb_end(struct buffer *out, size_t mark)
{
    if (out->error)
        return;
    size_t length = out->size - mark;
    if (length >= (size_t)1 << (7 * LENGTH_BYTES)) {
        out->error = -EMSGSIZE;
        return;
    }
    uint8_t *at = out->data + mark - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES - 1; i++, length >>= 7)
        at[i] = (uint8_t)(length | 0x80);
    at[LENGTH_BYTES - 1] = (uint8_t)length;
}
