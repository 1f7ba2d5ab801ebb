#include "agent/export/crc.h"

void crc_begin(struct crc *crc, uint64_t polynomial)
{
    for (uint64_t i = 0; i < 256; i++) {
        uint64_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (value & 1 ? polynomial : 0);
        crc->table[i] = value;
    }
}
