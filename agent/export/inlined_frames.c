#include "agent/export/inlined_frames.h"

#include <errno.h>

#include "agent/export/address_search.h"
#include "agent/export/dwarf_entry.h"
#include "agent/export/line_program.h"

enum {
    DEPTH_MAX = 512,      /* entries within entries; real files have under 100 */
    FRAMES_MAX = 1 << 16, /* that hold addresses, of a unit: 2 MiB */
    HOPS_MAX = 16,        /* from a call to its function, from that to its declaration: 3 */
};

struct walk {
    struct dwarf_file *dwarf;
    const struct dwarf_unit *unit;
    const struct object *object;
    const uint64_t *addresses;
    size_t count;
    uint32_t *innermost;
    struct buffer *frames;
    uint32_t number; /* of the frame whose ranges are gone through, + 1 */
    bool is_met;     /* they hold one of the addresses */
    unsigned depth;
    uint32_t around[DEPTH_MAX]; /* the frame (+ 1) that the entries of that depth are in */
};

/* What an entry of one of the two kinds says. */
struct entry {
    struct dwarf_scope scope;
    uint64_t sibling, call_file, call_line;
};

static bool use_range(uint64_t low, uint64_t high, void *data)
{
    struct walk *walk = data;
    if (!object_has_code(walk->object, low))
        return true;
    size_t first = address_lower_bound(walk->addresses, walk->count, low);
    for (; first < walk->count && walk->addresses[first] < high; first++) {
        walk->innermost[first] = walk->number;
        walk->is_met = true;
        if (!dwarf_take_steps(walk->dwarf, 1))
            return false;
    }
    return true;
}

static void read_entry(struct cursor *cursor, const struct dwarf_unit *unit,
                       const struct abbreviation_table *table,
                       const struct abbreviation *abbreviation, struct entry *entry)
{
    const struct abbreviation_attribute *attributes = dwarf_attributes(table, abbreviation);
    for (uint32_t i = 0; i < abbreviation->count; i++) {
        struct dwarf_value value = dwarf_read_value(cursor, unit, &attributes[i]);
        switch (attributes[i].name) {
        case ATTRIBUTE_LOW_PC:
            entry->scope.low = value;
            break;
        case ATTRIBUTE_HIGH_PC:
            entry->scope.high = value;
            break;
        case ATTRIBUTE_RANGES:
            entry->scope.ranges = value;
            break;
        case ATTRIBUTE_CALL_FILE:
            entry->call_file = value.number;
            break;
        case ATTRIBUTE_CALL_LINE:
            entry->call_line = value.number;
            break;
        case ATTRIBUTE_SIBLING:
            entry->sibling = value.kind == VALUE_REFERENCE ? value.number : 0;
            break;
        default:
            break;
        }
    }
}

/* One that is followed by another, and cannot be of interest with all that is in it. */
static bool is_skipped(uint32_t tag)
{
    return tag == TAG_ARRAY_TYPE || tag == TAG_ENUMERATION_TYPE || tag == TAG_SUBROUTINE_TYPE;
}

/* A function, or a call of one that was inlined. Its frame's number + 1; or that of the one around
 * it, where it holds none of the addresses. */
static uint32_t visit(struct walk *walk, uint64_t offset, uint32_t tag, const struct entry *entry)
{
    struct buffer *frames = walk->frames;
    uint32_t around = walk->around[walk->depth];
    bool is_inlined = tag == TAG_INLINED_SUBROUTINE;
    if (is_inlined && !around)
        return 0; /* in a function that holds none of them */
    walk->number = (uint32_t)(frames->size / sizeof(struct inlined_frame)) + 1;
    walk->is_met = false;
    dwarf_ranges(walk->dwarf, walk->unit, &entry->scope, use_range, walk);
    if (!walk->is_met)
        return 0;
    if (walk->number > FRAMES_MAX)
        frames->error = -E2BIG;
    struct inlined_frame frame = {
        .entry = offset,
        .outer = is_inlined ? around : 0,
        .line = entry->call_line <= INT32_MAX ? (uint32_t)entry->call_line : 0,
        .file = entry->call_file,
    };
    buffer_append(frames, &frame, sizeof(frame));
    return walk->number;
}

static int walk_entries(struct walk *walk, struct cursor *cursor,
                        const struct abbreviation_table *table)
{
    const struct dwarf_unit *unit = walk->unit;
    while (cursor_offset(cursor) < unit->end) {
        uint64_t offset = cursor_offset(cursor), code = cursor_uleb(cursor);
        if (cursor->failed)
            return -ENOEXEC;
        if (code == 0) {
            if (walk->depth <= 1)
                return 0;
            walk->depth--;
            continue;
        }
        const struct abbreviation *abbreviation = dwarf_abbreviation(walk->dwarf, table, code);
        if (!dwarf_take_steps(walk->dwarf, 1))
            return -EAGAIN;
        if (!abbreviation)
            return -ENOEXEC;
        struct entry entry = {.sibling = 0};
        uint32_t inside = walk->around[walk->depth];
        bool is_function =
            abbreviation->tag == TAG_SUBPROGRAM || abbreviation->tag == TAG_INLINED_SUBROUTINE;
        bool may_jump = false;
        if (is_function) {
            if (!dwarf_take_steps(walk->dwarf, abbreviation->count))
                return -EAGAIN;
            read_entry(cursor, unit, table, abbreviation, &entry);
            inside = visit(walk, offset, abbreviation->tag, &entry);
            may_jump = !inside && abbreviation->tag == TAG_INLINED_SUBROUTINE;
        } else if (abbreviation->is_fixed && !is_skipped(abbreviation->tag)) {
            cursor_skip(cursor, abbreviation->size);
        } else {
            if (!dwarf_take_steps(walk->dwarf, abbreviation->count))
                return -EAGAIN;
            read_entry(cursor, unit, table, abbreviation, &entry);
            may_jump = is_skipped(abbreviation->tag);
        }
        if (cursor->failed || walk->frames->error)
            return walk->frames->error ? walk->frames->error : -ENOEXEC;
        if (!abbreviation->has_children) {
            if (walk->depth == 0)
                return 0; /* the unit's own */
        } else if (may_jump && entry.sibling > cursor_offset(cursor) && entry.sibling < unit->end) {
            cursor_seek(cursor, entry.sibling);
        } else {
            if (walk->depth + 1 == DEPTH_MAX)
                return -ENOEXEC;
            walk->around[++walk->depth] = inside;
        }
    }
    return 0;
}

