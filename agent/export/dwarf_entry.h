/* dwarf_entry.h: the entries of a unit: what kind each is, its attributes, by the unit's table of
 * abbreviations (a few tables are kept, bounded).
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: buffers of the dwarf_file. */
#ifndef LIBAGENT_DWARF_ENTRY_H
#define LIBAGENT_DWARF_ENTRY_H

#include "agent/export/dwarf_file.h"

enum dwarf_tag {
    TAG_ARRAY_TYPE = 0x01,
    TAG_ENUMERATION_TYPE = 0x04,
    TAG_SUBROUTINE_TYPE = 0x15,
    TAG_INLINED_SUBROUTINE = 0x1d,
    TAG_SUBPROGRAM = 0x2e,
};

enum dwarf_attribute {
    ATTRIBUTE_SIBLING = 0x01,
    ATTRIBUTE_NAME = 0x03,
    ATTRIBUTE_STMT_LIST = 0x10,
    ATTRIBUTE_LOW_PC = 0x11,
    ATTRIBUTE_HIGH_PC = 0x12,
    ATTRIBUTE_COMP_DIR = 0x1b,
    ATTRIBUTE_ABSTRACT_ORIGIN = 0x31,
    ATTRIBUTE_DECL_FILE = 0x3a,
    ATTRIBUTE_DECL_LINE = 0x3b,
    ATTRIBUTE_SPECIFICATION = 0x47,
    ATTRIBUTE_RANGES = 0x55,
    ATTRIBUTE_CALL_FILE = 0x58,
    ATTRIBUTE_CALL_LINE = 0x59,
    ATTRIBUTE_LINKAGE_NAME = 0x6e,
    ATTRIBUTE_STR_OFFSETS_BASE = 0x72,
    ATTRIBUTE_ADDR_BASE = 0x73,
    ATTRIBUTE_RNGLISTS_BASE = 0x74,
    ATTRIBUTE_MIPS_LINKAGE_NAME = 0x2007,
    ATTRIBUTE_GNU_ADDR_BASE = 0x2133,
};

struct abbreviation {
    uint64_t code;
    uint32_t first, count; /* its attributes */
    uint32_t tag;
    uint32_t size; /* of its attributes together where `is_fixed` */
    bool has_children, is_fixed, has_sibling;
};

struct abbreviation_attribute {
    uint32_t name;
    uint32_t form;
    int64_t constant; /* where the form says so */
};

/* The unit's table; it stays until DWARF_TABLES others were asked for. NULL: it cannot be read. */
struct abbreviation_table *dwarf_table(struct dwarf_file *dwarf, const struct dwarf_unit *unit);
/* The abbreviation of that code, or NULL. */
const struct abbreviation *
dwarf_abbreviation(struct dwarf_file *dwarf, const struct abbreviation_table *table, uint64_t code);
static inline const struct abbreviation_attribute *
dwarf_attributes(const struct abbreviation_table *table, const struct abbreviation *abbreviation)
{
    return (const struct abbreviation_attribute *)(const void *)table->attributes.data +
           abbreviation->first;
}
/* Reads one value, and goes behind it. */
struct dwarf_value dwarf_read_value(struct cursor *cursor, const struct dwarf_unit *unit,
                                    const struct abbreviation_attribute *attribute);
/* Reads what struct dwarf_unit has of the unit's first entry. 0 or a negative errno. */
int dwarf_read_first(struct dwarf_file *dwarf, struct dwarf_unit *unit) MUST_USE;

#endif
