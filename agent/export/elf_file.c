#include "agent/export/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/sys.h"

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#endif

enum {
    PROGRAM_HEADERS_MAX = 256, /* real files have about 15 */
    SECTIONS_MAX = 1 << 16,    /* the programs with most have some thousands */
    NOTES_MAX = 16 << 10,      /* bytes of one segment of notes; real ones have under 1 KiB */
    HEADERS_AT_ONCE = 16,      /* a read: 1 KiB of stack */
};

int elf_read(const struct elf_file *file, uint64_t offset, void *data, size_t size)
{
    if (offset > file->size || size > file->size - offset)
        return -EIO;
    for (size_t done = 0; done < size;) {
        long moved =
            sys_call4(SYS_pread64, file->fd, (uint8_t *)data + done, size - done, offset + done);
        if (moved == -EINTR)
            continue;
        if (moved < 0)
            return (int)moved;
        if (moved == 0)
            return -EIO; /* cut since it was opened */
        done += (size_t)moved;
    }
    return 0;
}

long elf_read_some(const struct elf_file *file, struct elf_extent extent, uint64_t offset,
                   void *data, size_t size)
{
    if (offset >= extent.size)
        return 0;
    size = MIN_OF(size, extent.size - offset);
    int error = elf_read(file, extent.offset + offset, data, size);
    return error ? error : (long)size;
}

static bool is_extent(const struct elf_file *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset;
}

static int read_header(struct elf_file *file)
{
    Elf64_Ehdr *header = &file->header;
    int error = elf_read(file, 0, header, sizeof(*header));
    if (error)
        return error == -EIO ? -ENOEXEC : error;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_ident[EI_VERSION] != EV_CURRENT ||
        header->e_machine != MACHINE || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum > PROGRAM_HEADERS_MAX)
        return -ENOEXEC;
    if (header->e_shoff == 0)
        return 0;
    if (header->e_shentsize != sizeof(Elf64_Shdr))
        return -ENOEXEC;
    uint64_t count = header->e_shnum;
    if (count == 0) { /* more than fit there: the first header has the number */
        Elf64_Shdr first;
        if (elf_read(file, header->e_shoff, &first, sizeof(first)))
            return -ENOEXEC;
        count = first.sh_size;
    }
    if (count > SECTIONS_MAX || !is_extent(file, header->e_shoff, count * sizeof(Elf64_Shdr)))
        return -ENOEXEC;
    file->section_count = (uint32_t)count;
    return 0;
}

int elf_open(struct elf_file *file, const char *path)
{
    *file = (struct elf_file){0};
    /* O_NONBLOCK: a pipe under that name must not hold us up. */
    file->fd = sys_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (file->fd < 0)
        return file->fd;
    struct stat status;
    int error = (int)sys_call2(SYS_fstat, file->fd, &status);
    if (!error && !S_ISREG(status.st_mode))
        error = -ENOEXEC;
    if (!error) {
        file->size = (uint64_t)status.st_size;
        file->device = status.st_dev;
        file->inode = status.st_ino;
        error = read_header(file);
    }
    if (error)
        elf_close(file);
    return error;
}

void elf_close(struct elf_file *file)
{
    sys_close(file->fd);
    file->fd = -1;
}

/* Calls `each` for every program header until one gives a value other than 0. */
static int each_program_header(const struct elf_file *file,
                               int (*each)(const struct elf_file *, const Elf64_Phdr *, void *),
                               void *data)
{
    for (uint32_t i = 0; i < file->header.e_phnum; i++) {
        Elf64_Phdr header;
        uint64_t at = file->header.e_phoff + i * sizeof(header);
        int result = at < file->header.e_phoff ? -EIO : elf_read(file, at, &header, sizeof(header));
        if (!result)
            result = each(file, &header, data);
        if (result)
            return result;
    }
    return 0;
}

static int equals_segment(const struct elf_file *file, const Elf64_Phdr *header, void *data)
{
    (void)file;
    const struct object_segment *segment = data;
    return header->p_type == PT_LOAD && header->p_flags & PF_X &&
           header->p_vaddr == segment->vaddr && header->p_memsz == segment->size &&
           header->p_offset == segment->offset;
}

struct build_id {
    uint8_t bytes[BUILD_ID_MAX];
    uint32_t size;
};