int inlined_frames_find(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                        const struct object *object, const uint64_t *addresses, size_t count,
                        uint32_t *innermost, struct buffer *frames)
{
    struct walk walk = {.dwarf = dwarf,
                        .unit = unit,
                        .object = object,
                        .addresses = addresses,
                        .count = count,
                        .innermost = innermost,
                        .frames = frames};
    struct cursor cursor;
    const struct abbreviation_table *table = dwarf_table(dwarf, unit);
    if (!table)
        return -ENOEXEC;
    int error = dwarf_cursor(dwarf, DWARF_INFO, dwarf->walk_window, sizeof(dwarf->walk_window),
                             unit->first, &cursor);
    return error ? error : walk_entries(&walk, &cursor, table);
}

static void take_name(struct source_function *function, struct dwarf_file *dwarf,
                      const struct dwarf_unit *unit, struct dwarf_value name)
{
    function->name = name;
    function->name_dwarf = dwarf;
    function->name_unit = *unit;
}

/* Takes what the entry adds to what is known; which one it refers to. */
static struct dwarf_value read_names(struct dwarf_file *dwarf, struct cursor *cursor,
                                     const struct dwarf_unit *unit,
                                     const struct abbreviation_table *table,
                                     const struct abbreviation *abbreviation,
                                     struct source_function *function)
{
    struct dwarf_value next = {.kind = VALUE_NONE};
    const struct abbreviation_attribute *attributes = dwarf_attributes(table, abbreviation);
    uint64_t file = 0, line = 0;
    for (uint32_t i = 0; i < abbreviation->count; i++) {
        struct dwarf_value value = dwarf_read_value(cursor, unit, &attributes[i]);
        switch (attributes[i].name) {
        case ATTRIBUTE_LINKAGE_NAME:
        case ATTRIBUTE_MIPS_LINKAGE_NAME:
            if (!function->is_linkage)
                take_name(function, dwarf, unit, value);
            function->is_linkage = true;
            break;
        case ATTRIBUTE_NAME:
            if (function->name.kind == VALUE_NONE)
                take_name(function, dwarf, unit, value);
            break;
        case ATTRIBUTE_DECL_FILE:
            file = value.number;
            break;
        case ATTRIBUTE_DECL_LINE:
            line = value.number;
            break;
        case ATTRIBUTE_ABSTRACT_ORIGIN:
        case ATTRIBUTE_SPECIFICATION:
            next = value;
            break;
        default:
            break;
        }
    }
    if (line && !function->line) {
        function->line = line;
        function->file = file;
        function->dwarf = dwarf;
        function->unit = unit->offset;
    }
    return next;
}

int source_function_read(struct dwarf_file *dwarf, uint64_t entry, struct source_function *function)
{
    *function = (struct source_function){.line = 0};
    struct dwarf_unit unit = {.end = 0};
    for (int hops = 0; entry && hops < HOPS_MAX && !function->is_linkage; hops++) {
        if (entry < unit.offset || entry >= unit.end) {
            int error = dwarf_unit_of(dwarf, entry, &unit);
            if (!error)
                error = unit.version ? dwarf_read_first(dwarf, &unit) : -ENOEXEC;
            if (error)
                return error;
        }
        struct cursor cursor;
        const struct abbreviation_table *table = dwarf_table(dwarf, &unit);
        if (!table || dwarf_cursor(dwarf, DWARF_INFO, dwarf->info_window,
                                   sizeof(dwarf->info_window), entry, &cursor))
            return -ENOEXEC;
        const struct abbreviation *abbreviation =
            dwarf_abbreviation(dwarf, table, cursor_uleb(&cursor));
        if (!abbreviation || !dwarf_take_steps(dwarf, 1 + abbreviation->count))
            return -ENOEXEC;
        struct dwarf_value next = read_names(dwarf, &cursor, &unit, table, abbreviation, function);
        if (cursor.failed)
            return -ENOEXEC;
        if (next.kind == VALUE_COMMON_REFERENCE && !function->is_linkage) {
            dwarf = dwarf_common(dwarf);
            unit.end = 0;
        }
        bool is_known = next.kind == VALUE_REFERENCE || next.kind == VALUE_COMMON_REFERENCE;
        entry = dwarf && is_known ? next.number : 0;
    }
    return function->name.kind == VALUE_NONE ? -ENOENT : 0;
}
