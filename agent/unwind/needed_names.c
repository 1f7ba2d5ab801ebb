#include "agent/unwind/needed_names.h"

#include "agent/base/format.h"

static uint32_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const char *p = base_name(name); *p; p++)
        hash = (hash ^ (uint8_t)*p) * 0x100000001b3ull;
    return (uint32_t)(hash ^ hash >> 32) | 1; /* 0 is an empty place */
}

/* The place of the hash, or the empty one where it belongs. */
static uint32_t place_of(const struct needed_names *needed, uint32_t hash)
{
    uint32_t at = hash / 2 % NEEDED_MAX;
    while (needed->hashes[at] && needed->hashes[at] != hash)
        at = (at + 1) % NEEDED_MAX;
    return at;
}

void needed_add(const char *name, void *data)
{
    struct needed_names *needed = data;
    uint32_t hash = hash_name(name);
    uint32_t place = place_of(needed, hash);
    if (needed->hashes[place] || needed->count >= NEEDED_MAX / 2)
        return;
    needed->hashes[place] = hash;
    needed->count++;
}

bool needed_has(const struct needed_names *needed, const char *name)
{
    return needed->hashes[place_of(needed, hash_name(name))] != 0;
}
