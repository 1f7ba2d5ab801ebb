/* address_search.h: where a value stands among ascending addresses.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_ADDRESS_SEARCH_H
#define LIBAGENT_ADDRESS_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The first address that is not below `value`; `count`: all are. */
static inline size_t address_lower_bound(const uint64_t *addresses, size_t count, uint64_t value)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (addresses[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
