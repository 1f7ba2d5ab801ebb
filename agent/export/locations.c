#include "agent/export/locations.h"

#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/protobuf.h"
#include "agent/base/sys.h"
#include "agent/export/demangle.h"
#include "agent/export/jit_names.h"
#include "agent/export/name_cache.h"
#include "agent/export/pprof_fields.h"
#include "agent/export/symbols.h"
#include "agent/record/time_recorder.h"
#include "agent/unwind/modules.h"

/* Program counters below this are pseudo frames: nothing is ever mapped there (vm.mmap_min_addr
 * is at least a page where it matters, and no program has code there). */
static const uint64_t pseudo_end = PAGE_SIZE_MIN;

struct place {
    const struct object *object; /* NULL: pseudo frames, or code in no known object */
    bool is_pseudo;
    uintptr_t bias;     /* of the object, where it was met last */
    uint64_t low, high; /* addresses met; none yet: low > high */
};

struct location {
    uint64_t address;
    uint32_t place;
    uint32_t function; /* 0: not named yet */
};

struct function {
    uint32_t name, system_name;
};

static struct location *location_at(const struct location_table *table, uint32_t index)
{
    return (struct location *)(void *)table->locations.data + index;
}

static uint32_t location_count(const struct location_table *table)
{
    return (uint32_t)(table->locations.size / sizeof(struct location));
}

static struct place *place_at(const struct location_table *table, uint32_t index)
{
    return (struct place *)(void *)table->places.data + index;
}

static uint32_t place_count(const struct location_table *table)
{
    return (uint32_t)(table->places.size / sizeof(struct place));
}

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

/* ---- Names -------------------------------------------------------------------------------- */

static bool is_before(const struct location_table *table, uint32_t a, uint32_t b)
{
    const struct location *x = location_at(table, a), *y = location_at(table, b);
    return x->place != y->place ? x->place < y->place : x->address < y->address;
}

static void sift_down(const struct location_table *table, uint32_t *heap, uint32_t count,
                      uint32_t parent)
{
    uint32_t moved = heap[parent];
    for (uint32_t child; (child = 2 * parent + 1) < count; parent = child) {
        if (child + 1 < count && is_before(table, heap[child], heap[child + 1]))
            child++;
        if (!is_before(table, moved, heap[child]))
            break;
        heap[parent] = heap[child];
    }
    heap[parent] = moved;
}

/* Heapsort of location indices by place and address: in place, and no input is slow. (libc's
 * qsort may call malloc.) */
static void sort(const struct location_table *table, uint32_t *order, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; i--)
        sift_down(table, order, count, i - 1);
    for (uint32_t last = count; last-- > 1;) {
        uint32_t top = order[0];
        order[0] = order[last];
        order[last] = top;
        sift_down(table, order, last, 0);
    }
}

/* The locations of one place while they are named; the arrays are as long as the table. */
struct naming {
    struct location_table *table;
    struct string_table *strings;
    struct demangler demangler;
    uint32_t *order;
    uint64_t *addresses;
    struct symbol_name *names;
    struct buffer texts;
};

static int set_function(struct naming *naming, uint32_t index, const char *name, size_t length,
                        const char *system_name, size_t system_length)
{
    struct location_table *table = naming->table;
    struct function function = {
        .name = string_table_add(naming->strings, name, length),
        .system_name = string_table_add(naming->strings, system_name, system_length),
    };
    uint32_t number = pair_map_get(&table->by_name, function.name, function.system_name);
    if (!number) {
        buffer_append(&table->functions, &function, sizeof(function));
        number = (uint32_t)(table->functions.size / sizeof(function));
        if (naming->strings->error || table->functions.error ||
            pair_map_add(&table->by_name, function.name, function.system_name, number))
            return -ENOMEM;
    }
    location_at(table, index)->function = number;
    return 0;
}

static int name_by_address(struct naming *naming, uint32_t index)
{
    enum { NAME_SIZE = 256 + 20 }; /* the longest file name, "+0x" and 16 digits */
    const struct location *location = location_at(naming->table, index);
    const struct place *place = place_at(naming->table, location->place);
    char name[NAME_SIZE];
    size_t length;
    if (place->is_pseudo)
        length = format(name, sizeof(name), "%s",
                        pseudo_frame_name((enum pseudo_frame)location->address));
    else
        length = format(name, sizeof(name), "%.*s+0x%llx", 255,
                        place->object ? base_name(place->object->path) : "[anon]",
                        (unsigned long long)location->address);
    return set_function(naming, index, name, length, name, length);
}

static uint64_t address_of(const struct naming *naming, uint32_t number)
{
    return location_at(naming->table, naming->order[number])->address;
}

/* Has the names of all addresses of the object in the cache, as far as they have some. */
static int find_symbols(struct naming *naming, const struct place *place, uint32_t first,
                        uint32_t end)
{
    struct known_name known;
    size_t count = 0;
    for (uint32_t i = first; i < end; i++)
        if (!name_cache_get(place->object, address_of(naming, i), &known))
            naming->addresses[count++] = address_of(naming, i);
    naming->texts.size = 0;
    int error = symbols_find(place->object, place->bias, naming->addresses, count, naming->names,
                             &naming->texts);
    if (error && error != -ENOMEM)
        log_debug("no names from %s: error %d", place->object->path, -error);
    if (error)
        return error == -ENOMEM ? error : 0;
    return name_cache_add(place->object, naming->names, count, &naming->texts, &naming->demangler);
}

