#include "agent/export/locations.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/options.h"
#include "agent/base/protobuf.h"
#include "agent/export/location_parts.h"
#include "agent/export/pprof_fields.h"
#include "agent/unwind/modules.h"

/* Program counters below this are pseudo frames: nothing is ever mapped there (vm.mmap_min_addr
 * is at least a page where it matters, and no program has code there). */
static const uint64_t pseudo_end = PAGE_SIZE_MIN;

/* The place's index + 1, 0 when there is no memory. */
static uint32_t place_of(struct location_table *table, const struct object *object, bool is_pseudo)
{
    uint32_t found = pair_map_get(&table->by_object, (uintptr_t)object, is_pseudo);
    if (found)
        return found;
    struct place place = {.object = object, .is_pseudo = is_pseudo, .low = UINT64_MAX};
    buffer_append(&table->places, &place, sizeof(place));
    uint32_t number = place_count(table);
    if (table->places.error ||
        pair_map_add(&table->by_object, (uintptr_t)object, is_pseudo, number))
        return 0;
    return number;
}

static uint32_t add_location(struct location_table *table, uint32_t place, uint64_t address)
{
    uint32_t found = pair_map_get(&table->by_address, place, address);
    if (found)
        return found;
    struct location location = {.address = address, .place = place};
    buffer_append(&table->locations, &location, sizeof(location));
    uint32_t number = location_count(table);
    if (table->locations.error || pair_map_add(&table->by_address, place, address, number))
        return 0;
    struct place *at = place_at(table, place);
    at->low = MIN_OF(at->low, address);
    at->high = MAX_OF(at->high, address);
    return number;
}

static uint32_t resolve(struct location_table *table, uint32_t generation, uint64_t pc)
{
    struct module_address found = {.object = NULL};
    bool is_pseudo = pc < pseudo_end;
    if (!is_pseudo)
        found = modules_resolve(generation, (uintptr_t)pc);
    uint32_t place = place_of(table, found.object, is_pseudo);
    if (place && found.object)
        place_at(table, place - 1)->bias = (uintptr_t)pc - found.vaddr;
    return place ? add_location(table, place - 1, found.object ? found.vaddr : pc) : 0;
}

int locations_begin(struct location_table *table)
{
    *table = (struct location_table){.locations = {0}};
    /* First, so that its mapping is number 1 whatever was sampled. */
    return modules_main() && !place_of(table, modules_main(), false) ? -ENOMEM : 0;
}

uint32_t location_of(struct location_table *table, uint32_t generation, uint64_t pc)
{
    uint32_t number = pair_map_get(&table->by_pc, pc, generation);
    if (number)
        return number;
    number = resolve(table, generation, pc);
    return number && pair_map_add(&table->by_pc, pc, generation, number) ? 0 : number;
}

/* ---- Encoding ------------------------------------------------------------------------------ */

static uint32_t mappings_of(const struct place *place)
{
    return place->object && place->object->segment_count ? place->object->segment_count : 1;
}

static void encode_mapping(struct buffer *out, uint32_t number, struct object_segment segment,
                           uint32_t filename, uint32_t build_id, const struct place *place)
{
    const uint64_t page = PAGE_SIZE_MIN;
    uint64_t end = segment.vaddr + segment.size;
    bool has_room = end >= segment.vaddr && end <= UINT64_MAX - page; /* to round up */
    size_t mark = pb_begin(out, PROFILE_MAPPING);
    pb_uint(out, MAPPING_ID, number);
    pb_uint(out, MAPPING_MEMORY_START, ALIGN_DOWN(segment.vaddr, page));
    pb_uint(out, MAPPING_MEMORY_LIMIT, has_room ? ALIGN_UP(end, page) : UINT64_MAX);
    pb_uint(out, MAPPING_FILE_OFFSET, ALIGN_DOWN(segment.offset, page));
    pb_uint(out, MAPPING_FILENAME, filename);
    pb_uint(out, MAPPING_BUILD_ID, build_id);
    /* A reader that may look itself does so where one of these is not set. */
    bool has_lines = place->has_lines && !place->is_put_off;
    pb_uint(out, MAPPING_HAS_FUNCTIONS, place->is_pseudo || options.symbols != SYMBOLS_OFF);
    pb_uint(out, MAPPING_HAS_FILENAMES, has_lines);
    pb_uint(out, MAPPING_HAS_LINE_NUMBERS, has_lines);
    pb_uint(out, MAPPING_HAS_INLINE_FRAMES, has_lines);
    pb_end(out, mark);
}

