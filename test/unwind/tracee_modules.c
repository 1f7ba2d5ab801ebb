#include "test/unwind/tracee_modules.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/format.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/object_registry.h"
#include "test/unwind/tracee.h"

enum { IMAGES_MAX = 512, MODULES_MAX = 1024, MAPS_MAX = 1 << 20, PAGE = 4096 };

/* A file, mapped twice: as it is, and with its segments where they belong. */
struct image {
    char path[512];
    const uint8_t *file;
    size_t file_size;
    uintptr_t local; /* address here - ELF virtual address */
    const ElfW(Phdr) * headers;
    uint32_t header_count;
    struct object *object;
};

static struct image images[IMAGES_MAX];
static uint32_t image_count;
/* In step with modules_list. */
static const struct image *image_of[MODULES_MAX];
static char maps[MAPS_MAX], maps_before[MAPS_MAX];

static uintptr_t page_of(uintptr_t address)
{
    return address & ~(uintptr_t)(PAGE - 1);
}

/* The segments of `file` at their places; a descriptor of -1: from the copy of the vdso. */
static void lay_out(struct image *image, int fd)
{
    uintptr_t end = 0, low = UINTPTR_MAX;
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type == PT_LOAD && h->p_filesz) {
            low = page_of(h->p_vaddr) < low ? page_of(h->p_vaddr) : low;
            end = h->p_vaddr + h->p_memsz > end ? h->p_vaddr + h->p_memsz : end;
        }
    }
    if (fd < 0) {
        image->local = (uintptr_t)image->file - low;
        return;
    }
    uint8_t *at = mmap(NULL, end - low, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die("no room for %s", image->path);
    image->local = (uintptr_t)at - low;
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type != PT_LOAD || !h->p_filesz)
            continue;
        size_t skew = h->p_vaddr % PAGE;
        void *wanted = (void *)(image->local + h->p_vaddr - skew);
        if (mmap(wanted, h->p_filesz + skew, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd,
                 (off_t)(h->p_offset - skew)) == MAP_FAILED)
            die("cannot map a segment of %s", image->path);
    }
}

static void describe(struct image *image, int fd, enum object_role role)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)image->file;
    if (image->file_size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > image->file_size)
        return;
    image->headers = (const ElfW(Phdr) *)(image->file + header->e_phoff);
    image->header_count = header->e_phnum;
    lay_out(image, fd);
    struct dl_phdr_info info = {
        .dlpi_addr = image->local, .dlpi_phdr = image->headers, .dlpi_phnum = header->e_phnum};
    struct elf_image elf;
    elf_read_image(&info, &elf);
    image->object = registry_object(&elf, image->path, role, true, NULL);
}

static struct image *new_image(const char *path)
{
    if (image_count == IMAGES_MAX)
        die("more than %d objects", IMAGES_MAX);
    struct image *image = &images[image_count++];
    snprintf(image->path, sizeof(image->path), "%s", path);
    return image;
}

static const struct image *find_image(const char *path)
{
    for (uint32_t i = 0; i < image_count; i++)
        if (strcmp(images[i].path, path) == 0)
            return &images[i];
    struct image *image = new_image(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        void *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file != MAP_FAILED) {
            image->file = file;
            image->file_size = (size_t)status.st_size;
            describe(image, fd, OBJECT_PLAIN);
        }
    }
    if (fd >= 0)
        close(fd);
    return image;
}

static const struct image *vdso_image(pid_t pid, uintptr_t start, size_t size)
{
    static const struct image *vdso;
    if (vdso)
        return vdso;
    struct image *image = new_image("[vdso]");
    uint8_t *copy = malloc(size);
    if (!copy || tracee_read(pid, start, copy, size) != size)
        die("cannot read the vdso");
    image->file = copy;
    image->file_size = size;
    describe(image, -1, OBJECT_VDSO);
    vdso = image;
    return vdso;
}

static struct module_list *new_list(void)
{
    static struct module_list *lists[2];
    static uint32_t publication;
    struct module_list **list = &lists[publication % 2];
    size_t size = sizeof(**list) + MODULES_MAX * sizeof(struct module);
    if (!*list)
        *list = calloc(1, size);
    if (!*list)
        die("no memory");
    memset(*list, 0, size);
    (*list)->publication = ++publication;
    (*list)->capacity = MODULES_MAX;
    return *list;
}

/* Maps are sorted by address, and so is the list. */
static void add_mapping(struct module_list *list, const struct image *image, uintptr_t start,
                        uint64_t offset)
{
    if (!image->object)
        return;
    for (uint32_t i = 0; i < image->object->segment_count; i++) {
        const struct object_segment *s = &image->object->segments[i];
        uintptr_t first = page_of(s->offset);
        if (offset < first || offset >= s->offset + s->size)
            continue;
        uintptr_t bias = start - (offset - first) - page_of(s->vaddr);
        uint32_t n = list->count;
        if (n && list->modules[n - 1].start == bias + s->vaddr)
            return;
        if (n == list->capacity)
            die("more than %d modules", MODULES_MAX);
        list->modules[n] =
            (struct module){bias + s->vaddr, bias + s->vaddr + s->size, bias, image->object};
        image_of[n] = image;
        list->count++;
        return;
    }
}

