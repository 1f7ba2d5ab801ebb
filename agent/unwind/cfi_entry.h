/* cfi_entry.h: the entries of .eh_frame and .debug_frame: CIEs, and FDEs that say which code they
 * are for and by which program.
 *
 * The two sections differ in three points: how a CIE is marked (0; all ones), what an FDE's
 * pointer to its CIE counts from (itself; the section), and how wide both are in entries of 64-bit
 * DWARF (four bytes in .eh_frame; eight). All addresses are ELF virtual addresses; .debug_frame,
 * which is loaded nowhere, begins at 0. Every read is bounded by the section.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_CFI_ENTRY_H
#define LIBAGENT_CFI_ENTRY_H

#include "agent/unwind/dwarf_cursor.h"
#include "agent/unwind/modules.h"

/* A section, and a table sorted by address that finds its FDEs: pairs of int32, the first address
 * of the code from code_base on, and the FDE from entry_base on. */
struct cfi_section {
    const struct object_table *table;
    const uint8_t *index;
    uint32_t count;
    bool is_debug;
    uint64_t code_base, entry_base; /* also what datarel addresses count from */
};

struct cfi_cie {
    const uint8_t *program, *program_end;
    uint64_t code_align;
    uint64_t data_align; /* modulo 2^64, as is what it is multiplied with: any table is defined */
    uint64_t return_register;
    uint8_t encoding; /* of FDE addresses */
    bool has_augmentation_data;
    bool signal_frame;
};

struct cfi_fde {
    const uint8_t *program, *program_end;
    uint64_t start, size; /* of the code */
};

enum cfi_entry_kind { CFI_CIE, CFI_FDE, CFI_TERMINATOR };

struct cfi_entry {
    enum cfi_entry_kind kind;
    uint64_t cie;               /* an FDE's */
    struct dwarf_cursor cursor; /* behind the pointer to the CIE, or the mark of one */
};

/* Where the next entry begins. */
static inline uint64_t cfi_entry_end(const struct cfi_entry *entry)
{
    return (uintptr_t)entry->cursor.end + entry->cursor.to_vaddr;
}

/* The sections of an object; false when it has none, or no table that finds its FDEs. */
bool cfi_eh_frame(const struct object *object, struct cfi_section *section);
bool cfi_debug_frame(const struct object *object, struct cfi_section *section);

/* The entry at `vaddr`; false when there is none whose length makes sense. */
bool cfi_open_entry(const struct cfi_section *section, uint64_t vaddr, struct cfi_entry *entry);
/* False when malformed, or of a kind that is not supported. */
bool cfi_read_cie(const struct cfi_section *section, uint64_t vaddr, struct cfi_cie *cie);
/* The same for an entry that is an FDE of `cie`. */
bool cfi_read_fde(const struct cfi_section *section, const struct cfi_entry *entry,
                  const struct cfi_cie *cie, struct cfi_fde *fde);
/* The FDE of an entry of the table. */
bool cfi_fde_at(const struct cfi_section *section, uint32_t entry, struct cfi_cie *cie,
                struct cfi_fde *fde);
/* 0; -ENOENT when no FDE covers `vaddr`; -EINVAL. */
int cfi_find_fde(const struct cfi_section *section, uint64_t vaddr, struct cfi_cie *cie,
                 struct cfi_fde *fde) MUST_USE;

#endif
