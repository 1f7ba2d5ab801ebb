#include "agent/export/plt.h"

#include <errno.h>
#include <string.h>

enum {
    SECTIONS_MAX = 4, /* .plt, .plt.got, .plt.sec, .plt.bnd */
    ENTRY_MAX = 16,
    CHUNK_RELOCATIONS = 64,
    RELOCATIONS_MAX = 4 << 20, /* of an object: 96 MiB to read */
};

struct table {
    uint64_t start, end, offset;
    uint64_t entry_size;
};

struct search {
    const struct elf_file *file;
    struct table tables[SECTIONS_MAX];
    uint32_t table_count;
    struct plt_entry *entries; /* by word */
    size_t count;
    uint64_t budget; /* of relocations */
    int error;
};

static void note_table(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct search *search = data;
    if (!(section->sh_flags & SHF_EXECINSTR) || section->sh_type != SHT_PROGBITS ||
        search->table_count == SECTIONS_MAX ||
        section->sh_addr + section->sh_size < section->sh_addr ||
        !elf_section_begins(search->file, section, ".plt"))
        return;
    search->tables[search->table_count++] = (struct table){
        .start = section->sh_addr,
        .end = section->sh_addr + section->sh_size,
        .offset = section->sh_offset,
        .entry_size = section->sh_entsize == 8 ? 8 : 16,
    };
}

static const struct table *table_at(const struct search *search, uint64_t address)
{
    for (uint32_t i = 0; i < search->table_count; i++)
        if (address >= search->tables[i].start && address < search->tables[i].end)
            return &search->tables[i];
    return NULL;
}

static uint32_t word_at(const uint8_t *code)
{
    uint32_t word;
    memcpy(&word, code, sizeof(word));
    return word;
}

/* What the entry at `entry->low` jumps through. */
static void read_code(struct plt_entry *entry, const uint8_t *code, size_t size)
{
    entry->number = UINT64_MAX;
#if defined(__x86_64__)
    enum { PUSH = 0x68, PUSH_SIZE = 5, JUMP_SIZE = 6, BND = 0xf2 };
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa}, jump[] = {0xff, 0x25};
    size_t at =
        size >= sizeof(endbr) && memcmp(code, endbr, sizeof(endbr)) == 0 ? sizeof(endbr) : 0;
    if (size >= at + PUSH_SIZE && code[at] == PUSH) {
        entry->number = word_at(code + at + 1);
        return;
    }
    if (at < size && code[at] == BND)
        at++;
    if (size >= at + JUMP_SIZE && memcmp(code + at, jump, sizeof(jump)) == 0)
        entry->word = entry->low + at + JUMP_SIZE +
                      (uint64_t)(int64_t)(int32_t)word_at(code + at + sizeof(jump));
#elif defined(__aarch64__)
    /* adrp x16, page; ldr x17, [x16, #offset]; behind a bti c, where there is one. */
    enum { BTI_C = 0xd503245f, ADRP_X16 = 0x90000010, LDR_X17 = 0xf9400211 };
    size_t at = size >= 4 && word_at(code) == BTI_C ? 4 : 0;
    if (size < at + 8)
        return;
    uint32_t adrp = word_at(code + at), ldr = word_at(code + at + 4);
    if ((adrp & 0x9f00001f) != ADRP_X16 || (ldr & 0xffc003ff) != LDR_X17)
        return;
    uint64_t pages = (adrp >> 29 & 3) | (adrp >> 5 & 0x7ffff) << 2;
    int64_t distance = (int64_t)(pages << 43) >> 31; /* 21 bits with a sign, times 4,096 */
    entry->word = ALIGN_DOWN(entry->low, (uint64_t)4096) + (uint64_t)distance +
                  (uint64_t)(ldr >> 10 & 0xfff) * 8;
#endif
}

/* Entries are kept by word, for the look-up. */
static void sift_in(struct plt_entry *entries, size_t last)
{
    struct plt_entry entry = entries[last];
    while (last > 0 && entries[last - 1].word > entry.word) {
        entries[last] = entries[last - 1];
        last--;
    }
    entries[last] = entry;
}

static int read_entries(struct search *search, const uint64_t *addresses,
                        const struct symbol_name *names, size_t count, struct buffer *entries)
{
    uint64_t done = 0; /* behind the last entry */
    for (size_t i = 0; i < count && search->count < PLT_ENTRIES_MAX; i++) {
        const struct table *table =
            names[i].length || addresses[i] < done ? NULL : table_at(search, addresses[i]);
        if (!table)
            continue;
        uint64_t at = ALIGN_DOWN(addresses[i] - table->start, table->entry_size);
        struct plt_entry entry = {.low = table->start + at};
        uint8_t code[ENTRY_MAX];
        size_t size = (size_t)MIN_OF(table->entry_size, table->end - entry.low);
        done = entry.high = entry.low + size;
        if (elf_read(search->file, table->offset + at, code, size))
            continue;
        read_code(&entry, code, size);
        buffer_append(entries, &entry, sizeof(entry));
        if (entries->error)
            return entries->error;
        sift_in((struct plt_entry *)(void *)entries->data, search->count++);
    }
    search->entries = (struct plt_entry *)(void *)entries->data;
    return 0;
}

static void take(struct plt_entry *entry, const Elf64_Rela *relocation)
{
    entry->symbol = (uint32_t)ELF64_R_SYM(relocation->r_info);
    entry->resolver = entry->symbol ? 0 : (uint64_t)relocation->r_addend;
}

static void match(struct search *search, const Elf64_Rela *relocation, uint64_t number)
{
    size_t low = 0, high = search->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (search->entries[middle].word < relocation->r_offset)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < search->count && search->entries[low].word == relocation->r_offset; low++)
        take(&search->entries[low], relocation);
    /* Those without a word come first. */
    for (size_t i = 0; i < search->count && search->entries[i].word == 0; i++)
        if (search->entries[i].number == number)
            take(&search->entries[i], relocation);
}

static void read_relocations(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct search *search = data;
    if (section->sh_type != SHT_RELA || section->sh_entsize != sizeof(Elf64_Rela) ||
        !(section->sh_flags & SHF_ALLOC) || search->error)
        return;
    bool is_plt = elf_section_begins(search->file, section, ".rela.plt");
    struct elf_extent extent = {.offset = section->sh_offset, .size = section->sh_size};
    Elf64_Rela chunk[CHUNK_RELOCATIONS];
    uint64_t number = 0;
    for (uint64_t at = 0; search->budget > 0; at += sizeof(chunk)) {
        long got = elf_read_some(search->file, extent, at, chunk, sizeof(chunk));
        if (got < 0)
            search->error = (int)got;
        if (got <= 0)
            return;
        size_t count = MIN_OF((size_t)got / sizeof(chunk[0]), (size_t)search->budget);
        search->budget -= count;
        for (size_t i = 0; i < count; i++, number++)
            match(search, &chunk[i], is_plt ? number : UINT64_MAX - 1);
    }
}

int plt_find(const struct elf_file *file, const uint64_t *addresses,
             const struct symbol_name *names, size_t count, struct buffer *entries)
{
    struct search search = {.file = file, .budget = RELOCATIONS_MAX};
    int error = elf_each_section(file, note_table, &search);
    if (error || search.table_count == 0)
        return error;
    error = read_entries(&search, addresses, names, count, entries);
    if (error || search.count == 0)
        return error;
    error = elf_each_section(file, read_relocations, &search);
    return error ? error : search.error;
}
