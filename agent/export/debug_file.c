#include "agent/export/debug_file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/export/crc.h"

enum { CHECK_CHUNK = 64 << 10, LINK_NAME_MAX = 255 };

/* Not on the stack, which may be small. */
struct search {
    const struct object *object;
    const struct elf_file *own;
    struct elf_file *debug;
    bool has_link;
    uint32_t link_crc;
    struct crc crc;
    char link[LINK_NAME_MAX + 1 + 8]; /* with padding and the check behind it */
    char folder[PATH_MAX];            /* of the object's file, with a '/' at its end */
    char path[PATH_MAX * 2 + 512];
    uint8_t chunk[CHECK_CHUNK];
};

static bool has_check(struct search *search)
{
    const struct elf_file *file = search->debug;
    if (!search->has_link || file->size > DEBUG_LINK_CHECKED_MAX)
        return false;
    crc_begin(&search->crc, CRC_32);
    uint64_t value = UINT32_MAX;
    for (uint64_t at = 0; at < file->size; at += CHECK_CHUNK) {
        size_t size = (size_t)MIN_OF(file->size - at, (uint64_t)CHECK_CHUNK);
        if (elf_read(file, at, search->chunk, size))
            return false;
        value = crc_more(&search->crc, value, search->chunk, size);
    }
    return (value ^ UINT32_MAX) == search->link_crc;
}

/* What DWARF 5 gives files that have others' part, and those others: its version, whether it is
 * such a part, the path of the part (of which this one is none), and the id that the two share. */
#define SUPPLEMENT ".debug_sup"
enum { SUPPLEMENT_HEAD = 3 };

static bool is_supplement_of(const struct elf_file *file, const struct object *object)
{
    static const uint8_t part[SUPPLEMENT_HEAD + 1] = {5, 0, 1, 0};
    uint8_t bytes[sizeof(part) + 1 + BUILD_ID_MAX];
    Elf64_Shdr section;
    if (!object->build_id_size || elf_find_section(file, SUPPLEMENT, &section))
        return false;
    struct elf_extent extent = {.offset = section.sh_offset, .size = section.sh_size};
    long got = elf_read_some(file, extent, 0, bytes, sizeof(bytes));
    return got == (long)(sizeof(part) + 1 + object->build_id_size) &&
           memcmp(bytes, part, sizeof(part)) == 0 && bytes[sizeof(part)] == object->build_id_size &&
           memcmp(bytes + sizeof(part) + 1, object->build_id, object->build_id_size) == 0;
}

static bool belongs(struct search *search)
{
    const struct elf_file *file = search->debug;
    if (search->own && file->device == search->own->device && file->inode == search->own->inode)
        return false; /* the link leads back */
    if (search->object->build_id_size && elf_has_build_id(file))
        return elf_has_build_id_of(file, search->object);
    return has_check(search) || is_supplement_of(file, search->object);
}

/* Is the file at search->path the one? It is then open. */
static bool try_path(struct search *search)
{
    if (elf_open(search->debug, search->path))
        return false;
    if (belongs(search))
        return true;
    elf_close(search->debug);
    return false;
}

static void read_link(struct search *search)
{
    Elf64_Shdr section;
    if (!search->own || elf_find_section(search->own, ".gnu_debuglink", &section))
        return;
    struct elf_extent extent = {.offset = section.sh_offset, .size = section.sh_size};
    long got = elf_read_some(search->own, extent, 0, search->link, sizeof(search->link));
    const char *end = got > 0 ? memchr(search->link, 0, (size_t)got) : NULL;
    if (!end || end == search->link || strchr(search->link, '/'))
        return;
    size_t at = ALIGN_UP((size_t)(end - search->link) + 1, (size_t)4);
    if (at + sizeof(search->link_crc) > (size_t)got)
        return;
    memcpy(&search->link_crc, search->link + at, sizeof(search->link_crc));
    size_t folder = (size_t)(base_name(search->object->path) - search->object->path);
    if (folder >= sizeof(search->folder))
        return;
    memcpy(search->folder, search->object->path, folder);
    search->has_link = true;
}

/* The next folder of the list at *at; its length, or 0 at the end. */
static size_t next_folder(const char **at, const char **folder)
{
    while (**at == ':')
        ++*at;
    *folder = *at;
    while (**at && **at != ':')
        ++*at;
    return (size_t)(*at - *folder);
}

static const char *directories(void)
{
    return options.debug_path ? options.debug_path : "/usr/lib/debug";
}

