#include "agent/unwind/elf_object.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/base/arena.h"
#include "agent/base/sys.h"
#include "agent/unwind/dwarf_cursor.h"

/* Code that is compared where there is no build id: files that are alike in their headers and in
 * this differ in nothing that a walk would notice. */
enum { CODE_COMPARED = 1024 };

/* Where a table is: its bytes are all in one PT_LOAD. */
struct table_place {
    uint64_t vaddr;
    size_t size;
    const ElfW(Phdr) * load;
};

const ElfW(Phdr) * elf_find_load(const struct elf_image *image, uint64_t vaddr, uint64_t size)
{
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type == PT_LOAD && (h->p_flags & PF_R) && vaddr - h->p_vaddr < h->p_filesz &&
            size <= h->p_filesz - (vaddr - h->p_vaddr))
            return h;
    }
    return NULL;
}

static void find_build_id(struct elf_image *image, const ElfW(Phdr) * note)
{
    if (!elf_find_load(image, note->p_vaddr, note->p_filesz))
        return;
    const uint8_t *at = elf_in_memory(image, note->p_vaddr);
    size_t left = note->p_filesz;
    /* Note parts are padded to 4 bytes, in a segment of alignment 8 to 8. */
    size_t align = note->p_align == 8 ? 8 : 4;
    while (left >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, at, sizeof(head));
        size_t name_end = ALIGN_UP(sizeof(head) + (size_t)head.n_namesz, align);
        size_t size = ALIGN_UP(name_end + (size_t)head.n_descsz, align);
        if (name_end + head.n_descsz > left)
            return;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
            memcmp(at + sizeof(head), "GNU", 4) == 0 && head.n_descsz > 0) {
            image->build_id = at + name_end;
            image->build_id_size = MIN_OF(head.n_descsz, (size_t)BUILD_ID_MAX);
            return;
        }
        if (size > left)
            return;
        at += size;
        left -= size;
    }
}

static uint64_t hash_words(const void *data, size_t size)
{
    uint64_t hash = size;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)data + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 32;
    }
    return hash;
}

static bool is_code(const ElfW(Phdr) * h)
{
    return h->p_type == PT_LOAD && (h->p_flags & PF_X) && h->p_memsz > 0;
}

/* The first executable segment that can be read, and how much of it is compared. */
static const ElfW(Phdr) * first_code(const struct elf_image *image, size_t *size)
{
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (is_code(h) && (h->p_flags & PF_R)) {
            *size = MIN_OF((size_t)h->p_filesz, (size_t)CODE_COMPARED);
            return h;
        }
    }
    return NULL;
}

void elf_read_image(const struct dl_phdr_info *info, struct elf_image *image)
{
    *image = (struct elf_image){
        .bias = info->dlpi_addr, .headers = info->dlpi_phdr, .header_count = info->dlpi_phnum};
    image->identity = hash_words(image->headers, (size_t)image->header_count * sizeof(ElfW(Phdr)));
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type == PT_NOTE && !image->build_id) {
            find_build_id(image, h);
        } else if (h->p_type == PT_DYNAMIC && elf_find_load(image, h->p_vaddr, h->p_filesz) &&
                   (image->bias + h->p_vaddr) % sizeof(uintptr_t) == 0) {
            image->dynamic = (const ElfW(Dyn) *)elf_in_memory(image, h->p_vaddr);
            image->dynamic_count = h->p_filesz / sizeof(ElfW(Dyn));
        }
    }
}

bool elf_has_code(const struct elf_image *image)
{
    for (uint32_t i = 0; i < image->header_count; i++)
        if (is_code(&image->headers[i]))
            return true;
    return false;
}

void elf_describe(const struct elf_image *image, struct object *object)
{
    object->code_readable = true;
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (is_code(h) && !(h->p_flags & PF_R))
            object->code_readable = false;
        if (is_code(h) && object->segment_count < OBJECT_SEGMENTS_MAX)
            object->segments[object->segment_count++] =
                (struct object_segment){h->p_vaddr, h->p_memsz, h->p_offset};
    }
    if (image->build_id_size)
        memcpy(object->build_id, image->build_id, image->build_id_size);
    object->build_id_size = (uint8_t)image->build_id_size;
}

