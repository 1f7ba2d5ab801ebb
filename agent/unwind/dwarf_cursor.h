/* dwarf_cursor.h: bounded reading of DWARF's encodings. A read past the end sets `bad` and gives
 * 0, so callers check once after several reads.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_DWARF_CURSOR_H
#define LIBAGENT_DWARF_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/compiler.h"

/* Pointer encodings (DW_EH_PE_*). */
enum {
    PE_ABSPTR = 0x00,
    PE_UDATA2 = 0x02,
    PE_UDATA4 = 0x03,
    PE_UDATA8 = 0x04,
    PE_SDATA2 = 0x0a,
    PE_SDATA4 = 0x0b,
    PE_SDATA8 = 0x0c,
    PE_FORMAT = 0x0f,
    PE_PCREL = 0x10,
    PE_DATAREL = 0x30,
    PE_ALIGNED = 0x50,
    PE_BASE = 0x70,
    PE_OMIT = 0xff,
};

struct dwarf_cursor {
    const uint8_t *at, *end;
    uint64_t to_vaddr; /* ELF virtual address of `at` - (uintptr_t)at */
    bool bad;
};

static inline struct dwarf_cursor dwarf_cursor(const uint8_t *data, size_t size, uint64_t vaddr)
{
    return (struct dwarf_cursor){data, data + size, vaddr - (uintptr_t)data, false};
}

static inline uint64_t dwarf_vaddr(const struct dwarf_cursor *c)
{
    return (uintptr_t)c->at + c->to_vaddr;
}

static inline bool dwarf_take(struct dwarf_cursor *c, void *out, size_t size)
{
    if (unlikely((size_t)(c->end - c->at) < size)) {
        c->bad = true;
        c->at = c->end;
        memset(out, 0, size);
        return false;
    }
    memcpy(out, c->at, size);
    c->at += size;
    return true;
}

static inline void dwarf_skip(struct dwarf_cursor *c, uint64_t size)
{
    if (unlikely((uint64_t)(c->end - c->at) < size)) {
        c->bad = true;
        size = (uint64_t)(c->end - c->at);
    }
    c->at += size;
}

#define DWARF_READER(name, type)                                                                   \
    static inline type name(struct dwarf_cursor *c)                                                \
    {                                                                                              \
        type value;                                                                                \
        dwarf_take(c, &value, sizeof(value));                                                      \
        return value;                                                                              \
    }
DWARF_READER(dwarf_u8, uint8_t)
DWARF_READER(dwarf_u16, uint16_t)
DWARF_READER(dwarf_u32, uint32_t)
DWARF_READER(dwarf_u64, uint64_t)
#undef DWARF_READER

/* Ten bytes hold 64 bits; assemblers may pad. Longer ones would make the time of reading depend on
 * more than the number of values. */
enum { LEB_BITS_MAX = 7 * 16 };

static inline uint64_t dwarf_uleb(struct dwarf_cursor *c)
{
    uint64_t value = 0;
    for (unsigned shift = 0; c->at < c->end && shift < LEB_BITS_MAX; shift += 7) {
        uint8_t byte = *c->at++;
        if (likely(shift < 64))
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    c->bad = true;
    return 0;
}

static inline int64_t dwarf_sleb(struct dwarf_cursor *c)
{
    uint64_t value = 0;
    for (unsigned shift = 0; c->at < c->end && shift < LEB_BITS_MAX;) {
        uint8_t byte = *c->at++;
        if (likely(shift < 64))
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (!(byte & 0x80)) {
            if ((byte & 0x40) && shift < 64)
                value |= ~0ull << shift;
            return (int64_t)value;
        }
    }
    c->bad = true;
    return 0;
}

/* A pointer as an ELF virtual address. `data_base` is what datarel counts from. Encodings that
 * no unwind table on Linux needs here (textrel, funcrel, indirect) are bad. */
static inline uint64_t dwarf_pointer(struct dwarf_cursor *c, uint8_t encoding, uint64_t data_base)
{
    uint64_t base;
    switch (encoding & (uint8_t)~PE_FORMAT) {
    case 0:
        base = 0;
        break;
    case PE_PCREL:
        base = dwarf_vaddr(c);
        break;
    case PE_DATAREL:
        base = data_base;
        break;
    default:
        c->bad = true;
        return 0;
    }
    switch (encoding & PE_FORMAT) {
    case PE_ABSPTR:
    case PE_UDATA8:
    case PE_SDATA8:
        return base + dwarf_u64(c);
    case PE_UDATA2:
        return base + dwarf_u16(c);
    case PE_SDATA2:
        return base + (uint64_t)(int64_t)(int16_t)dwarf_u16(c);
    case PE_UDATA4:
        return base + dwarf_u32(c);
    case PE_SDATA4:
        return base + (uint64_t)(int64_t)(int32_t)dwarf_u32(c);
    default:
        c->bad = true;
        return 0;
    }
}

#endif
