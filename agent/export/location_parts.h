/* location_parts.h: the tables of locations.h from inside, for those who fill and write them.
 * Owns: nothing. Context: INIT, TICK, under LOCK_FLUSH. Locks: none. */
#ifndef LIBAGENT_LOCATION_PARTS_H
#define LIBAGENT_LOCATION_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"
#include "agent/export/demangle.h"
#include "agent/export/locations.h"
#include "agent/export/string_table.h"
#include "agent/export/symbol_table.h"
#include "agent/unwind/modules.h"

struct place {
    const struct object *object; /* NULL: pseudo frames, or code in no known object */
    bool is_pseudo;
    uintptr_t bias;     /* of the object, where it was met last */
    uint64_t low, high; /* addresses met; none yet: low > high */
    bool has_lines;     /* some of its locations have a file */
    bool is_put_off;    /* some may have, but were not reached */
};

struct location {
    uint64_t address;
    uint32_t place;
    uint32_t function; /* 0: not named yet */
    bool is_nameless;  /* that is named after the address */
    /* LIBAGENT_SYMBOLS=lines: in table->lines; of 0 there is only `function`. */
    uint32_t first_line, line_count;
};

struct function {
    uint32_t name, system_name;
    uint32_t file, start_line; /* 0: not known */
};

static inline struct location *location_at(const struct location_table *table, uint32_t index)
{
    return (struct location *)(void *)table->locations.data + index;
}

static inline uint32_t location_count(const struct location_table *table)
{
    return (uint32_t)(table->locations.size / sizeof(struct location));
}

static inline struct place *place_at(const struct location_table *table, uint32_t index)
{
    return (struct place *)(void *)table->places.data + index;
}

static inline uint32_t place_count(const struct location_table *table)
{
    return (uint32_t)(table->places.size / sizeof(struct place));
}

/* The base name of the place's object, or what stands for one. */
static inline const char *place_name(const struct place *place)
{
    if (place->object)
        return base_name(place->object->path);
    return place->is_pseudo ? "[libagent]" : "[anon]";
}

enum { ADDRESS_NAME_SIZE = 256 + 20 }; /* the longest file name, "+0x" and 16 digits */

/* What a location is called that has no name; returns the length. */
size_t location_address_name(const struct location_table *table, const struct location *location,
                             char name[ADDRESS_NAME_SIZE]);

/* The locations while they are named; the arrays are as long as the table. */
struct naming {
    struct location_table *table;
    struct string_table *strings;
    bool reads_lines;
    struct demangler demangler;
    uint32_t *order; /* of the locations: by place and address */
    uint64_t *addresses;
    struct symbol_name *names;
    struct buffer texts;
};

/* The number of a function, added when it is new. 0 where there is no memory. */
uint32_t function_number(struct naming *naming, const struct function *function);
/* Steps of a profile for lines: LINES_PROFILE_STEPS. Suites set fewer. */
extern HIDDEN uint64_t location_lines_steps;
/* Once functions are known: files, lines and inlined functions of all that are in objects (see
 * lines.h). 0 or -ENOMEM. */
int location_lines_add(struct naming *naming) MUST_USE;

#endif
