/* x86_code.h: the few instructions of x86-64 that tell how a function began.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_X86_CODE_H
#define LIBAGENT_X86_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { X86_PUSH = 0x50, X86_POP = 0x58 };

/* The length of endbr64 at the beginning of `size` bytes of code; 0: none, or nothing behind it. */
static inline size_t x86_endbr64(const uint8_t *code, size_t size)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    return size > sizeof(endbr64) && memcmp(code, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64)
                                                                                 : 0;
}

/* The length of a push or pop (`base`) of a register at code[at], 0: another instruction. */
static inline size_t x86_push_or_pop(const uint8_t *code, size_t at, size_t size, uint8_t base,
                                     bool *is_rbp)
{
    size_t prefix = at < size && code[at] == 0x41; /* r8 to r15 */
    if (at + prefix >= size || (code[at + prefix] & 0xf8) != base)
        return 0;
    *is_rbp = !prefix && code[at] == base + 5;
    return prefix + 1;
}

#endif
