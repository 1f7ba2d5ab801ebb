#include "agent/unwind/elf_sections.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"

enum {
    /* Headers read at once: 1 KiB of stack. */
    BATCH = 16,
    /* Linked files have some 40 sections; only unlinked ones have thousands. */
    SECTIONS_MAX = 1024,
    NAME_SIZE = 16,
};

static bool read_at(int fd, uint64_t offset, void *data, size_t size)
{
    return sys_call4(SYS_pread64, fd, data, size, (long)offset) == (long)size;
}

static bool may_be_frames(const ElfW(Shdr) * s)
{
    if (s->sh_flags & SHF_EXECINSTR)
        return false;
#if defined(__x86_64__)
    if (s->sh_type == SHT_X86_64_UNWIND)
        return true;
#endif
    return s->sh_type == SHT_PROGBITS;
}

static void note_section(const ElfW(Shdr) * s, const char *name, uint64_t file_size,
                         struct elf_sections *sections)
{
    const struct elf_section section = {s->sh_addr, s->sh_offset, s->sh_size,
                                        (s->sh_flags & SHF_COMPRESSED) != 0};
    if (s->sh_size > file_size || s->sh_offset > file_size - s->sh_size)
        return;
    bool is_loaded = (s->sh_flags & SHF_ALLOC) != 0;
    if (is_loaded && strcmp(name, ".eh_frame") == 0 && !sections->eh_frame.size)
        sections->eh_frame = section;
    else if (!is_loaded && strcmp(name, ".debug_frame") == 0 && !sections->debug_frame.size)
        sections->debug_frame = section;
    else if (!is_loaded && strcmp(name, ".zdebug_frame") == 0 && !sections->debug_frame.size)
        sections->debug_frame = (struct elf_section){0, s->sh_offset, s->sh_size, true};
}

void elf_read_sections(int fd, uint64_t file_size, struct elf_sections *sections)
{
    memset(sections, 0, sizeof(*sections));
    ElfW(Ehdr) file;
    ElfW(Shdr) names, batch[BATCH];
    if (!read_at(fd, 0, &file, sizeof(file)) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_shentsize != sizeof(batch[0]) ||
        file.e_shstrndx >= file.e_shnum ||
        !read_at(fd, file.e_shoff + (uint64_t)file.e_shstrndx * sizeof(names), &names,
                 sizeof(names)))
        return;
    uint32_t count = MIN_OF((uint32_t)file.e_shnum, (uint32_t)SECTIONS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (i % BATCH == 0) {
            uint32_t wanted = MIN_OF(count - i, (uint32_t)BATCH);
            if (!read_at(fd, file.e_shoff + (uint64_t)i * sizeof(batch[0]), batch,
                         wanted * sizeof(batch[0])))
                return;
        }
        const ElfW(Shdr) *s = &batch[i % BATCH];
        char name[NAME_SIZE] = "";
        /* The file may end behind the name. */
        if (may_be_frames(s) && s->sh_size && s->sh_name < names.sh_size &&
            sys_call4(SYS_pread64, fd, name, sizeof(name) - 1,
                      (long)(names.sh_offset + s->sh_name)) > 0)
            note_section(s, name, file_size, sections);
    }
}
