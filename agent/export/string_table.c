#include "agent/export/string_table.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/protobuf.h"

struct string_place {
    size_t offset; /* of the text in `encoded` */
    size_t length;
};

static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = length;
    for (; length >= sizeof(uint64_t); length -= sizeof(uint64_t), text += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, text, sizeof(word));
        hash = hash_mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, text, length);
    return hash_mix(hash, rest);
}

static bool is_text(const struct string_table *table, uint32_t number, const char *text,
                    size_t length)
{
    const struct string_place *places = (const void *)table->places.data;
    return places[number].length == length &&
           memcmp(table->encoded.data + places[number].offset, text, length) == 0;
}

static uint32_t append(struct string_table *table, uint64_t hash, const char *text, size_t length)
{
    uint32_t number = (uint32_t)(table->places.size / sizeof(struct string_place));
    pb_bytes(&table->encoded, table->field, text, length);
    struct string_place place = {.offset = table->encoded.size - length, .length = length};
    buffer_append(&table->places, &place, sizeof(place));
    if (table->encoded.error || table->places.error ||
        pair_map_add(&table->index, hash, length, number + 1)) {
        table->error = -ENOMEM;
        return 0;
    }
    return number;
}

uint32_t string_table_add(struct string_table *table, const char *text, size_t length)
{
    char *valid = buffer_room(&table->valid, STRING_MAX + 1);
    if (!valid)
        table->error = -ENOMEM;
    if (table->error)
        return 0;
    length = utf8_copy(valid, STRING_MAX + 1, text, length);
    /* Another text under the same hash: the next hash is tried. */
    for (uint64_t hash = hash_text(valid, length);; hash++) {
        uint32_t found = pair_map_get(&table->index, hash, length);
        if (!found)
            return append(table, hash, valid, length);
        if (is_text(table, found - 1, valid, length))
            return found - 1;
    }
}

void string_table_begin(struct string_table *table, unsigned field)
{
    *table = (struct string_table){.field = field};
    string_table_add(table, "", 0);
}

const char *string_table_text(const struct string_table *table, uint32_t number, size_t *length)
{
    const struct string_place *place =
        (const struct string_place *)(const void *)table->places.data + number;
    *length = place->length;
    return (const char *)table->encoded.data + place->offset;
}

void string_table_free(struct string_table *table)
{
    buffer_free(&table->encoded);
    buffer_free(&table->valid);
    buffer_free(&table->places);
    pair_map_free(&table->index);
    *table = (struct string_table){0};
}
