#include <errno.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/export/jit_names.h"
#include "agent/export/location_parts.h"
#include "agent/export/name_cache.h"
#include "agent/export/symbols.h"
#include "agent/record/time_recorder.h"

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

uint32_t function_number(struct naming *naming, const struct function *function)
{
    struct location_table *table = naming->table;
    uint64_t name = (uint64_t)function->name << 32 | function->system_name;
    uint64_t place = (uint64_t)function->file << 32 | function->start_line;
    uint32_t number = pair_map_get(&table->by_name, name, place);
    if (number)
        return number;
    buffer_append(&table->functions, function, sizeof(*function));
    number = (uint32_t)(table->functions.size / sizeof(*function));
    return naming->strings->error || table->functions.error ||
                   pair_map_add(&table->by_name, name, place, number)
               ? 0
               : number;
}

static int set_function(struct naming *naming, uint32_t index, const char *name, size_t length,
                        const char *system_name, size_t system_length)
{
    struct function function = {
        .name = string_table_add(naming->strings, name, length),
        .system_name = string_table_add(naming->strings, system_name, system_length),
    };
    uint32_t number = function_number(naming, &function);
    location_at(naming->table, index)->function = number;
    return number ? 0 : -ENOMEM;
}

size_t location_address_name(const struct location_table *table, const struct location *location,
                             char name[ADDRESS_NAME_SIZE])
{
    const struct place *place = place_at(table, location->place);
    if (place->is_pseudo)
        return format(name, ADDRESS_NAME_SIZE, "%s",
                      pseudo_frame_name((enum pseudo_frame)location->address));
    return format(name, ADDRESS_NAME_SIZE, "%.*s+0x%llx", 255, place_name(place),
                  (unsigned long long)location->address);
}

static int name_by_address(struct naming *naming, uint32_t index)
{
    char name[ADDRESS_NAME_SIZE];
    struct location *location = location_at(naming->table, index), shown = *location;
    const struct object *object = place_at(naming->table, location->place)->object;
    if (object) /* all addresses of a function have one name, also where nothing tells it */
        shown.address = modules_function_start(object, location->address);
    size_t length = location_address_name(naming->table, &shown, name);
    location->is_nameless = true;
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
    const char *texts = NULL;
    for (uint32_t i = 0; i < count; i++)
        naming->addresses[i] = address_of(naming, first + i);
    int error = jit_names_find(naming->addresses, count, naming->names, &texts);
    for (uint32_t i = 0; !error && i < count; i++) {
        struct symbol_name symbol = naming->names[i];
        const char *name = symbol.length ? texts + symbol.offset : NULL;
        error = name ? set_function(naming, naming->order[first + i], name, symbol.length, name,
                                    symbol.length)
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
    return options.symbols == SYMBOLS_LINES ? location_lines_add(naming) : 0;
}

/* Those without lines get one that tells the function alone. */
static int fill_lines(struct location_table *table)
{
    for (uint32_t i = 0; i < location_count(table); i++) {
        struct location *location = location_at(table, i);
        struct location_line line = {.function = location->function};
        if (location->line_count || !location->function)
            continue;
        location->first_line = (uint32_t)(table->lines.size / sizeof(line));
        location->line_count = 1;
        buffer_append(&table->lines, &line, sizeof(line));
    }
    return table->lines.error;
}

int locations_name(struct location_table *table, struct string_table *strings, bool reads_lines)
{
    uint32_t count = location_count(table);
    if (count == 0)
        return 0;
    size_t size = count * (sizeof(uint64_t) + sizeof(struct symbol_name) + sizeof(uint32_t));
    uint8_t *arrays = sys_map(size);
    if (!arrays)
        return -ENOMEM;
    struct naming naming = {.table = table, .strings = strings, .reads_lines = reads_lines};
    naming.addresses = (uint64_t *)(void *)arrays;
    naming.names = (struct symbol_name *)(void *)(naming.addresses + count);
    naming.order = (uint32_t *)(void *)(naming.names + count);
    name_cache_begin(MIN_OF((size_t)NAME_CACHE_MAX, (size_t)options.symbol_limit / 2));
    demangle_start(&naming.demangler, options.name_limit);
    int error = options.symbols == SYMBOLS_OFF ? name_pseudo_frames(&naming) : name_all(&naming);
    if (!error)
        error = fill_lines(table);
    demangle_stop(&naming.demangler);
    buffer_free(&naming.texts);
    sys_unmap(arrays, size);
    return error;
}
