/* third_party.c: the heap of zstd and zlib, which is none.
 *
 * Both name malloc, calloc and free for callers who bring no allocator; uploader/compress.c always
 * brings one, so these are never called. The Makefile renames those names in the archives to the
 * ones below, so that libagent.so, which itself defines malloc for the app, never serves its own
 * compressors from it. Should one be called all the same, it is refused, which both libraries
 * report as an error.
 *
 * On aarch64 the archives' stack protector reads its guard from a variable of the loader's, which
 * would be a second library needed; it gets one here, of bytes that end strings.
 *
 * Owns: nothing. Context: UP. Locks: none. */
#include <stddef.h>
#include <stdint.h>

#if defined(__aarch64__)
extern const uintptr_t third_party_stack_guard;
const uintptr_t third_party_stack_guard = 0x000aff0d0a00ff0d;
#endif

void *third_party_malloc(size_t size);
void *third_party_calloc(size_t count, size_t size);
void third_party_free(void *block);

void *third_party_malloc(size_t size)
{
    (void)size;
    return NULL;
}

void *third_party_calloc(size_t count, size_t size)
{
    (void)count;
    (void)size;
    return NULL;
}

void third_party_free(void *block)
{
    (void)block;
}
