#include "agent/export/dwarf_file.h"

#include <errno.h>

#include "agent/base/sys.h"
#include "agent/export/address_search.h"
#include "agent/export/debug_file.h"

enum {
    UNIT_TYPE_COMPILE = 1,
    UNIT_TYPE_TYPES = 2,
    UNIT_TYPE_PARTIAL = 3,
    UNIT_TYPE_SKELETON = 4,
    UNIT_TYPE_SPLIT_COMPILE = 5,
    UNIT_TYPE_SPLIT_TYPES = 6,
};

static const char *const section_names[DWARF_SECTIONS] = {
    [DWARF_INFO] = ".debug_info",
    [DWARF_ABBREV] = ".debug_abbrev",
    [DWARF_LINE] = ".debug_line",
    [DWARF_STR] = ".debug_str",
    [DWARF_LINE_STR] = ".debug_line_str",
    [DWARF_RANGES] = ".debug_ranges",
    [DWARF_RNGLISTS] = ".debug_rnglists",
    [DWARF_ADDR] = ".debug_addr",
    [DWARF_STR_OFFSETS] = ".debug_str_offsets",
};

/* All that are there, or none: with some of them alone, answers would be wrong. */
static int open_sections(struct dwarf_file *dwarf, size_t room)
{
    uint64_t need = 0;
    for (int i = 0; i < DWARF_SECTIONS; i++) {
        uint64_t more = debug_section_need(dwarf->file, section_names[i]);
        if (more > room - need)
            return -E2BIG;
        need += more;
    }
    for (int i = 0; i < DWARF_SECTIONS; i++) {
        dwarf->states[i] =
            debug_section_open(&dwarf->sections[i], dwarf->file, section_names[i], &room);
        bool is_needed = i == DWARF_INFO && !dwarf->is_common; /* which may have texts alone */
        if (dwarf->states[i] && (dwarf->states[i] != -ENOENT || is_needed))
            return dwarf->states[i];
    }
    dwarf->unpacked = need;
    dwarf->room = room;
    return 0;
}

static void free_file(struct dwarf_file *dwarf)
{
    for (int i = 0; i < DWARF_SECTIONS; i++)
        if (dwarf->states[i] == 0)
            debug_section_close(&dwarf->sections[i]);
    for (int i = 0; i < DWARF_TABLES; i++) {
        buffer_free(&dwarf->tables[i].entries);
        buffer_free(&dwarf->tables[i].attributes);
    }
    buffer_free(&dwarf->first_table.entries);
    buffer_free(&dwarf->first_table.attributes);
    buffer_free(&dwarf->units);
    sys_unmap(dwarf, sizeof(*dwarf));
}

static int open_file(struct dwarf_file **dwarf, const struct elf_file *file, size_t room,
                     uint64_t *steps, bool is_common)
{
    struct dwarf_file *opened = sys_map(sizeof(*opened));
    if (!opened)
        return -ENOMEM;
    opened->file = file;
    opened->steps = steps;
    opened->is_common = is_common;
    for (int i = 0; i < DWARF_SECTIONS; i++)
        opened->states[i] = -ENOENT;
    int error = open_sections(opened, room);
    if (error)
        free_file(opened);
    else
        *dwarf = opened;
    return error;
}

int dwarf_open(struct dwarf_file **dwarf, const struct elf_file *file, size_t room, uint64_t *steps)
{
    return open_file(dwarf, file, room, steps, false);
}

void dwarf_close(struct dwarf_file *dwarf)
{
    if (dwarf->common) {
        free_file(dwarf->common);
        elf_close(&dwarf->common_file);
    }
    free_file(dwarf);
}

int dwarf_cursor(struct dwarf_file *dwarf, enum dwarf_section section, void *window,
                 size_t window_size, uint64_t offset, struct cursor *cursor)
{
    if (dwarf->states[section])
        return dwarf->states[section];
    if (!dwarf_take_steps(dwarf, 1))
        return -EAGAIN;
    cursor_begin(cursor, &dwarf->sections[section], window, window_size, dwarf->steps);
    cursor_seek(cursor, offset);
    return cursor->failed ? -ENOEXEC : 0;
}

