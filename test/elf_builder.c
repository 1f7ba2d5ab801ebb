#include "test/elf_builder.h"

#include <stdlib.h>
#include <string.h>

static const char build_id[BUILD_ID_MAX] = "a build id of twenty";

struct note {
    Elf64_Nhdr header;
    char name[4];
    char id[BUILD_ID_MAX];
};

static void *take(uint8_t **at, size_t size)
{
    void *part = *at;
    *at += (size + 7) / 8 * 8;
    return part;
}

struct elf_parts elf_build(const struct elf_symbol *symbols, size_t count, uint32_t table_type)
{
    size_t text = 1;
    for (size_t i = 0; i < count; i++)
        text += strlen(symbols[i].name) + 1;
    struct elf_parts e = {.data = calloc(1, 4096 + (count + 1) * sizeof(Elf64_Sym) + text)};
    uint8_t *at = e.data;
    e.header = take(&at, sizeof(Elf64_Ehdr));
    e.programs = take(&at, 2 * sizeof(Elf64_Phdr));
    e.note = take(&at, sizeof(struct note));
    e.symbols = take(&at, (count + 1) * sizeof(Elf64_Sym));
    e.strings = take(&at, text);
    e.sections = take(&at, ELF_SECTIONS * sizeof(Elf64_Shdr));
    e.size = (size_t)(at - e.data);

    memcpy(e.header->e_ident, ELFMAG, SELFMAG);
    e.header->e_ident[EI_CLASS] = ELFCLASS64;
    e.header->e_ident[EI_DATA] = ELFDATA2LSB;
    e.header->e_ident[EI_VERSION] = EV_CURRENT;
    e.header->e_type = ET_DYN;
#if defined(__x86_64__)
    e.header->e_machine = EM_X86_64;
#elif defined(__aarch64__)
    e.header->e_machine = EM_AARCH64;
#endif
    e.header->e_phoff = (uint64_t)((uint8_t *)e.programs - e.data);
    e.header->e_phentsize = sizeof(Elf64_Phdr);
    e.header->e_phnum = 2;
    e.header->e_shoff = (uint64_t)((uint8_t *)e.sections - e.data);
    e.header->e_shentsize = sizeof(Elf64_Shdr);
    e.header->e_shnum = ELF_SECTIONS;
    e.programs[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_flags = PF_R | PF_X,
                                 .p_vaddr = ELF_CODE,
                                 .p_offset = ELF_CODE,
                                 .p_filesz = ELF_CODE_SIZE,
                                 .p_memsz = ELF_CODE_SIZE};
    e.programs[1] = (Elf64_Phdr){.p_type = PT_NOTE,
                                 .p_offset = (uint64_t)(e.note - e.data),
                                 .p_filesz = sizeof(struct note),
                                 .p_align = 4};
    struct note note = {
        .header = {.n_namesz = 4, .n_descsz = BUILD_ID_MAX, .n_type = NT_GNU_BUILD_ID}};
    memcpy(note.name, "GNU", 4);
    memcpy(note.id, build_id, BUILD_ID_MAX);
    memcpy(e.note, &note, sizeof(note));

    size_t name = 1;
    for (size_t i = 0; i < count; i++) {
        strcpy(e.strings + name, symbols[i].name);
        e.symbols[i + 1] = (Elf64_Sym){
            .st_name = symbols[i].name[0] ? (uint32_t)name : 0,
            .st_info = ELF64_ST_INFO(symbols[i].binding, symbols[i].type),
            .st_shndx = symbols[i].section ? symbols[i].section : ELF_TEXT,
            .st_value = symbols[i].value,
            .st_size = symbols[i].size,
        };
        name += strlen(symbols[i].name) + 1;
    }
    e.sections[ELF_TEXT] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
                                        .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                        .sh_addr = ELF_CODE,
                                        .sh_size = ELF_CODE_SIZE};
    e.sections[ELF_DATA] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC};
    e.sections[ELF_SYMBOLS] = (Elf64_Shdr){.sh_type = table_type,
                                           .sh_offset = (uint64_t)((uint8_t *)e.symbols - e.data),
                                           .sh_size = (count + 1) * sizeof(Elf64_Sym),
                                           .sh_entsize = sizeof(Elf64_Sym),
                                           .sh_link = ELF_STRINGS};
    e.sections[ELF_STRINGS] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                           .sh_offset = (uint64_t)((uint8_t *)e.strings - e.data),
                                           .sh_size = text};
    return e;
}

struct object elf_built_object(const char *path)
{
    struct object object = {
        .path = path,
        .build_id_size = BUILD_ID_MAX,
        .segment_count = 1,
        .segments = {{.vaddr = ELF_CODE, .size = ELF_CODE_SIZE, .offset = ELF_CODE}},
    };
    memcpy(object.build_id, build_id, BUILD_ID_MAX);
    return object;
}