static void read_whole(const char *path, char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("cannot open %s", path);
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, text + length, MAPS_MAX - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = 0;
    close(fd);
}

bool tracee_modules_read(pid_t pid)
{
    static bool started;
    char path[64];
    if (!started && registry_start() != 0)
        die("no memory");
    started = true;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    read_whole(path, maps);
    if (modules_list && strcmp(maps, maps_before) == 0)
        return false;
    memcpy(maps_before, maps, strlen(maps) + 1);
    struct module_list *list = new_list();
    char *rest = NULL;
    for (char *line = strtok_r(maps, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        unsigned long start, end, offset;
        char rights[5], file[512] = "";
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %511[^\n]", &start, &end, rights, &offset, file) <
                4 ||
            rights[2] != 'x')
            continue;
        if (strcmp(file, "[vdso]") == 0)
            add_mapping(list, vdso_image(pid, start, end - start), start, 0);
        else if (file[0] == '/')
            add_mapping(list, find_image(file), start, offset);
    }
    modules_list = list;
    return true;
}

const uint8_t *tracee_file_bytes(uintptr_t address, size_t *size)
{
    /* The last answer: most questions are of the same table. */
    static uintptr_t low, length;
    static const uint8_t *data;
    static const struct module_list *of;
    if (of == modules_list && address - low < length) {
        *size = length - (address - low);
        return data + (address - low);
    }
    for (uint32_t i = 0; modules_list && i < modules_list->count; i++) {
        const struct image *image = image_of[i];
        uintptr_t bias = modules_list->modules[i].bias;
        for (uint32_t j = 0; j < image->header_count; j++) {
            const ElfW(Phdr) *h = &image->headers[j];
            if (h->p_type != PT_LOAD || (h->p_flags & PF_W) ||
                address - bias - h->p_vaddr >= h->p_filesz)
                continue;
            of = modules_list;
            low = bias + h->p_vaddr;
            length = h->p_filesz;
            data = (const uint8_t *)(image->local + h->p_vaddr);
            *size = length - (address - low);
            return data + (address - low);
        }
    }
    return NULL;
}

/* The function of the file's symbol tables that covers `vaddr`. */
static const char *symbol_at(const struct image *image, uint64_t vaddr, uint64_t *start)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)image->file;
    if (strcmp(image->path, "[vdso]") == 0 ||
        header->e_shoff + header->e_shnum * sizeof(ElfW(Shdr)) > image->file_size)
        return NULL;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(image->file + header->e_shoff);
    for (uint32_t i = 0; i < header->e_shnum; i++) {
        const ElfW(Shdr) *s = &sections[i];
        if (s->sh_type != SHT_SYMTAB && s->sh_type != SHT_DYNSYM)
            continue;
        const ElfW(Sym) *symbols = (const ElfW(Sym) *)(image->file + s->sh_offset);
        const char *strings = (const char *)image->file + sections[s->sh_link].sh_offset;
        for (size_t k = 0; k < s->sh_size / sizeof(*symbols); k++) {
            unsigned type = ELF64_ST_TYPE(symbols[k].st_info);
            if ((type == STT_FUNC || type == STT_GNU_IFUNC) &&
                vaddr - symbols[k].st_value < symbols[k].st_size) {
                *start = symbols[k].st_value;
                return strings + symbols[k].st_name;
            }
        }
    }
    return NULL;
}

bool tracee_has_rule(uintptr_t pc)
{
    /* Most are asked for again and again. */
    enum { SEEN = 1 << 16 };
    static struct {
        uintptr_t pc;
        uint32_t publication;
        bool has_rule;
    } seen[SEEN];
    uint32_t at = (uint32_t)(pc * 0x9e3779b1u >> 8) % SEEN;
    if (seen[at].pc != pc || seen[at].publication != modules_list->publication) {
        const struct module *m = modules_find(modules_list, pc);
        struct cfi_row row;
        seen[at].pc = pc;
        seen[at].publication = modules_list->publication;
        seen[at].has_rule = m && cfi_row_at(m->object, pc - m->bias, &row) == 0;
    }
    return seen[at].has_rule;
}

struct place tracee_place(uintptr_t pc)
{
    struct place place = {.object = "?", .name = ""};
    const struct module *m = modules_find(modules_list, pc);
    if (!m)
        return place;
    const struct image *image = image_of[m - modules_list->modules];
    struct cfi_row row;
    place.object = base_name(image->path);
    place.vaddr = pc - m->bias;
    place.has_rule = cfi_row_at(m->object, place.vaddr, &row) == 0;
    if (place.has_rule)
        place.start = row.start;
    const char *name = symbol_at(image, place.vaddr, &place.start);
    if (name)
        place.name = name;
    return place;
}

void tracee_print_place(FILE *out, uintptr_t pc)
{
    struct place place = tracee_place(pc);
    if (place.object[0] == '?') {
        fprintf(out, "0x%lx", pc);
        return;
    }
    fprintf(out, "%s+0x%lx", place.object, place.vaddr);
    if (place.start)
        fprintf(out, " (%s+0x%lx)", place.name, place.vaddr - place.start);
    if (!place.has_rule)
        fprintf(out, " no FDE");
}