void elf_each_needed(const struct elf_image *image, void (*each)(const char *name, void *data),
                     void *data)
{
    uint64_t strings = 0, size = 0;
    for (size_t i = 0; i < image->dynamic_count && image->dynamic[i].d_tag != DT_NULL; i++) {
        if (image->dynamic[i].d_tag == DT_STRTAB)
            strings = image->dynamic[i].d_un.d_ptr;
        else if (image->dynamic[i].d_tag == DT_STRSZ)
            size = image->dynamic[i].d_un.d_val;
    }
    /* glibc relocates this pointer in place, but not in images that it cannot write. */
    if (strings >= image->bias)
        strings -= image->bias;
    /* Where the last one has its end all have. */
    if (!size || !elf_find_load(image, strings, size) || elf_in_memory(image, strings)[size - 1])
        return;
    for (size_t i = 0; i < image->dynamic_count && image->dynamic[i].d_tag != DT_NULL; i++) {
        uint64_t at = image->dynamic[i].d_un.d_val;
        if (image->dynamic[i].d_tag == DT_NEEDED && at < size)
            each((const char *)elf_in_memory(image, strings + at), data);
    }
}

/* Reads what .eh_frame_hdr says at `data`: the place of .eh_frame, and the table (at *index). */
static bool read_hdr(const uint8_t *data, const struct table_place *hdr, uint64_t *eh_frame,
                     const uint8_t **index, uint32_t *count)
{
    struct dwarf_cursor c = dwarf_cursor(data, hdr->size, hdr->vaddr);
    *eh_frame = 0;
    if (dwarf_u8(&c) != 1)
        return false;
    uint8_t frame_encoding = dwarf_u8(&c);
    uint8_t count_encoding = dwarf_u8(&c);
    uint8_t table_encoding = dwarf_u8(&c);
    *eh_frame = dwarf_pointer(&c, frame_encoding, hdr->vaddr);
    if (count_encoding == PE_OMIT || table_encoding != (PE_DATAREL | PE_SDATA4))
        return false;
    uint64_t entries = dwarf_pointer(&c, count_encoding, hdr->vaddr);
    uint64_t room = (uint64_t)(c.end - c.at) / 8;
    *index = c.at;
    *count = (uint32_t)MIN_OF(entries, MIN_OF(room, (uint64_t)UINT32_MAX));
    return !c.bad && *count != 0;
}

static bool find_hdr(const struct elf_image *image, struct table_place *hdr)
{
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type != PT_GNU_EH_FRAME)
            continue;
        *hdr = (struct table_place){h->p_vaddr, h->p_filesz,
                                    elf_find_load(image, h->p_vaddr, h->p_filesz)};
        return hdr->load && hdr->size;
    }
    return false;
}

/* .eh_frame from `vaddr` to the end of its segment. */
static bool set_frame(const struct elf_image *image, uint64_t vaddr, struct table_place *frame)
{
    frame->vaddr = vaddr;
    frame->load = elf_find_load(image, vaddr, 1);
    if (!frame->load)
        return false;
    frame->size = frame->load->p_filesz - (vaddr - frame->load->p_vaddr);
    /* Rules keep the places of expressions in 31 bits. */
    frame->size = MIN_OF(frame->size, (size_t)INT32_MAX);
    return true;
}

bool elf_eh_frame_by_hdr(const struct elf_image *image, uint64_t *hdr_vaddr,
                         struct object_table *frame)
{
    struct table_place hdr, place;
    const uint8_t *index;
    uint32_t count;
    uint64_t vaddr;
    *hdr_vaddr = 0;
    if (!find_hdr(image, &hdr))
        return false;
    *hdr_vaddr = hdr.vaddr;
    (void)read_hdr(elf_in_memory(image, hdr.vaddr), &hdr, &vaddr, &index, &count);
    if (!vaddr || !set_frame(image, vaddr, &place))
        return false;
    *frame = (struct object_table){elf_in_memory(image, vaddr), vaddr, place.size};
    return true;
}

static bool find_tables(const struct elf_image *image, struct table_place *hdr,
                        struct table_place *frame)
{
    const uint8_t *index;
    uint32_t count;
    uint64_t vaddr;
    return find_hdr(image, hdr) &&
           read_hdr(elf_in_memory(image, hdr->vaddr), hdr, &vaddr, &index, &count) &&
           set_frame(image, vaddr, frame);
}

static bool set_tables(struct object *object, const struct table_place *hdr,
                       const uint8_t *hdr_data, const struct table_place *frame,
                       const uint8_t *frame_data)
{
    uint64_t frame_vaddr;
    const uint8_t *index;
    uint32_t count;
    if (!read_hdr(hdr_data, hdr, &frame_vaddr, &index, &count) || frame_vaddr != frame->vaddr)
        return false;
    object->eh_frame_hdr = (struct object_table){hdr_data, hdr->vaddr, hdr->size};
    object->eh_frame = (struct object_table){frame_data, frame->vaddr, frame->size};
    object->fde_index = index;
    object->fde_count = count;
    return true;
}

