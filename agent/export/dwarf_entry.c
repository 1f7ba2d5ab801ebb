#include "agent/export/dwarf_entry.h"

#include <errno.h>

#include "agent/export/dwarf_form.h"

enum {
    ABBREVIATIONS_MAX = 1 << 14, /* of a table: 0.5 MiB; Chromium's largest has under 2,000 */
    ATTRIBUTES_MAX = 1 << 16,    /* 1 MiB */
    FORM_MAX = 0xffff,
};

/* The table as far as it can be read (a broken end costs what uses it), or up to the code `last`.
 */
static void read_entries(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                         struct cursor *cursor, struct abbreviation_table *table, uint64_t last)
{
    uint32_t attributes = 0;
    for (uint32_t n = 0; n < ABBREVIATIONS_MAX && dwarf_take_steps(dwarf, 1); n++) {
        struct abbreviation entry = {.code = cursor_uleb(cursor), .is_fixed = true};
        if (cursor->failed || entry.code == 0)
            return;
        uint64_t tag = cursor_uleb(cursor);
        entry.tag = tag <= UINT32_MAX ? (uint32_t)tag : 0;
        entry.has_children = cursor_u8(cursor) != 0;
        entry.first = attributes;
        for (;;) {
            uint64_t name = cursor_uleb(cursor), form = cursor_uleb(cursor);
            struct abbreviation_attribute attribute = {
                .name = name <= FORM_MAX ? (uint32_t)name : 0,
                .form = form <= FORM_MAX ? (uint32_t)form : FORM_MAX};
            if (form == FORM_IMPLICIT_CONST)
                attribute.constant = cursor_sleb(cursor);
            if (cursor->failed || !dwarf_take_steps(dwarf, 1))
                return;
            if (name == 0 && form == 0)
                break;
            int size = dwarf_form_size(unit, attribute.form);
            if (size < 0)
                entry.is_fixed = false;
            else
                entry.size += (uint32_t)size;
            if (name == ATTRIBUTE_SIBLING)
                entry.has_sibling = true;
            if (attributes++ == ATTRIBUTES_MAX)
                return;
            buffer_append(&table->attributes, &attribute, sizeof(attribute));
        }
        entry.count = attributes - entry.first;
        buffer_append(&table->entries, &entry, sizeof(entry));
        if (table->entries.error || table->attributes.error || entry.code == last)
            return;
    }
}

/* False where there is no memory, or no step left: then the table is not whole. */
static bool read_table(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                       struct abbreviation_table *table, uint64_t last)
{
    struct cursor cursor;
    table->entries.size = table->attributes.size = 0;
    table->offset_size = 0;
    if (dwarf_cursor(dwarf, DWARF_ABBREV, dwarf->abbrev_window, sizeof(dwarf->abbrev_window),
                     unit->abbrev_offset, &cursor))
        return false;
    read_entries(dwarf, unit, &cursor, table, last);
    if (*dwarf->steps == 0)
        return false;
    if (table->entries.error || table->attributes.error) {
        buffer_free(&table->entries);
        buffer_free(&table->attributes);
        return false;
    }
    table->offset_size = unit->offset_size;
    table->version = unit->version;
    table->offset = unit->abbrev_offset;
    return true;
}

struct abbreviation_table *dwarf_table(struct dwarf_file *dwarf, const struct dwarf_unit *unit)
{
    for (int i = 0; i < DWARF_TABLES; i++) {
        struct abbreviation_table *kept = &dwarf->tables[i];
        if (kept->offset_size == unit->offset_size && kept->version == unit->version &&
            kept->offset == unit->abbrev_offset)
            return kept;
    }
    struct abbreviation_table *table = &dwarf->tables[dwarf->next_table];
    dwarf->next_table = (dwarf->next_table + 1) % DWARF_TABLES;
    return read_table(dwarf, unit, table, 0) ? table : NULL;
}

const struct abbreviation *dwarf_abbreviation(struct dwarf_file *dwarf,
                                              const struct abbreviation_table *table, uint64_t code)
{
    const struct abbreviation *entries = (const void *)table->entries.data;
    size_t count = table->entries.size / sizeof(*entries);
    if (code - 1 < count && entries[code - 1].code == code) /* as compilers number them */
        return &entries[code - 1];
    for (size_t i = 0; i < count; i++)
        if (entries[i].code == code)
            return dwarf_take_steps(dwarf, i / 4) ? &entries[i] : NULL;
    (void)dwarf_take_steps(dwarf, count / 4);
    return NULL;
}

struct dwarf_value dwarf_read_value(struct cursor *cursor, const struct dwarf_unit *unit,
                                    const struct abbreviation_attribute *attribute)
{
    return dwarf_read_form(cursor, unit, attribute->form, attribute->constant);
}

int dwarf_read_first(struct dwarf_file *dwarf, struct dwarf_unit *unit)
{
    struct cursor cursor;
    int error = dwarf_cursor(dwarf, DWARF_INFO, dwarf->info_window, sizeof(dwarf->info_window),
                             unit->first, &cursor);
    if (error)
        return error;
    /* Mostly the first abbreviation of the unit's table: the others are not needed yet. */
    struct abbreviation_table *table = &dwarf->first_table;
    uint64_t code = cursor_uleb(&cursor);
    const struct abbreviation *entry =
        read_table(dwarf, unit, table, code) ? dwarf_abbreviation(dwarf, table, code) : NULL;
    if (!entry)
        return -ENOEXEC;
    for (uint32_t i = 0; i < entry->count; i++) {
        const struct abbreviation_attribute *attribute = &dwarf_attributes(table, entry)[i];
        struct dwarf_value value = dwarf_read_value(&cursor, unit, attribute);
        switch (attribute->name) {
        case ATTRIBUTE_LOW_PC:
            unit->scope.low = value;
            break;
        case ATTRIBUTE_HIGH_PC:
            unit->scope.high = value;
            break;
        case ATTRIBUTE_RANGES:
            unit->scope.ranges = value;
            break;
        case ATTRIBUTE_STMT_LIST:
            unit->line = value;
            break;
        case ATTRIBUTE_COMP_DIR:
            unit->folder = value;
            break;
        case ATTRIBUTE_ADDR_BASE:
        case ATTRIBUTE_GNU_ADDR_BASE:
            unit->addresses_base = value.number;
            break;
        case ATTRIBUTE_STR_OFFSETS_BASE:
            unit->texts_base = value.number;
            break;
        case ATTRIBUTE_RNGLISTS_BASE:
            unit->lists_base = value.number;
            break;
        default:
            break;
        }
    }
    if (cursor.failed)
        return -ENOEXEC;
    if (!dwarf_address(dwarf, unit, unit->scope.low, &unit->low))
        unit->low = 0;
    return 0;
}