int dwarf_read_unit(struct dwarf_file *dwarf, uint64_t offset, struct dwarf_unit *unit)
{
    struct cursor cursor;
    if (offset >= dwarf->sections[DWARF_INFO].size)
        return -ENOENT;
    int error = dwarf_cursor(dwarf, DWARF_INFO, dwarf->info_window, sizeof(dwarf->info_window),
                             offset, &cursor);
    if (error)
        return error;
    *unit = (struct dwarf_unit){.offset = offset, .offset_size = 4, .has_code = true};
    uint64_t length = cursor_u32(&cursor);
    if (length == UINT32_MAX) {
        unit->offset_size = 8;
        length = cursor_u64(&cursor);
    }
    uint64_t start = cursor_offset(&cursor);
    if (cursor.failed || length == 0 || length > dwarf->sections[DWARF_INFO].size - start)
        return -ENOEXEC;
    unit->end = start + length;
    unit->version = cursor_u16(&cursor);
    uint8_t address_size, type = UNIT_TYPE_COMPILE;
    if (unit->version >= 5) {
        type = cursor_u8(&cursor);
        address_size = cursor_u8(&cursor);
        unit->abbrev_offset = cursor_number(&cursor, unit->offset_size);
    } else {
        unit->abbrev_offset = cursor_number(&cursor, unit->offset_size);
        address_size = cursor_u8(&cursor);
    }
    if (type == UNIT_TYPE_SKELETON || type == UNIT_TYPE_SPLIT_COMPILE)
        cursor_skip(&cursor, 8); /* its number */
    else if (type == UNIT_TYPE_TYPES || type == UNIT_TYPE_SPLIT_TYPES)
        cursor_skip(&cursor, 8 + (uint64_t)unit->offset_size);
    unit->first = cursor_offset(&cursor);
    /* Of others at least the length is known. */
    bool is_known = unit->version >= 2 && unit->version <= 5 && address_size == 8 &&
                    type >= UNIT_TYPE_COMPILE && type <= UNIT_TYPE_SPLIT_TYPES;
    unit->has_code = is_known && type != UNIT_TYPE_TYPES && type != UNIT_TYPE_SPLIT_TYPES;
    if (!is_known)
        unit->version = 0;
    return cursor.failed || unit->first > unit->end ? -ENOEXEC : 0;
}

int dwarf_unit_of(struct dwarf_file *dwarf, uint64_t offset, struct dwarf_unit *unit)
{
    const uint64_t *offsets = (const void *)dwarf->units.data;
    size_t above = address_lower_bound(offsets, dwarf->units.size / sizeof(offsets[0]), offset + 1);
    if (above == 0)
        return -ENOEXEC;
    int error = dwarf_read_unit(dwarf, offsets[above - 1], unit);
    return error ? error : offset < unit->first || offset >= unit->end ? -ENOEXEC : 0;
}

/* ---- The common file ------------------------------------------------------------------------- */

enum { BYTES_A_STEP = 8 }; /* of what is unpacked */

static int list_units(struct dwarf_file *dwarf)
{
    struct dwarf_unit unit;
    int error = 0;
    for (uint64_t at = 0; dwarf->units.size < DWARF_UNITS_MAX * sizeof(at); at = unit.end) {
        error = dwarf_read_unit(dwarf, at, &unit);
        if (error)
            break;
        buffer_append(&dwarf->units, &at, sizeof(at));
    }
    return error == -ENOENT ? dwarf->units.error : error;
}

struct dwarf_file *dwarf_common(struct dwarf_file *dwarf)
{
    /* A common file has none: there is no chain of them. */
    if (dwarf->was_common_looked_for || dwarf->is_common)
        return dwarf->common;
    dwarf->was_common_looked_for = true;
    struct dwarf_file *common;
    if (debug_file_open_common(&dwarf->common_file, dwarf->file))
        return NULL;
    if (open_file(&common, &dwarf->common_file, dwarf->room, dwarf->steps, true)) {
        elf_close(&dwarf->common_file);
        return NULL;
    }
    if (!dwarf_take_steps(dwarf, common->unpacked / BYTES_A_STEP) || list_units(common)) {
        free_file(common);
        elf_close(&dwarf->common_file);
        return NULL;
    }
    return dwarf->common = common;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The number at place `index` of a table of offsets or addresses. */
static bool look_up(struct dwarf_file *dwarf, enum dwarf_section section, uint64_t base,
                    uint64_t index, unsigned size, uint64_t *found)
{
    struct cursor cursor;
    if (index > UINT32_MAX || base > INT64_MAX ||
        dwarf_cursor(dwarf, section, dwarf->small_window, CURSOR_WINDOW_MIN, base + index * size,
                     &cursor))
        return false;
    *found = cursor_number(&cursor, size);
    return !cursor.failed;
}

size_t dwarf_text(struct dwarf_file *dwarf, const struct dwarf_unit *unit, struct dwarf_value value,
                  char *text, size_t size)
{
    struct cursor cursor;
    text[0] = 0;
    if (value.kind == VALUE_COMMON_TEXT) {
        dwarf = dwarf_common(dwarf);
        if (!dwarf)
            return 0;
        value =
            (struct dwarf_value){.kind = VALUE_TEXT, .section = DWARF_STR, .number = value.number};
    }
    if (value.kind == VALUE_TEXT_INDEX) {
        if (!look_up(dwarf, DWARF_STR_OFFSETS, unit->texts_base, value.number, unit->offset_size,
                     &value.number))
            return 0;
        value.kind = VALUE_TEXT;
        value.section = DWARF_STR;
    }
    if (value.kind != VALUE_TEXT ||
        dwarf_cursor(dwarf, value.section, dwarf->small_window, sizeof(dwarf->small_window),
                     value.number, &cursor))
        return 0;
    size_t length = cursor_text(&cursor, text, size);
    (void)dwarf_take_steps(dwarf, length / 8);
    return length;
}

bool dwarf_address(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                   struct dwarf_value value, uint64_t *address)
{
    *address = value.number;
    if (value.kind == VALUE_ADDRESS)
        return true;
    return value.kind == VALUE_ADDRESS_INDEX &&
           look_up(dwarf, DWARF_ADDR, unit->addresses_base, value.number, 8, address);
}
