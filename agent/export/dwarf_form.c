#include "agent/export/dwarf_form.h"

static struct dwarf_value value_of(enum dwarf_value_kind kind, uint64_t number)
{
    return (struct dwarf_value){.kind = (uint8_t)kind, .number = number};
}

static struct dwarf_value text_in(enum dwarf_section section, uint64_t offset)
{
    return (struct dwarf_value){.kind = VALUE_TEXT, .section = (uint8_t)section, .number = offset};
}

static struct dwarf_value skipped(struct cursor *cursor, uint64_t size)
{
    cursor_skip(cursor, size);
    return value_of(VALUE_OTHER, 0);
}

/* Within the unit. */
static struct dwarf_value reference(const struct dwarf_unit *unit, uint64_t distance)
{
    return distance < unit->end - unit->offset ? value_of(VALUE_REFERENCE, unit->offset + distance)
                                               : value_of(VALUE_OTHER, 0);
}

int dwarf_form_size(const struct dwarf_unit *unit, uint64_t form)
{
    switch (form) {
    case FORM_FLAG_PRESENT:
    case FORM_IMPLICIT_CONST:
        return 0;
    case FORM_DATA1:
    case FORM_FLAG:
    case FORM_REF1:
    case FORM_STRX1:
    case FORM_ADDRX1:
        return 1;
    case FORM_DATA2:
    case FORM_REF2:
    case FORM_STRX2:
    case FORM_ADDRX2:
        return 2;
    case FORM_STRX3:
    case FORM_ADDRX3:
        return 3;
    case FORM_DATA4:
    case FORM_REF4:
    case FORM_REF_SUP4:
    case FORM_STRX4:
    case FORM_ADDRX4:
        return 4;
    case FORM_ADDR:
    case FORM_DATA8:
    case FORM_REF8:
    case FORM_REF_SIG8:
    case FORM_REF_SUP8:
        return 8;
    case FORM_DATA16:
        return 16;
    case FORM_REF_ADDR:
        return unit->version <= 2 ? 8 : unit->offset_size;
    case FORM_STRP:
    case FORM_SEC_OFFSET:
    case FORM_LINE_STRP:
    case FORM_STRP_SUP:
    case FORM_GNU_REF_ALT:
    case FORM_GNU_STRP_ALT:
        return unit->offset_size;
    default:
        return -1;
    }
}

struct dwarf_value dwarf_read_form(struct cursor *cursor, const struct dwarf_unit *unit,
                                   uint64_t form, int64_t constant)
{
    if (form == FORM_INDIRECT) {
        form = cursor_uleb(cursor);
        if (form == FORM_IMPLICIT_CONST)
            form = FORM_INDIRECT; /* neither may stand there */
    }
    int size = dwarf_form_size(unit, form);
    uint64_t number = size > 0 && size <= 8 ? cursor_number(cursor, (unsigned)size) : 0;
    switch (form) {
    case FORM_FLAG_PRESENT:
        return value_of(VALUE_NUMBER, 1);
    case FORM_IMPLICIT_CONST:
        return value_of(VALUE_NUMBER, (uint64_t)constant);
    case FORM_DATA1:
    case FORM_FLAG:
    case FORM_DATA2:
    case FORM_DATA4:
    case FORM_DATA8:
    case FORM_SEC_OFFSET:
        return value_of(VALUE_NUMBER, number);
    case FORM_UDATA:
        return value_of(VALUE_NUMBER, cursor_uleb(cursor));
    case FORM_SDATA:
        return value_of(VALUE_NUMBER, (uint64_t)cursor_sleb(cursor));
    case FORM_ADDR:
        return value_of(VALUE_ADDRESS, number);
    case FORM_ADDRX1:
    case FORM_ADDRX2:
    case FORM_ADDRX3:
    case FORM_ADDRX4:
        return value_of(VALUE_ADDRESS_INDEX, number);
    case FORM_ADDRX:
    case FORM_GNU_ADDR_INDEX:
        return value_of(VALUE_ADDRESS_INDEX, cursor_uleb(cursor));
    case FORM_RNGLISTX:
        return value_of(VALUE_LIST_INDEX, cursor_uleb(cursor));
    case FORM_STRP:
        return text_in(DWARF_STR, number);
    case FORM_LINE_STRP:
        return text_in(DWARF_LINE_STR, number);
    case FORM_STRING: {
        uint64_t offset = cursor_offset(cursor);
        cursor_skip_text(cursor);
        return text_in(DWARF_INFO, offset);
    }
    case FORM_STRX1:
    case FORM_STRX2:
    case FORM_STRX3:
    case FORM_STRX4:
        return value_of(VALUE_TEXT_INDEX, number);
    case FORM_STRX:
    case FORM_GNU_STR_INDEX:
        return value_of(VALUE_TEXT_INDEX, cursor_uleb(cursor));
    case FORM_REF1:
    case FORM_REF2:
    case FORM_REF4:
    case FORM_REF8:
        return reference(unit, number);
    case FORM_REF_UDATA:
        return reference(unit, cursor_uleb(cursor));
    case FORM_REF_ADDR:
        return value_of(VALUE_REFERENCE, number);
    case FORM_REF_SIG8:
        return value_of(VALUE_OTHER, 0);
    case FORM_REF_SUP4:
    case FORM_REF_SUP8:
    case FORM_GNU_REF_ALT:
        return value_of(VALUE_COMMON_REFERENCE, number);
    case FORM_STRP_SUP:
    case FORM_GNU_STRP_ALT:
        return value_of(VALUE_COMMON_TEXT, number);
    case FORM_DATA16:
        return skipped(cursor, 16);
    case FORM_LOCLISTX:
        (void)cursor_uleb(cursor);
        return value_of(VALUE_OTHER, 0);
    case FORM_BLOCK1:
        return skipped(cursor, cursor_u8(cursor));
    case FORM_BLOCK2:
        return skipped(cursor, cursor_u16(cursor));
    case FORM_BLOCK4:
        return skipped(cursor, cursor_u32(cursor));
    case FORM_BLOCK:
    case FORM_EXPRLOC:
        return skipped(cursor, cursor_uleb(cursor));
    default:
        break;
    }
    cursor_skip(cursor, UINT64_MAX); /* nobody knows where it ends */
    return value_of(VALUE_NONE, 0);
}
