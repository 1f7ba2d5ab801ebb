#include "agent/unwind/cfi_entry.h"

#include <errno.h>

enum {
    /* Entries of the table that are tried: the one that begins last before an address is that of a
     * function of no length, or of one within another, where the address is not in it. */
    CANDIDATES = 4,
    /* Letters of an augmentation; in use are up to five. */
    AUGMENTATION_MAX = 15,
};

bool cfi_eh_frame(const struct object *object, struct cfi_section *section)
{
    *section = (struct cfi_section){
        .table = &object->eh_frame,
        .index = object->fde_index,
        .count = object->fde_count,
        .code_base = object->eh_frame_hdr.vaddr,
        .entry_base = object->eh_frame_hdr.vaddr,
    };
    return section->count != 0;
}

bool cfi_debug_frame(const struct object *object, struct cfi_section *section)
{
    const struct object_debug_frame *frame = load_acquire(&object->debug_frame);
    if (!frame)
        return false;
    *section = (struct cfi_section){
        .table = &frame->table,
        .index = frame->index,
        .count = frame->count,
        .is_debug = true,
        .code_base = frame->code_base,
    };
    return section->count != 0;
}

bool cfi_open_entry(const struct cfi_section *section, uint64_t vaddr, struct cfi_entry *entry)
{
    const struct object_table *table = section->table;
    uint64_t offset = vaddr - table->vaddr;
    if (offset >= table->size)
        return false;
    struct dwarf_cursor *c = &entry->cursor;
    *c = dwarf_cursor(table->data + offset, table->size - offset, vaddr);
    uint64_t length = dwarf_u32(c);
    bool is_wide = length == 0xffffffff;
    if (is_wide)
        length = dwarf_u64(c);
    if (c->bad)
        return false;
    if (length == 0) {
        entry->kind = CFI_TERMINATOR;
        c->end = c->at;
        return true;
    }
    if (length > (uint64_t)(c->end - c->at))
        return false;
    c->end = c->at + length;
    uint64_t field = dwarf_vaddr(c);
    uint64_t pointer, mark = 0;
    if (!section->is_debug) {
        pointer = dwarf_u32(c);
        entry->cie = field - pointer;
    } else {
        pointer = is_wide ? dwarf_u64(c) : dwarf_u32(c);
        mark = is_wide ? UINT64_MAX : UINT32_MAX;
        entry->cie = pointer;
    }
    entry->kind = pointer == mark ? CFI_CIE : CFI_FDE;
    return !c->bad;
}

/* What the letters of the augmentation say; `a` is its data. */
static bool read_augmentation(const char *letters, struct dwarf_cursor *a, struct cfi_cie *cie)
{
    for (; *letters; letters++) {
        switch (*letters) {
        case 'R':
            cie->encoding = dwarf_u8(a);
            break;
        case 'L':
            dwarf_u8(a);
            break;
        case 'P': {
            uint8_t encoding = dwarf_u8(a);
            if (encoding == PE_ALIGNED) {
                dwarf_skip(a, -dwarf_vaddr(a) & 7);
                encoding = PE_ABSPTR;
            }
            /* Only its size matters: the personality routine is not for us. */
            dwarf_pointer(a, encoding & PE_FORMAT, 0);
            break;
        }
        case 'S':
            cie->signal_frame = true;
            break;
        case 'B': /* aarch64: return addresses signed with key B */
            break;
        default:
            return false;
        }
    }
    return !a->bad && cie->encoding != PE_OMIT;
}

bool cfi_read_cie(const struct cfi_section *section, uint64_t vaddr, struct cfi_cie *cie)
{
    struct cfi_entry entry;
    if (!cfi_open_entry(section, vaddr, &entry) || entry.kind != CFI_CIE)
        return false;
    struct dwarf_cursor *c = &entry.cursor;
    uint8_t version = dwarf_u8(c);
    if (version != 1 && version != 3 && version != 4)
        return false;
    const char *letters = (const char *)c->at;
    size_t length = 0;
    while (dwarf_u8(c))
        if (++length > AUGMENTATION_MAX)
            return false;
    if (c->bad)
        return false;
    /* gcc 2: a pointer to its own tables of exceptions. */
    if (letters[0] == 'e' && letters[1] == 'h') {
        dwarf_skip(c, sizeof(uint64_t));
        letters += 2;
    }
    /* Sizes of an address and of a segment selector. */
    if (version == 4 && dwarf_u16(c) != sizeof(uint64_t))
        return false;
    cie->code_align = dwarf_uleb(c);
    cie->data_align = (uint64_t)dwarf_sleb(c);
    cie->return_register = version == 1 ? dwarf_u8(c) : dwarf_uleb(c);
    cie->encoding = PE_ABSPTR;
    cie->signal_frame = false;
    cie->has_augmentation_data = letters[0] == 'z';
    struct dwarf_cursor data = *c;
    if (cie->has_augmentation_data) {
        uint64_t size = dwarf_uleb(c);
        data = *c;
        dwarf_skip(c, size);
        letters++;
    }
    /* Without the z nothing follows that a letter could want; S and B want nothing. */
    data.end = cie->has_augmentation_data ? c->at : data.at;
    cie->program = c->at;
    cie->program_end = c->end;
    return !c->bad && read_augmentation(letters, &data, cie);
}

bool cfi_read_fde(const struct cfi_section *section, const struct cfi_entry *entry,
                  const struct cfi_cie *cie, struct cfi_fde *fde)
{
    struct dwarf_cursor c = entry->cursor;
    fde->start = dwarf_pointer(&c, cie->encoding, section->entry_base);
    fde->size = dwarf_pointer(&c, cie->encoding & PE_FORMAT, 0);
    if (cie->has_augmentation_data)
        dwarf_skip(&c, dwarf_uleb(&c));
    fde->program = c.at;
    fde->program_end = c.end;
    return !c.bad;
}

static int32_t index_value(const struct cfi_section *section, uint32_t entry, uint32_t which)
{
    int32_t value;
    memcpy(&value, section->index + ((size_t)entry * 2 + which) * sizeof(value), sizeof(value));
    return value;
}

bool cfi_fde_at(const struct cfi_section *section, uint32_t entry, struct cfi_cie *cie,
                struct cfi_fde *fde)
{
    uint64_t at = section->entry_base + (uint64_t)(int64_t)index_value(section, entry, 1);
    struct cfi_entry e;
    return cfi_open_entry(section, at, &e) && e.kind == CFI_FDE &&
           cfi_read_cie(section, e.cie, cie) && cfi_read_fde(section, &e, cie, fde);
}

int cfi_find_fde(const struct cfi_section *section, uint64_t vaddr, struct cfi_cie *cie,
                 struct cfi_fde *fde)
{
    int64_t wanted = (int64_t)(vaddr - section->code_base);
    uint32_t low = 0, high = section->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (index_value(section, middle, 0) <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    for (int tries = 0; low > 0 && tries < CANDIDATES; tries++) {
        if (!cfi_fde_at(section, --low, cie, fde))
            return -EINVAL;
        if (vaddr - fde->start < fde->size)
            return 0;
    }
    return -ENOENT;
}