void elf_tables_in_place(const struct elf_image *image, struct object *object)
{
    struct table_place hdr, frame;
    object->in_place = true;
    if (find_tables(image, &hdr, &frame))
        set_tables(object, &hdr, elf_in_memory(image, hdr.vaddr), &frame,
                   elf_in_memory(image, frame.vaddr));
}

/* Of what is mapped from a file nothing is read here: it may be shorter by now. */
static bool frame_equals(const struct object *object, const uint8_t *frame)
{
    const struct object_table *own = &object->eh_frame;
    return object->tables == TABLES_MAPPED || object->tables == TABLES_GIVEN_UP
               ? hash_words(frame, own->size) == object->tables_hash
               : memcmp(own->data, frame, own->size) == 0;
}

bool elf_tables_equal(const struct elf_image *image, const struct object *object)
{
    struct table_place hdr, frame;
    const struct object_table *own = &object->eh_frame;
    if (!object->eh_frame_hdr.size)
        return !find_tables(image, &hdr, &frame) &&
               (!own->size || (elf_find_load(image, own->vaddr, own->size) &&
                               frame_equals(object, elf_in_memory(image, own->vaddr))));
    return find_tables(image, &hdr, &frame) && object->eh_frame_hdr.vaddr == hdr.vaddr &&
           object->eh_frame_hdr.size == hdr.size && own->vaddr == frame.vaddr &&
           own->size == frame.size && frame_equals(object, elf_in_memory(image, frame.vaddr));
}

static uint64_t file_offset(const ElfW(Phdr) * load, uint64_t vaddr)
{
    return load->p_offset + (vaddr - load->p_vaddr);
}

/* The table's bytes in the file, mapped; NULL when the kernel refuses. */
static const uint8_t *map_table(int fd, const struct table_place *table)
{
    uint64_t offset = file_offset(table->load, table->vaddr);
    size_t before = offset % PAGE_SIZE_MIN;
    long at = sys_call6(SYS_mmap, 0, (long)(before + table->size), PROT_READ, MAP_PRIVATE, fd,
                        (long)(offset - before));
    return at < 0 && at >= -4095 ? NULL : (const uint8_t *)at + before;
}

static void unmap_table(const uint8_t *data, size_t size)
{
    size_t before = (uintptr_t)data % PAGE_SIZE_MIN;
    if (data)
        sys_unmap((void *)(uintptr_t)(data - before), before + size);
}

/* True when the file has the image's build id at the same place. */
static bool same_build_id(const struct elf_image *image, int fd)
{
    uint64_t vaddr = (uintptr_t)image->build_id - image->bias;
    const ElfW(Phdr) *load = elf_find_load(image, vaddr, image->build_id_size);
    uint8_t bytes[BUILD_ID_MAX];
    return load &&
           sys_call4(SYS_pread64, fd, bytes, image->build_id_size,
                     (long)file_offset(load, vaddr)) == (long)image->build_id_size &&
           memcmp(bytes, image->build_id, image->build_id_size) == 0;
}

uint64_t elf_code_hash(const struct elf_image *image)
{
    size_t size;
    const ElfW(Phdr) *load = first_code(image, &size);
    return load ? hash_words(elf_in_memory(image, load->p_vaddr), size) : 0;
}

static bool same_headers_and_code(const struct elf_image *image, int fd)
{
    ElfW(Ehdr) file;
    uint8_t bytes[CODE_COMPARED];
    size_t headers = (size_t)image->header_count * sizeof(ElfW(Phdr));
    if (sys_call4(SYS_pread64, fd, &file, sizeof(file), 0) != (long)sizeof(file) ||
        file.e_phnum != image->header_count || headers > sizeof(bytes) ||
        sys_call4(SYS_pread64, fd, bytes, headers, (long)file.e_phoff) != (long)headers ||
        memcmp(bytes, image->headers, headers) != 0)
        return false;
    size_t size;
    const ElfW(Phdr) *load = first_code(image, &size);
    return load && sys_call4(SYS_pread64, fd, bytes, size, (long)load->p_offset) == (long)size &&
           memcmp(bytes, elf_in_memory(image, load->p_vaddr), size) == 0;
}

