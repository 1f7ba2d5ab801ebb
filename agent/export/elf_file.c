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
    if (file->memory) {
        memcpy(data, file->memory + offset, size);
        return 0;
    }
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

static void find_section_names(struct elf_file *file, uint32_t index)
{
    Elf64_Shdr names;
    if (index < file->section_count &&
        !elf_read(file, file->header.e_shoff + index * sizeof(names), &names, sizeof(names)) &&
        names.sh_type == SHT_STRTAB && is_extent(file, names.sh_offset, names.sh_size))
        file->section_names = (struct elf_extent){.offset = names.sh_offset, .size = names.sh_size};
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
    uint32_t names = header->e_shstrndx;
    if (count == 0 || names == SHN_XINDEX) { /* larger than fits there: the first header has it */
        Elf64_Shdr first;
        if (elf_read(file, header->e_shoff, &first, sizeof(first)))
            return -ENOEXEC;
        count = count ? count : first.sh_size;
        names = names == SHN_XINDEX ? first.sh_link : names;
    }
    if (count > SECTIONS_MAX || !is_extent(file, header->e_shoff, count * sizeof(Elf64_Shdr)))
        return -ENOEXEC;
    file->section_count = (uint32_t)count;
    find_section_names(file, names);
    return 0;
}

int elf_open_memory(struct elf_file *file, const void *data, size_t size)
{
    *file = (struct elf_file){.fd = -1, .memory = data, .size = size};
    return read_header(file);
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
    if (!file->memory)
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

/* 1 when the build id is among these notes. */
static int find_in_notes(const struct elf_file *file, struct elf_extent notes, uint64_t padding,
                         struct build_id *id)
{
    uint64_t size = MIN_OF(notes.size, (uint64_t)NOTES_MAX);
    if (!is_extent(file, notes.offset, size))
        return 0;
    for (uint64_t at = 0; size - at >= sizeof(Elf64_Nhdr);) {
        struct {
            Elf64_Nhdr header;
            char name[4];
        } note = {.name = ""};
        int error = elf_read(file, notes.offset + at, &note, MIN_OF(sizeof(note), size - at));
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
            error = elf_read(file, notes.offset + at, id->bytes, id->size);
            return error ? error : 1;
        }
        at += ALIGN_UP((uint64_t)note.header.n_descsz, padding);
        if (at > size)
            return 0;
    }
    return 0;
}

static int find_build_id(const struct elf_file *file, const Elf64_Phdr *header, void *data)
{
    struct elf_extent notes = {.offset = header->p_offset, .size = header->p_filesz};
    return header->p_type == PT_NOTE
               ? find_in_notes(file, notes, header->p_align == 8 ? 8 : 4, data)
               : 0;
}

static bool is_build_id_of(const struct build_id *id, const struct object *object)
{
    return id->size == object->build_id_size && memcmp(id->bytes, object->build_id, id->size) == 0;
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
    return each_program_header(file, find_build_id, &id) == 1 && is_build_id_of(&id, object)
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

struct id_search {
    const struct elf_file *file;
    struct build_id id;
    bool is_found;
};

static void search_build_id(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct id_search *search = data;
    struct elf_extent notes = {.offset = section->sh_offset, .size = section->sh_size};
    if (section->sh_type == SHT_NOTE && !search->is_found)
        search->is_found = find_in_notes(search->file, notes, section->sh_addralign == 8 ? 8 : 4,
                                         &search->id) == 1;
}

/* By the sections: the segments of debug files are those of the object, with offsets that lead
 * nowhere. */
static bool read_build_id(const struct elf_file *file, struct build_id *id)
{
    struct id_search search = {.file = file};
    if (elf_each_section(file, search_build_id, &search) || !search.is_found)
        return false;
    *id = search.id;
    return true;
}

bool elf_has_build_id(const struct elf_file *file)
{
    struct build_id id;
    return read_build_id(file, &id);
}

bool elf_has_build_id_of(const struct elf_file *file, const struct object *object)
{
    struct build_id id;
    return object->build_id_size && read_build_id(file, &id) && is_build_id_of(&id, object);
}

bool elf_section_begins(const struct elf_file *file, const Elf64_Shdr *section, const char *text)
{
    char name[32];
    size_t length = strlen(text);
    long got = elf_read_some(file, file->section_names, section->sh_name, name, sizeof(name));
    return got >= (long)length && memcmp(name, text, length) == 0;
}

struct name_search {
    const struct elf_file *file;
    const char *name, *other;
    Elf64_Shdr *found;
    bool is_found;
};

static void search_name(const Elf64_Shdr *section, uint32_t index, void *data)
{
    (void)index;
    struct name_search *search = data;
    char name[32] = {0};
    if (search->is_found || section->sh_type == SHT_NOBITS ||
        !is_extent(search->file, section->sh_offset, section->sh_size))
        return;
    long got = elf_read_some(search->file, search->file->section_names, section->sh_name, name,
                             sizeof(name) - 1);
    if (got > 0 && (strcmp(name, search->name) == 0 || strcmp(name, search->other) == 0)) {
        *search->found = *section;
        search->is_found = true;
    }
}

int elf_find_section_of(const struct elf_file *file, const char *name, const char *other,
                        Elf64_Shdr *found)
{
    struct name_search search = {.file = file, .name = name, .other = other, .found = found};
    int error = elf_each_section(file, search_name, &search);
    return error ? error : search.is_found ? 0 : -ENOENT;
}

int elf_find_section(const struct elf_file *file, const char *name, Elf64_Shdr *found)
{
    return elf_find_section_of(file, name, name, found);
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
