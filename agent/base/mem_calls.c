/* mem_calls.c: the functions on memory and text that the agent, the archives in it, and compilers
 * by themselves, call. Hidden, so that in libagent.so these calls stay within it: by their names
 * they would lead to whoever defines them first. Under a sanitizer that is its check, which took
 * the agent's tables, whose words are atomic, for races of the program's, and which reported from
 * threads that were ending.
 *
 * As ISO C has them. Owns: nothing. Context: any. Locks: none. Suites use libc's. */
#ifndef LIBAGENT_TEST

#include <stdint.h>
#include <string.h>

#include "agent/base/compiler.h"

typedef struct {
    uint64_t value;
} __attribute__((packed, may_alias)) any_word;

/* From here on the processor's own loop is faster, where it has one. */
enum { WORD = sizeof(any_word), LONG = 256 };

/* Compilers know what these loops are, and would make a call of it: to themselves. */
#define NO_CALL(pointer) __asm__("" : "+r"(pointer))

static void copy_up(unsigned char *to, const unsigned char *from, size_t size)
{
#ifdef __x86_64__
    if (size >= LONG) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
        return;
    }
#endif
    for (; size >= WORD; size -= WORD, to += WORD, from += WORD) {
        ((any_word *)to)->value = ((const any_word *)from)->value;
        NO_CALL(to);
    }
    for (; size; size--) {
        *to++ = *from++;
        NO_CALL(to);
    }
}

static void copy_down(unsigned char *to, const unsigned char *from, size_t size)
{
    for (; size >= WORD; size -= WORD) {
        ((any_word *)(to + size - WORD))->value = ((const any_word *)(from + size - WORD))->value;
        NO_CALL(to);
    }
    for (; size; size--) {
        to[size - 1] = from[size - 1];
        NO_CALL(to);
    }
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's names are reserved */
HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    copy_up(to, from, size);
    return to;
}

HIDDEN void *memmove(void *to, const void *from, size_t size)
{
    if ((uintptr_t)to - (uintptr_t)from >= size)
        copy_up(to, from, size);
    else
        copy_down(to, from, size);
    return to;
}

HIDDEN void *memset(void *to, int value, size_t size)
{
    unsigned char *at = to;
#ifdef __x86_64__
    if (size >= LONG) {
        __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(value) : "memory");
        return to;
    }
#endif
    for (uint64_t word = (unsigned char)value * (UINT64_MAX / UINT8_MAX); size >= WORD;
         size -= WORD, at += WORD) {
        ((any_word *)at)->value = word;
        NO_CALL(at);
    }
    for (; size; size--) {
        *at++ = (unsigned char)value;
        NO_CALL(at);
    }
    return to;
}

HIDDEN int memcmp(const void *one, const void *other, size_t size)
{
    const unsigned char *a = one, *b = other;
    for (; size >= WORD && ((const any_word *)a)->value == ((const any_word *)b)->value;
         size -= WORD, a += WORD, b += WORD)
        continue;
    for (; size; size--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}

/* clang's, where only equality is asked. */
HIDDEN int bcmp(const void *one, const void *other, size_t size)
{
    return memcmp(one, other, size);
}

HIDDEN void *memchr(const void *memory, int value, size_t size)
{
    const unsigned char *at = memory;
    for (; size; size--, at++)
        if (*at == (unsigned char)value)
            return (void *)(uintptr_t)at;
    return NULL;
}

HIDDEN size_t strlen(const char *text)
{
    const char *end = text;
    while (*end) {
        end++;
        NO_CALL(end);
    }
    return (size_t)(end - text);
}

HIDDEN char *strchr(const char *text, int value)
{
    for (; *text != (char)value; text++)
        if (!*text)
            return NULL;
    return (char *)(uintptr_t)text;
}

HIDDEN int strcmp(const char *one, const char *other)
{
    return strncmp(one, other, SIZE_MAX);
}

HIDDEN int strncmp(const char *one, const char *other, size_t size)
{
    for (; size; size--, one++, other++) {
        if (*one != *other)
            return (unsigned char)*one - (unsigned char)*other;
        if (!*one)
            return 0;
    }
    return 0;
}

HIDDEN char *strstr(const char *text, const char *part)
{
    const size_t size = strlen(part);
    for (; strncmp(text, part, size) != 0; text++)
        if (!*text)
            return NULL;
    return (char *)(uintptr_t)text;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
#endif