int elf_open_loaded(const struct elf_image *image, const char *path, struct stat *status)
{
    /* O_NONBLOCK: a pipe may have that name by now. */
    int fd = sys_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    if (sys_call2(SYS_fstat, fd, status) == 0 && S_ISREG(status->st_mode) &&
        (image->build_id_size ? same_build_id(image, fd) : same_headers_and_code(image, fd)))
        return fd;
    sys_close(fd);
    return -ESTALE;
}

void elf_note_file(const struct elf_image *image, const char *path, struct object *object)
{
    struct stat status;
    int fd = image->build_id_size ? -ENOENT : elf_open_loaded(image, path, &status);
    if (fd < 0)
        return;
    object->device = status.st_dev;
    object->inode = status.st_ino;
    sys_close(fd);
}

int elf_executed_path(const struct elf_image *image, char *path, size_t size)
{
    const char *executed = (const char *)sys_auxv(AT_EXECFN);
    if (!executed)
        return -ENOENT;
    while (executed[0] == '.' && executed[1] == '/')
        executed += 2;
    int error = sys_absolute(executed, path, size);
    if (error)
        return error;
    /* It may be a script, or another file by now. */
    struct stat status;
    int fd = elf_open_loaded(image, path, &status);
    if (fd < 0)
        return fd;
    sys_close(fd);
    return 0;
}

size_t elf_tables_size(const struct elf_image *image)
{
    struct table_place hdr, frame;
    return find_tables(image, &hdr, &frame) ? hdr.size + frame.size : 0;
}

static void forget_data(struct object *object)
{
    object->eh_frame_hdr.data = object->eh_frame.data = object->fde_index = NULL;
    object->fde_count = 0;
}

/* What the index says is read where it is loaded. */
static int map_tables(const struct elf_image *image, int fd, uint64_t file_size,
                      struct object *object)
{
    struct table_place hdr, frame;
    if (!find_tables(image, &hdr, &frame))
        return 0; /* an object without tables */
    if (file_offset(hdr.load, hdr.vaddr) + hdr.size > file_size ||
        file_offset(frame.load, frame.vaddr) + frame.size > file_size)
        return -ESTALE;
    const uint8_t *loaded = elf_in_memory(image, hdr.vaddr);
    const uint8_t *hdr_data = map_table(fd, &hdr), *frame_data = map_table(fd, &frame);
    if (!hdr_data || !frame_data || !set_tables(object, &hdr, loaded, &frame, frame_data)) {
        unmap_table(hdr_data, hdr.size);
        unmap_table(frame_data, frame.size);
        return -ENOMEM;
    }
    object->fde_index = hdr_data + (object->fde_index - loaded);
    object->eh_frame_hdr.data = hdr_data;
    object->tables_hash = hash_words(elf_in_memory(image, frame.vaddr), frame.size);
    object->tables = TABLES_MAPPED;
    return 0;
}

int elf_tables_mapped(const struct elf_image *image, const char *path, struct object *object)
{
    struct stat status;
    int fd = elf_open_loaded(image, path, &status);
    if (fd < 0)
        return fd;
    int error = map_tables(image, fd, (uint64_t)status.st_size, object);
    sys_close(fd);
    return error;
}

int elf_tables_copied(const struct elf_image *image, struct object *object)
{
    struct table_place hdr, frame;
    if (!find_tables(image, &hdr, &frame))
        return 0;
    uint8_t *copy = arena_reserve(hdr.size + frame.size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, elf_in_memory(image, hdr.vaddr), hdr.size);
    memcpy(copy + hdr.size, elf_in_memory(image, frame.vaddr), frame.size);
    if (set_tables(object, &hdr, copy, &frame, copy + hdr.size)) {
        object->tables = TABLES_COPIED;
        return 0;
    }
    arena_release(copy, hdr.size + frame.size);
    return -EINVAL;
}

void elf_tables_give_up(struct object *object)
{
    const struct object_table *hdr = &object->eh_frame_hdr, *frame = &object->eh_frame;
    if (object->tables == TABLES_COPIED) {
        object->tables_hash = hash_words(frame->data, frame->size);
        arena_release((void *)(uintptr_t)hdr->data, hdr->size + frame->size);
    } else if (object->tables == TABLES_MAPPED) {
        unmap_table(hdr->data, hdr->size);
        unmap_table(frame->data, frame->size);
    } else {
        return;
    }
    forget_data(object);
    object->tables = TABLES_GIVEN_UP;
}