static int name_object(struct naming *naming, const struct place *place, uint32_t first,
                       uint32_t end)
{
    int error = find_symbols(naming, place, first, end);
    struct known_name last = {.system = NULL};
    for (uint32_t i = first; !error && i < end; i++) {
        uint32_t index = naming->order[i];
        struct known_name known;
        if (!name_cache_get(place->object, address_of(naming, i), &known) || !known.system)
            error = name_by_address(naming, index);
        else if (known.system == last.system)
            location_at(naming->table, index)->function =
                location_at(naming->table, naming->order[i - 1])->function;
        else
            error = set_function(naming, index, known.readable ? known.readable : known.system,
                                 known.readable ? known.readable_length : known.system_length,
                                 known.system, known.system_length);
        last = known;
    }
    return error;
}

static int name_made_code(struct naming *naming, uint32_t first, uint32_t end)
{
    uint32_t count = end - first;
    memset(naming->names, 0, count * sizeof(naming->names[0]));
    for (uint32_t i = 0; i < count; i++)
        naming->addresses[i] = address_of(naming, first + i);
    naming->texts.size = 0;
    int error = jit_names_find(naming->addresses, count, naming->names, &naming->texts);
    for (uint32_t i = 0; !error && i < count; i++) {
        struct symbol_name symbol = naming->names[i];
        const char *name = (const char *)naming->texts.data + symbol.offset;
        error = symbol.length ? set_function(naming, naming->order[first + i], name, symbol.length,
                                             name, symbol.length)
                              : name_by_address(naming, naming->order[first + i]);
    }
    return error;
}

/* Names the locations order[first], ..., order[end - 1], all of one place. */
static int name_place(struct naming *naming, uint32_t first, uint32_t end)
{
    const struct place *place =
        place_at(naming->table, location_at(naming->table, naming->order[first])->place);
    if (place->object)
        return name_object(naming, place, first, end);
    if (!place->is_pseudo)
        return name_made_code(naming, first, end);
    int error = 0;
    for (uint32_t i = first; !error && i < end; i++)
        error = name_by_address(naming, naming->order[i]);
    return error;
}

/* Names only what the agent itself puts into stacks. */
static int name_pseudo_frames(struct naming *naming)
{
    int error = 0;
    for (uint32_t i = 0; !error && i < location_count(naming->table); i++)
        if (place_at(naming->table, location_at(naming->table, i)->place)->is_pseudo)
            error = name_by_address(naming, i);
    return error;
}

static int name_all(struct naming *naming)
{
    uint32_t count = location_count(naming->table);
    for (uint32_t i = 0; i < count; i++)
        naming->order[i] = i;
    sort(naming->table, naming->order, count);
    for (uint32_t first = 0, end; first < count; first = end) {
        uint32_t place = location_at(naming->table, naming->order[first])->place;
        for (end = first; end < count; end++)
            if (location_at(naming->table, naming->order[end])->place != place)
                break;
        int error = name_place(naming, first, end);
        if (error)
            return error;
    }
    return 0;
}

int locations_name(struct location_table *table, struct string_table *strings)
{
    uint32_t count = location_count(table);
    if (count == 0)
        return 0;
    size_t size = count * (sizeof(uint64_t) + sizeof(struct symbol_name) + sizeof(uint32_t));
    uint8_t *arrays = sys_map(size);
    if (!arrays)
        return -ENOMEM;
    struct naming naming = {.table = table, .strings = strings};
    naming.addresses = (uint64_t *)(void *)arrays;
    naming.names = (struct symbol_name *)(void *)(naming.addresses + count);
    naming.order = (uint32_t *)(void *)(naming.names + count);
    name_cache_begin();
    demangle_start(&naming.demangler, options.name_limit);
    int error = options.symbols == SYMBOLS_OFF ? name_pseudo_frames(&naming) : name_all(&naming);
    demangle_stop(&naming.demangler);
    buffer_free(&naming.texts);
    sys_unmap(arrays, size);
    return error;
}

/* ---- Encoding ------------------------------------------------------------------------------ */

static uint32_t mappings_of(const struct place *place)
{
    return place->object && place->object->segment_count ? place->object->segment_count : 1;
}

static void encode_mapping(struct buffer *out, uint32_t number, struct object_segment segment,
                           uint32_t filename, uint32_t build_id, bool has_functions)
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
    pb_uint(out, MAPPING_HAS_FUNCTIONS, has_functions);
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
                       place->is_pseudo || options.symbols != SYMBOLS_OFF);
}

/* Which of the place's mappings holds the address; the first one when none does. */
static uint32_t segment_of(const struct place *place, uint64_t address)
{
    for (uint32_t i = 0; place->object && i < place->object->segment_count; i++)
        if (address - place->object->segments[i].vaddr < place->object->segments[i].size)
            return i;
    return 0;
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
        if (location->function) {
            size_t line = pb_begin(out, LOCATION_LINE);
            pb_uint(out, LINE_FUNCTION_ID, location->function);
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
        pb_end(out, mark);
    }
}

void locations_free(struct location_table *table)
{
    buffer_free(&table->locations);
    buffer_free(&table->places);
    buffer_free(&table->functions);
    pair_map_free(&table->by_pc);
    pair_map_free(&table->by_address);
    pair_map_free(&table->by_object);
    pair_map_free(&table->by_name);
}
