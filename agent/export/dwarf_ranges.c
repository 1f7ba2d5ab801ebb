#include "agent/export/dwarf_file.h"

/* Kinds of entries in .debug_rnglists. */
enum {
    RANGE_END,
    RANGE_BASE_INDEX,
    RANGE_START_INDEX_END_INDEX,
    RANGE_START_INDEX_LENGTH,
    RANGE_OFFSETS,
    RANGE_BASE,
    RANGE_START_END,
    RANGE_START_LENGTH
};

typedef bool (*range_fn)(uint64_t low, uint64_t high, void *data);

static bool by_index(struct dwarf_file *dwarf, const struct dwarf_unit *unit, uint64_t index,
                     uint64_t *address)
{
    struct dwarf_value value = {.kind = VALUE_ADDRESS_INDEX, .number = index};
    return dwarf_address(dwarf, unit, value, address);
}

/* Up to version 4: pairs relative to a base, which pairs with a greatest first number set. */
static void old_list(struct dwarf_file *dwarf, const struct dwarf_unit *unit, uint64_t offset,
                     range_fn each, void *data)
{
    struct cursor cursor;
    uint64_t base = unit->low;
    if (dwarf_cursor(dwarf, DWARF_RANGES, dwarf->ranges_window, sizeof(dwarf->ranges_window),
                     offset, &cursor))
        return;
    while (dwarf_take_steps(dwarf, 1)) {
        uint64_t low = cursor_u64(&cursor), high = cursor_u64(&cursor);
        if (cursor.failed || (low == 0 && high == 0))
            return;
        if (low == UINT64_MAX)
            base = high;
        else if (low < high && !each(base + low, base + high, data))
            return;
    }
}

static void list(struct dwarf_file *dwarf, const struct dwarf_unit *unit, uint64_t offset,
                 range_fn each, void *data)
{
    struct cursor cursor;
    uint64_t base = unit->low;
    if (dwarf_cursor(dwarf, DWARF_RNGLISTS, dwarf->ranges_window, sizeof(dwarf->ranges_window),
                     offset, &cursor))
        return;
    while (dwarf_take_steps(dwarf, 1)) {
        uint64_t low = 0, high = 0;
        bool is_range = true, is_good = true;
        switch (cursor_u8(&cursor)) {
        case RANGE_BASE_INDEX:
            is_range = false;
            is_good = by_index(dwarf, unit, cursor_uleb(&cursor), &base);
            break;
        case RANGE_START_INDEX_END_INDEX:
            is_good = by_index(dwarf, unit, cursor_uleb(&cursor), &low);
            is_good = by_index(dwarf, unit, cursor_uleb(&cursor), &high) && is_good;
            break;
        case RANGE_START_INDEX_LENGTH:
            is_good = by_index(dwarf, unit, cursor_uleb(&cursor), &low);
            high = low + cursor_uleb(&cursor);
            break;
        case RANGE_OFFSETS:
            low = base + cursor_uleb(&cursor);
            high = base + cursor_uleb(&cursor);
            break;
        case RANGE_BASE:
            is_range = false;
            base = cursor_u64(&cursor);
            break;
        case RANGE_START_END:
            low = cursor_u64(&cursor);
            high = cursor_u64(&cursor);
            break;
        case RANGE_START_LENGTH:
            low = cursor_u64(&cursor);
            high = low + cursor_uleb(&cursor);
            break;
        default: /* RANGE_END, or not known */
            return;
        }
        if (cursor.failed || (is_good && is_range && low < high && !each(low, high, data)))
            return;
    }
}

/* Where the list stands whose number is given: the table of offsets is at lists_base. */
static bool find_list(struct dwarf_file *dwarf, const struct dwarf_unit *unit, uint64_t index,
                      uint64_t *offset)
{
    struct cursor cursor;
    uint64_t base = unit->lists_base;
    if (index > UINT32_MAX || base > INT64_MAX ||
        dwarf_cursor(dwarf, DWARF_RNGLISTS, dwarf->small_window, CURSOR_WINDOW_MIN,
                     base + index * unit->offset_size, &cursor))
        return false;
    *offset = base + cursor_number(&cursor, unit->offset_size);
    return !cursor.failed;
}

void dwarf_ranges(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                  const struct dwarf_scope *scope,
                  bool (*each)(uint64_t low, uint64_t high, void *data), void *data)
{
    uint64_t low, high, offset = scope->ranges.number;
    if (scope->ranges.kind == VALUE_LIST_INDEX) {
        if (find_list(dwarf, unit, scope->ranges.number, &offset))
            list(dwarf, unit, offset, each, data);
    } else if (scope->ranges.kind == VALUE_NUMBER) {
        if (unit->version >= 5)
            list(dwarf, unit, offset, each, data);
        else
            old_list(dwarf, unit, offset, each, data);
    } else if (dwarf_address(dwarf, unit, scope->low, &low)) {
        /* The end is an address, or how far it is to it. */
        if (scope->high.kind == VALUE_NUMBER)
            high = low + scope->high.number;
        else if (!dwarf_address(dwarf, unit, scope->high, &high))
            return;
        if (low < high)
            (void)each(low, high, data);
    }
}
