#include "agent/base/buffer.h"

#include <errno.h>
#include <linux/mman.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/sys.h"

#define FIRST_CAPACITY ((size_t)64 << 10)

static bool grow(struct buffer *buffer, size_t need)
{
    size_t capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY;
    while (capacity < need) {
        if (capacity > SIZE_MAX / 2)
            return false;
        capacity *= 2;
    }
    uint8_t *data;
    if (buffer->data) {
        long moved = sys_call4(SYS_mremap, (uintptr_t)buffer->data, buffer->capacity, capacity,
                               MREMAP_MAYMOVE);
        data = moved < 0 && moved > -4096 ? NULL : (uint8_t *)(uintptr_t)moved;
    } else {
        data = sys_map(capacity);
    }
    if (!data)
        return false;
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void *buffer_room(struct buffer *buffer, size_t size)
{
    if (buffer->error)
        return NULL;
    bool fits = buffer->data && size <= buffer->capacity - buffer->size;
    if (!fits && (size > SIZE_MAX - buffer->size || !grow(buffer, buffer->size + size))) {
        buffer->error = -ENOMEM;
        return NULL;
    }
    return buffer->data + buffer->size;
}

void buffer_append(struct buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return;
    void *room = buffer_room(buffer, size);
    if (!room)
        return;
    memcpy(room, data, size);
    buffer->size += size;
}

uint32_t buffer_append_text(struct buffer *buffer, const char *text, size_t length)
{
    uint32_t at = (uint32_t)buffer->size;
    buffer_append(buffer, text, length + 1);
    if (buffer->size > UINT32_MAX)
        buffer->error = -ENOMEM;
    return at;
}

void buffer_free(struct buffer *buffer)
{
    sys_unmap(buffer->data, buffer->capacity);
    *buffer = (struct buffer){0};
}