static bool try_build_id(struct search *search)
{
    const struct object *object = search->object;
    if (object->build_id_size < 2)
        return false;
    const char *at = directories(), *folder;
    for (size_t length; (length = next_folder(&at, &folder));) {
        size_t used = format(search->path, sizeof(search->path), "%.*s/.build-id/%02x/",
                             (int)length, folder, object->build_id[0]);
        for (size_t i = 1; i < object->build_id_size; i++)
            used += format(search->path + used, sizeof(search->path) - used, "%02x",
                           object->build_id[i]);
        format(search->path + used, sizeof(search->path) - used, ".debug");
        if (try_path(search))
            return true;
    }
    return false;
}

static bool try_link(struct search *search)
{
    if (!search->has_link)
        return false;
    static const char *const beside[] = {"", ".debug/"};
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        format(search->path, sizeof(search->path), "%s%s%s", search->folder, beside[i],
               search->link);
        if (try_path(search))
            return true;
    }
    const char *at = directories(), *folder;
    for (size_t length; search->folder[0] == '/' && (length = next_folder(&at, &folder));) {
        format(search->path, sizeof(search->path), "%.*s%s%s", (int)length, folder, search->folder,
               search->link);
        if (try_path(search))
            return true;
    }
    return false;
}

/* ---- What several files have in common ------------------------------------------------------- */

/* The path of it, in the search's chunk, and in `common` its id, which is behind; NULL where there
 * is none. */
static const char *read_common_link(struct search *search, struct object *common)
{
    static const uint8_t whole[SUPPLEMENT_HEAD] = {5, 0, 0};
    Elf64_Shdr section;
    if (elf_find_section_of(search->own, ".gnu_debugaltlink", SUPPLEMENT, &section))
        return NULL;
    struct elf_extent extent = {.offset = section.sh_offset, .size = section.sh_size};
    long got = elf_read_some(search->own, extent, 0, search->chunk, sizeof(search->chunk));
    bool is_supplement = elf_section_begins(search->own, &section, SUPPLEMENT);
    const uint8_t *path = search->chunk + (is_supplement ? sizeof(whole) : 0);
    const uint8_t *stop = search->chunk + MAX_OF(got, 0L);
    const uint8_t *end = path < stop ? memchr(path, 0, (size_t)(stop - path)) : NULL;
    if (!end || end - path >= PATH_MAX ||
        (is_supplement && memcmp(search->chunk, whole, sizeof(whole)) != 0))
        return NULL;
    const uint8_t *id = end + 1;
    if (is_supplement) { /* behind its size */
        if (id == stop || *id != stop - id - 1)
            return NULL;
        id++;
    }
    if (id == stop || stop - id > BUILD_ID_MAX)
        return NULL;
    common->build_id_size = (uint8_t)(stop - id);
    memcpy(common->build_id, id, common->build_id_size);
    return (const char *)path;
}

static bool try_common_path(struct search *search, const char *path)
{
    size_t folder = 0;
    if (path[0] != '/') { /* seen from where the file is */
        char own[64];
        format(own, sizeof(own), "/proc/self/task/%d/fd/%d", sys_tid(), search->own->fd);
        long got = sys_readlink(own, search->folder, PATH_MAX - 1);
        if (got <= 0)
            return false;
        search->folder[got] = 0;
        folder = (size_t)(base_name(search->folder) - search->folder);
    }
    format(search->path, sizeof(search->path), "%.*s%s", (int)folder, search->folder, path);
    if (try_path(search))
        return true;
    const char *below = strstr(path, "/.dwz/"), *at = directories(), *directory;
    for (size_t length; below && (length = next_folder(&at, &directory));) {
        format(search->path, sizeof(search->path), "%.*s%s", (int)length, directory, below);
        if (try_path(search))
            return true;
    }
    return false;
}

int debug_file_open_common(struct elf_file *common, const struct elf_file *file)
{
    struct search *search = sys_map(sizeof(*search));
    if (!search)
        return -ENOMEM;
    struct object linked = {.path = ""};
    search->object = &linked;
    search->own = file;
    search->debug = common;
    const char *path = read_common_link(search, &linked);
    bool is_found = path && (try_build_id(search) || try_common_path(search, path));
    sys_unmap(search, sizeof(*search));
    return is_found ? 0 : -ENOENT;
}

int debug_file_open(struct elf_file *debug, const struct object *object, const struct elf_file *own)
{
    struct search *search = sys_map(sizeof(*search));
    if (!search)
        return -ENOMEM;
    search->object = object;
    search->own = own;
    search->debug = debug;
    read_link(search);
    bool is_found = try_build_id(search) || try_link(search);
    sys_unmap(search, sizeof(*search));
    return is_found ? 0 : -ENOENT;
}
