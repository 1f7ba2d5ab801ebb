#include "agent/export/demangle_heap.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/format.h"

enum { ALIGNMENT = 16 }; /* also the room for a block's size in front of it */

static struct {
    uint8_t *base;
    size_t size, used;
    void (*exhausted)(void);
} heap;

void demangle_heap_use(void *base, size_t size, void (*exhausted)(void))
{
    heap.base = base;
    heap.size = size;
    heap.used = 0;
    heap.exhausted = exhausted;
}

void *demangle_malloc(size_t size)
{
    size_t room = heap.size - heap.used;
    if (room < ALIGNMENT || size > room - ALIGNMENT) {
        if (heap.exhausted)
            heap.exhausted();
        return NULL;
    }
    uint8_t *block = heap.base + heap.used + ALIGNMENT;
    memcpy(block - ALIGNMENT, &size, sizeof(size));
    heap.used += MIN_OF(ALIGNMENT + ALIGN_UP(size, (size_t)ALIGNMENT), room);
    return block;
}

void *demangle_realloc(void *old, size_t size)
{
    void *block = demangle_malloc(size);
    if (block && old) {
        size_t old_size;
        memcpy(&old_size, (uint8_t *)old - ALIGNMENT, sizeof(old_size));
        memcpy(block, old, MIN_OF(old_size, size));
    }
    return block;
}

void demangle_free(void *old)
{
    (void)old;
}

static int print(char *out, size_t size, const char *pattern, va_list list)
{
    return (int)format_list(out, size, pattern, list);
}

int demangle_sprintf_chk(char *out, int flag, size_t size, const char *pattern, ...)
{
    (void)flag;
    va_list list;
    va_start(list, pattern);
    int length = print(out, size, pattern, list);
    va_end(list);
    return length;
}

int demangle_snprintf_chk(char *out, size_t most, int flag, size_t size, const char *pattern, ...)
{
    (void)flag;
    va_list list;
    va_start(list, pattern);
    int length = print(out, MIN_OF(most, size), pattern, list);
    va_end(list);
    return length;
}
