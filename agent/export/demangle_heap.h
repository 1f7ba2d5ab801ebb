/* demangle_heap.h: the heap that libiberty's demanglers get instead of malloc: a bump allocator
 * over memory of the caller's, empty again before each name.
 *
 * The build renames malloc, realloc, free, __sprintf_chk and __snprintf_chk in those objects to
 * the functions here, so that they neither touch the app's heap nor need what musl lacks.
 *
 * Owns: the state of the heap, one for the process. Context: INIT, TICK, under LOCK_FLUSH (one
 * demangling at a time). Locks: none. */
#ifndef LIBAGENT_DEMANGLE_HEAP_H
#define LIBAGENT_DEMANGLE_HEAP_H

#include <stddef.h>

#include "agent/base/compiler.h"

/* From now on memory comes from [base, base + size), aligned to 16. `exhausted` is called when
 * that is not enough; when it returns (or is NULL) the allocation gives NULL. */
void demangle_heap_use(void *base, size_t size, void (*exhausted)(void));

void *demangle_malloc(size_t size);
void *demangle_realloc(void *old, size_t size);
void demangle_free(void *old);
int demangle_sprintf_chk(char *out, int flag, size_t size, const char *pattern, ...)
    PRINTF_LIKE(4, 5);
int demangle_snprintf_chk(char *out, size_t most, int flag, size_t size, const char *pattern, ...)
    PRINTF_LIKE(5, 6);

#endif
