#include "agent/base/pair_map.h"

#include <errno.h>

#include "agent/base/sys.h"

static const size_t first_size = 1024; /* 24 KiB: most windows stay below */

/* The pair's slot, or the free one where it belongs. */
static struct pair_slot *find(const struct pair_map *map, uint64_t first, uint64_t second)
{
    uint64_t hash = hash_mix(hash_mix(0, first), second);
    size_t at = (hash ^ (hash >> 32)) & (map->size - 1);
    for (;; at = (at + 1) & (map->size - 1)) {
        struct pair_slot *slot = &map->slots[at];
        if (slot->value == 0 || (slot->first == first && slot->second == second))
            return slot;
    }
}

uint32_t pair_map_get(const struct pair_map *map, uint64_t first, uint64_t second)
{
    return map->size ? find(map, first, second)->value : 0;
}

static int grow(struct pair_map *map)
{
    size_t size = map->size ? map->size * 2 : first_size;
    struct pair_map larger = {.size = size, .used = map->used};
    larger.slots = sys_map(size * sizeof(struct pair_slot));
    if (!larger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->size; i++) {
        const struct pair_slot *slot = &map->slots[i];
        if (slot->value)
            *find(&larger, slot->first, slot->second) = *slot;
    }
    pair_map_free(map);
    *map = larger;
    return 0;
}

int pair_map_add(struct pair_map *map, uint64_t first, uint64_t second, uint32_t value)
{
    if (map->used >= map->size / 2) {
        int error = grow(map);
        if (error)
            return error;
    }
    *find(map, first, second) =
        (struct pair_slot){.first = first, .second = second, .value = value};
    map->used++;
    return 0;
}

void pair_map_free(struct pair_map *map)
{
    if (map->slots)
        sys_unmap(map->slots, map->size * sizeof(struct pair_slot));
    *map = (struct pair_map){0};
}
