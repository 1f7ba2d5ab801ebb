#include <errno.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/export/line_cache.h"
#include "agent/export/location_parts.h"
#include "agent/export/name_cache.h"

uint64_t location_lines_steps = LINES_PROFILE_STEPS;

/* Where the next profile begins: with what this one did not reach. Under LOCK_FLUSH. */
static const struct object *next_object;

struct line_search {
    struct naming *naming;
    struct line_budget budget;
    struct line_answer *answers;
    struct buffer frames, texts;
    const struct object *first;   /* that was read */
    const struct object *put_off; /* the first that was not, or not all */
};

static struct location *location_of_order(const struct naming *naming, uint32_t index)
{
    return location_at(naming->table, naming->order[index]);
}

static bool put_off_any(const struct line_search *search, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        if (search->answers[i].state == LINES_PUT_OFF) {
            stats_add(STAT_LINES_PUT_OFF, 1);
            any = true;
        }
    return any;
}

/* Has the lines of the locations order[first], ..., order[end - 1] in the cache, as far as the
 * budget goes. */
static int find_lines(struct line_search *search, struct place *place, uint32_t first, uint32_t end)
{
    struct naming *naming = search->naming;
    const struct object *object = place->object;
    struct known_lines known;
    size_t count = 0;
    for (uint32_t i = first; i < end; i++) {
        uint64_t address = location_of_order(naming, i)->address;
        if (!line_cache_get(object, address, &known))
            naming->addresses[count++] = address;
    }
    if (count == 0)
        return 0;
    if (!naming->reads_lines) {
        place->is_put_off = true;
        return 0;
    }
    search->frames.size = search->texts.size = 0;
    int error = lines_find(object, naming->addresses, count, &search->budget, search->answers,
                           &search->frames, &search->texts);
    if (error == -ENOMEM)
        return error;
    if (error && error != -ENOENT && error != -ESTALE) {
        search->budget.left_out += count;
        log_debug("no lines from %s: error %d", object->path, -error);
    }
    place->is_put_off = put_off_any(search, count);
    if (!search->first && !search->budget.is_first)
        search->first = object;
    if (!search->put_off && place->is_put_off)
        search->put_off = object;
    return line_cache_add(object, naming->addresses, count, search->answers, &search->frames,
                          &search->texts, &naming->demangler);
}

/* The frame's function; the code's own (the last one) keeps the name that its symbol has. */
static uint32_t function_of_frame(struct naming *naming, const struct location *location,
                                  const struct known_frame *frame, bool is_last)
{
    struct string_table *strings = naming->strings;
    struct function function = {.start_line = frame->start_line};
    const struct known_name *name = &frame->name;
    if (name->system && (!is_last || location->is_nameless)) {
        function.system_name = string_table_add(strings, name->system, name->system_length);
        function.name = name->readable
                            ? string_table_add(strings, name->readable, name->readable_length)
                            : function.system_name;
    } else if (is_last) {
        const struct function *own =
            (const struct function *)(const void *)naming->table->functions.data +
            location->function - 1;
        function.name = own->name;
        function.system_name = own->system_name;
    } else {
        static const char unknown[] = "[inlined]"; /* its name is in a file that is not read */
        function.name = function.system_name =
            string_table_add(strings, unknown, sizeof(unknown) - 1);
    }
    if (frame->file)
        function.file = string_table_add(strings, frame->file, frame->file_length);
    return function_number(naming, &function);
}

static int set_lines(struct naming *naming, uint32_t index, const struct object *object)
{
    struct location_table *table = naming->table;
    struct location *location = location_of_order(naming, index);
    struct known_lines known;
    if (!line_cache_get(object, location->address, &known) || known.count == 0)
        return 0;
    location->first_line = (uint32_t)(table->lines.size / sizeof(struct location_line));
    location->line_count = known.count;
    for (uint32_t i = 0; i < known.count; i++) {
        struct known_frame frame = line_cache_frame(known.first + i);
        struct location_line line = {.line = frame.line};
        line.function = function_of_frame(naming, location, &frame, i + 1 == known.count);
        buffer_append(&table->lines, &line, sizeof(line));
        if (!line.function || table->lines.error)
            return -ENOMEM;
        place_at(table, location->place)->has_lines |= frame.file != NULL;
    }
    return 0;
}

/* The end of the locations that are in the same place as the one with that number in order. */
static uint32_t end_of_place(const struct naming *naming, uint32_t first)
{
    uint32_t end = first;
    while (end < location_count(naming->table) &&
           location_of_order(naming, end)->place == location_of_order(naming, first)->place)
        end++;
    return end;
}

static struct place *place_of_order(const struct naming *naming, uint32_t index)
{
    return place_at(naming->table, location_of_order(naming, index)->place);
}

/* All places whose locations are order[from], ..., order[to - 1]. */
static int add_places(struct line_search *search, uint32_t from, uint32_t to)
{
    int error = 0;
    for (uint32_t first = from, end; first < to && !error; first = end) {
        struct place *place = place_of_order(search->naming, first);
        end = end_of_place(search->naming, first);
        if (!place->object)
            continue;
        error = find_lines(search, place, first, end);
        for (uint32_t i = first; i < end && !error; i++)
            error = set_lines(search->naming, i, place->object);
        if (search->put_off && search->put_off == search->first && place->object != search->first)
            search->put_off = place->object; /* that one had its turn */
    }
    return error;
}

int location_lines_add(struct naming *naming)
{
    uint32_t count = location_count(naming->table), start = 0;
    line_cache_begin(options.symbol_limit / 4);
    size_t used = name_cache_size() + line_cache_size();
    struct line_search search = {
        .naming = naming,
        .budget = {.steps = location_lines_steps,
                   .is_first = true,
                   .room = options.symbol_limit > used ? options.symbol_limit - used : 0},
    };
    size_t size = count * sizeof(search.answers[0]);
    search.answers = sys_map(size);
    if (!search.answers)
        return -ENOMEM;
    for (uint32_t first = 0; next_object && first < count; first = end_of_place(naming, first))
        if (place_of_order(naming, first)->object == next_object)
            start = first;
    int error = add_places(&search, start, count);
    if (!error)
        error = add_places(&search, 0, start);
    if (naming->reads_lines)
        next_object = search.put_off;
    stats_add(STAT_LINES_LEFT_OUT, search.budget.left_out);
    buffer_free(&search.frames);
    buffer_free(&search.texts);
    sys_unmap(search.answers, size);
    return error;
}
