/* crc.h: the checks of debug links (CRC-32) and of xz files (CRC-32, CRC-64): one algorithm, bits
 * reflected, over two polynomials.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_CRC_H
#define LIBAGENT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Table driven, a byte a step. */
struct crc {
    uint64_t table[256];
};

#define CRC_32 0xedb88320u
#define CRC_64 0xc96c5795d7870f42ull

void crc_begin(struct crc *crc, uint64_t polynomial);
/* The check of more bytes: that of none is ~0 (of 32 bits: 0xffffffff), that of all is its
 * complement. */
static inline uint64_t crc_more(const struct crc *crc, uint64_t value, const void *data,
                                size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        value = crc->table[(value ^ bytes[i]) & 0xff] ^ (value >> 8);
    return value;
}

#endif