static uint32_t build_id_text(struct string_table *strings, const struct object *object)
{
    char text[2 * BUILD_ID_MAX + 1];
    size_t length = 0;
    for (size_t i = 0; i < object->build_id_size; i++)
        length += format(text + length, sizeof(text) - length, "%02x", object->build_id[i]);
    return string_table_add(strings, text, length);
}

static void encode_place(struct buffer *out, struct string_table *strings,
                         const struct place *place, uint32_t first_mapping)
{
    const struct object *object = place->object;
    const char *filename = object ? object->path : place->is_pseudo ? "[libagent]" : "[anon]";
    uint32_t name = string_table_add(strings, filename, strlen(filename));
    uint32_t build_id = object ? build_id_text(strings, object) : 0;
    /* Where there is no segment: what was met. */
    struct object_segment met = {.vaddr = place->low, .size = place->high - place->low + 1};
    if (place->low > place->high)
        met = (struct object_segment){.size = 1};
    for (uint32_t i = 0; i < mappings_of(place); i++)
        encode_mapping(out, first_mapping + i,
                       object && object->segment_count ? object->segments[i] : met, name, build_id,
                       place);
}

/* Which of the place's mappings holds the address; the first one when none does. */
static uint32_t segment_of(const struct place *place, uint64_t address)
{
    for (uint32_t i = 0; place->object && i < place->object->segment_count; i++)
        if (address - place->object->segments[i].vaddr < place->object->segments[i].size)
            return i;
    return 0;
}

const struct location_line *location_lines(const struct location_table *table, uint32_t number,
                                           uint32_t *count)
{
    const struct location *location = location_at(table, number - 1);
    *count = location->line_count;
    return (const struct location_line *)(const void *)table->lines.data + location->first_line;
}

static void encode_locations(const struct location_table *table, const uint32_t *first_mapping,
                             struct buffer *out)
{
    for (uint32_t i = 0; i < location_count(table); i++) {
        const struct location *location = location_at(table, i);
        size_t mark = pb_begin(out, PROFILE_LOCATION);
        pb_uint(out, LOCATION_ID, i + 1);
        pb_uint(out, LOCATION_MAPPING,
                /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the place is in the table */
                first_mapping[location->place] +
                    segment_of(place_at(table, location->place), location->address));
        pb_uint(out, LOCATION_ADDRESS, location->address);
        uint32_t count;
        const struct location_line *lines = location_lines(table, i + 1, &count);
        for (uint32_t k = 0; k < count; k++) {
            size_t line = pb_begin(out, LOCATION_LINE);
            pb_uint(out, LINE_FUNCTION_ID, lines[k].function);
            pb_uint(out, LINE_LINE, lines[k].line);
            pb_end(out, line);
        }
        pb_end(out, mark);
    }
}

void locations_encode(const struct location_table *table, struct string_table *strings,
                      struct buffer *out)
{
    struct buffer numbers = {0}; /* uint32_t: the first mapping of each place */
    uint32_t next = 1;
    for (uint32_t i = 0; i < place_count(table); i++) {
        const struct place *place = place_at(table, i);
        encode_place(out, strings, place, next);
        buffer_append(&numbers, &next, sizeof(next));
        next += mappings_of(place);
    }
    if (numbers.error)
        out->error = numbers.error;
    else
        encode_locations(table, (const uint32_t *)(const void *)numbers.data, out);
    buffer_free(&numbers);
    const struct function *functions = (const void *)table->functions.data;
    for (uint32_t i = 0; i < table->functions.size / sizeof(functions[0]); i++) {
        size_t mark = pb_begin(out, PROFILE_FUNCTION);
        pb_uint(out, FUNCTION_ID, i + 1);
        pb_uint(out, FUNCTION_NAME, functions[i].name);
        pb_uint(out, FUNCTION_SYSTEM_NAME, functions[i].system_name);
        pb_uint(out, FUNCTION_FILENAME, functions[i].file);
        pb_uint(out, FUNCTION_START_LINE, functions[i].start_line);
        pb_end(out, mark);
    }
}

void locations_free(struct location_table *table)
{
    buffer_free(&table->locations);
    buffer_free(&table->places);
    buffer_free(&table->functions);
    buffer_free(&table->lines);
    pair_map_free(&table->by_pc);
    pair_map_free(&table->by_address);
    pair_map_free(&table->by_object);
    pair_map_free(&table->by_name);
}
