#include "agent/unwind/elf_frames.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/arena.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/unwind/elf_sections.h"
#include "agent/unwind/frame_index.h"

enum {
    /* So many FDEs, evenly spread, tell how much of the code all cover: some 12 us, at an object's
     * registration. */
    SAMPLE_FDES = 256,
    BUDGET_SHARE = 4,
};

/* Memory in use for copies and indexes. */
static size_t taken;

static void *take(size_t size)
{
    if (size > arena_budget() / BUDGET_SHARE - MIN_OF(taken, arena_budget() / BUDGET_SHARE))
        return NULL;
    void *data = arena_reserve(size);
    if (data)
        taken += size;
    return data;
}

static void give_back(void *data, size_t size)
{
    arena_release(data, size);
    taken -= size;
}

bool elf_frames_are_few(const struct object *object)
{
    struct cfi_section section;
    if (!cfi_eh_frame(object, &section))
        return true;
    uint64_t code = 0, covered = 0;
    for (uint32_t i = 0; i < object->segment_count; i++)
        code += object->segments[i].size;
    uint32_t step = section.count / SAMPLE_FDES + 1;
    for (uint32_t i = 0; i < section.count; i += step) {
        struct cfi_cie cie;
        struct cfi_fde fde;
        if (cfi_fde_at(&section, i, &cie, &fde) && fde.size <= code)
            covered += fde.size;
    }
    return covered * step < code / 2;
}

/* Builds the index of a section, within the limit of memory. */
static int build(const struct object *object, bool is_whole, struct cfi_section *section)
{
    int error = frame_index_build(object, is_whole, section);
    if (!error)
        taken += (size_t)section->count * 2 * sizeof(int32_t);
    return error;
}

/* .eh_frame as it is loaded, and what its index and datarel addresses count from. */
static bool find_eh_frame(const struct elf_image *image, const struct elf_sections *sections,
                          struct object_table *frame, uint64_t *base, bool *is_whole)
{
    const struct elf_section *s = &sections->eh_frame;
    bool by_hdr = elf_eh_frame_by_hdr(image, base, frame);
    *is_whole = s->size && s->size <= INT32_MAX && elf_find_load(image, s->vaddr, s->size);
    if (*is_whole)
        *frame = (struct object_table){elf_in_memory(image, s->vaddr), s->vaddr, s->size};
    if (!*base)
        *base = frame->vaddr;
    return *is_whole || by_hdr;
}

static int complete_eh_frame(const struct elf_image *image, const struct elf_sections *sections,
                             struct object *object)
{
    struct object_table frame = {0};
    uint64_t base;
    bool is_whole;
    if (!find_eh_frame(image, sections, &frame, &base, &is_whole))
        return -ENOENT;
    uint8_t *copy = NULL;
    if (!object->in_place) {
        copy = take(frame.size);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, frame.data, frame.size);
        frame.data = copy;
    }
    struct cfi_section section = {.table = &frame, .code_base = base, .entry_base = base};
    int error = build(object, is_whole, &section);
    if (error) {
        if (copy)
            give_back(copy, frame.size);
        return error;
    }
    object->eh_frame_hdr = (struct object_table){NULL, base, 0};
    object->eh_frame = frame;
    object->fde_index = section.index;
    object->fde_count = section.count;
    return 0;
}

static int complete_debug_frame(const struct elf_image *image, int fd, const struct elf_section *s,
                                struct object *object)
{
    if (!s->size)
        return -ENOENT;
    if (s->is_compressed || s->size > INT32_MAX)
        return -EFBIG;
    size_t bytes = ALIGN_UP((size_t)s->size, sizeof(void *));
    uint8_t *copy = take(bytes + sizeof(struct object_debug_frame));
    if (!copy)
        return -ENOMEM;
    const struct object_table table = {copy, 0, s->size};
    struct cfi_section section = {
        .table = &table, .is_debug = true, .code_base = object->segments[0].vaddr};
    int error = -ESTALE;
    if (sys_call4(SYS_lseek, fd, s->offset, SEEK_SET, 0) == (long)s->offset &&
        sys_read(fd, copy, s->size) == (long)s->size)
        error = build(object, true, &section);
    if (error) {
        give_back(copy, bytes + sizeof(struct object_debug_frame));
        return error;
    }
    struct object_debug_frame *frame = (struct object_debug_frame *)(void *)(copy + bytes);
    *frame = (struct object_debug_frame){table, section.index, section.count, section.code_base,
                                         elf_code_hash(image)};
    store_release(&object->debug_frame, frame);
    return 0;
}

/* An open file of the object that is certainly the one that was loaded, or a negative number. */
static int open_file(const struct elf_image *image, const struct object *object,
                     struct stat *status)
{
    int fd = object->is_main ? elf_open_loaded(image, "/proc/self/exe", status) : -ENOENT;
    return fd >= 0 ? fd : elf_open_loaded(image, object->path, status);
}

bool elf_frames_complete(const struct elf_image *image, struct object *object)
{
    if (object->frames_complete || object->is_vdso || !object->segment_count)
        return false;
    store_relaxed(&object->frames_complete, true);
    struct elf_sections sections = {0};
    struct stat status;
    int fd = open_file(image, object, &status);
    if (fd >= 0)
        elf_read_sections(fd, (uint64_t)status.st_size, &sections);
    bool has_tables = object->fde_count || object->tables == TABLES_GIVEN_UP;
    int error = has_tables ? -ENOENT : complete_eh_frame(image, &sections, object);
    int debug_error =
        fd >= 0 ? complete_debug_frame(image, fd, &sections.debug_frame, object) : -ENOENT;
    if ((error && error != -ENOENT) || (debug_error && debug_error != -ENOENT))
        stats_add(STAT_FRAMES_LEFT_OUT, 1);
    if (fd >= 0)
        sys_close(fd);
    return error == 0 || debug_error == 0;
}

#ifdef LIBAGENT_TEST
void elf_frames_forget(void)
{
    taken = 0;
}
#endif