/* 1 when this note is the build id. */
static int find_build_id(const struct elf_file *file, const Elf64_Phdr *header, void *data)
{
    struct build_id *id = data;
    if (header->p_type != PT_NOTE)
        return 0;
    uint64_t size = MIN_OF(header->p_filesz, (uint64_t)NOTES_MAX);
    if (!is_extent(file, header->p_offset, size))
        return 0;
    uint64_t padding = header->p_align == 8 ? 8 : 4;
    for (uint64_t at = 0; size - at >= sizeof(Elf64_Nhdr);) {
        struct {
            Elf64_Nhdr header;
            char name[4];
        } note = {.name = ""};
        int error = elf_read(file, header->p_offset + at, &note, MIN_OF(sizeof(note), size - at));
        if (error)
            return error;
        at += sizeof(note.header) + ALIGN_UP((uint64_t)note.header.n_namesz, padding);
        if (at > size)
            return 0;
        if (note.header.n_type == NT_GNU_BUILD_ID && note.header.n_namesz == sizeof(note.name) &&
            memcmp(note.name, ELF_NOTE_GNU, sizeof(note.name)) == 0) {
            if (note.header.n_descsz > size - at)
                return 0;
            id->size = MIN_OF(note.header.n_descsz, (uint32_t)BUILD_ID_MAX);
            error = elf_read(file, header->p_offset + at, id->bytes, id->size);
            return error ? error : 1;
        }
        at += ALIGN_UP((uint64_t)note.header.n_descsz, padding);
        if (at > size)
            return 0;
    }
    return 0;
}

int elf_check_identity(const struct elf_file *file, const struct object *object)
{
    for (uint32_t i = 0; i < object->segment_count; i++) {
        struct object_segment segment = object->segments[i];
        if (each_program_header(file, equals_segment, &segment) != 1)
            return -ESTALE;
    }
    if (object->build_id_size == 0)
        return object->inode == 0 ||
                       (object->inode == file->inode && object->device == file->device)
                   ? 0
                   : -ESTALE;
    struct build_id id = {.size = 0};
    if (each_program_header(file, find_build_id, &id) != 1)
        return -ESTALE;
    return id.size == object->build_id_size && memcmp(id.bytes, object->build_id, id.size) == 0
               ? 0
               : -ESTALE;
}

int elf_each_section(const struct elf_file *file,
                     void (*each)(const Elf64_Shdr *section, uint32_t index, void *data),
                     void *data)
{
    Elf64_Shdr headers[HEADERS_AT_ONCE];
    for (uint32_t first = 0; first < file->section_count; first += HEADERS_AT_ONCE) {
        uint32_t count = MIN_OF(file->section_count - first, (uint32_t)HEADERS_AT_ONCE);
        int error = elf_read(file, file->header.e_shoff + first * sizeof(headers[0]), headers,
                             count * sizeof(headers[0]));
        if (error)
            return error;
        for (uint32_t i = 0; i < count; i++)
            each(&headers[i], first + i, data);
    }
    return 0;
}

struct symbol_search {
    uint32_t type;
    Elf64_Shdr found; /* sh_type SHT_NULL: not yet */
};

static void search_symbols(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct symbol_search *search = data;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): elf_read has filled it */
    if (section->sh_type == search->type && search->found.sh_type == SHT_NULL)
        search->found = *section;
}

int elf_find_symbols(const struct elf_file *file, uint32_t type, struct elf_extent *symbols,
                     struct elf_extent *strings)
{
    struct symbol_search search = {.type = type, .found = {.sh_type = SHT_NULL}};
    int error = elf_each_section(file, search_symbols, &search);
    if (error)
        return error;
    const Elf64_Shdr *table = &search.found;
    if (table->sh_type == SHT_NULL)
        return -ENOENT;
    Elf64_Shdr text;
    if (table->sh_entsize != sizeof(Elf64_Sym) || table->sh_flags & SHF_COMPRESSED ||
        !is_extent(file, table->sh_offset, table->sh_size) || table->sh_link >= file->section_count)
        return -ENOEXEC;
    error =
        elf_read(file, file->header.e_shoff + table->sh_link * sizeof(text), &text, sizeof(text));
    if (error)
        return error;
    if (text.sh_type != SHT_STRTAB || text.sh_flags & SHF_COMPRESSED ||
        !is_extent(file, text.sh_offset, text.sh_size))
        return -ENOEXEC;
    *symbols = (struct elf_extent){.offset = table->sh_offset, .size = table->sh_size};
    *strings = (struct elf_extent){.offset = text.sh_offset, .size = text.sh_size};
    return 0;
}
