/* A loaded image of any content: what its program headers name is looked for, and its tables are
 * taken in all three ways (in place, from the file, as a copy). What the loader has mapped is to be
 * trusted: PT_LOAD headers are made to lie in the image. All else is as it comes.
 *
 * Input: the number of headers, the headers, the bytes of the image; the file is the same bytes. */
#include "test/fuzz/fuzz_input.h"

#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/elf_frames.h"
#include "agent/unwind/elf_object.h"

enum { HEADERS_MAX = 8, MAPPED_MAX = 32 };

/* What was mapped and is still there: of the file as it is, other memory from the heap. */
static struct {
    void *at;
    size_t size;
    bool is_file;
} mapped[MAPPED_MAX];
static uint32_t mapped_count;
static char path[64];
static int file;

static void unmap(uint32_t i)
{
    if (mapped[i].is_file)
        sys_raw6(SYS_munmap, (long)mapped[i].at, (long)mapped[i].size, 0, 0, 0, 0);
    else
        free(mapped[i].at);
    mapped[i] = mapped[--mapped_count];
}

static bool answer(long number, const long args[6], long *result)
{
    if (number == SYS_munmap) {
        *result = 0;
        for (uint32_t i = 0; i < mapped_count; i++)
            if (mapped[i].at == (void *)args[0]) {
                unmap(i);
                return true;
            }
        __builtin_trap();
    }
    if (number != SYS_mmap)
        return false;
    EXPECT(mapped_count < MAPPED_MAX);
    bool is_file = args[4] >= 0;
    if (is_file)
        *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    else
        *result = (long)calloc(1, (size_t)args[1]);
    if (*result > 0) {
        mapped[mapped_count].at = (void *)*result;
        mapped[mapped_count].size = (size_t)args[1];
        mapped[mapped_count++].is_file = is_file;
    }
    return true;
}

static void read_name(const char *name, void *data)
{
    *(size_t *)data += strlen(name);
}

static void use_rows(const struct object *object, uint64_t base, const uint8_t *index,
                     uint32_t count)
{
    for (uint32_t i = 0; i < MIN_OF(count, 4u); i++) {
        struct cfi_row row;
        int32_t first;
        memcpy(&first, index + (size_t)i * 8, sizeof(first));
        EXPECT(cfi_row_at(object, base + (uint64_t)(int64_t)first + 1, &row) <= 0);
    }
}

/* All bytes of a table are there, and so are the rows. */
static void use_tables(const struct object *object)
{
    const struct object_table *tables[] = {&object->eh_frame_hdr, &object->eh_frame};
    unsigned sum = 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t]->size; i++)
            sum += tables[t]->data[i];
    __asm__ volatile("" ::"r"(sum));
    use_rows(object, object->eh_frame_hdr.vaddr, object->fde_index, object->fde_count);
}

/* An object whose tables are found by its file's sections alone. */
static void use_sections(const struct elf_image *image, bool in_place)
{
    struct object object = {.path = path, .in_place = in_place};
    elf_describe(image, &object);
    if (elf_frames_complete(image, &object)) {
        EXPECT(object.fde_count || object.debug_frame);
        use_rows(&object, object.eh_frame_hdr.vaddr, object.fde_index, object.fde_count);
        const struct object_debug_frame *debug = object.debug_frame;
        if (debug)
            use_rows(&object, debug->code_base, debug->index, debug->count);
    }
    elf_frames_forget();
}

static void use_image(const struct elf_image *image)
{
    struct object in_place = {0}, from_file = {0}, copied = {0};
    size_t names = 0;
    elf_describe(image, &in_place);
    EXPECT(in_place.segment_count <= OBJECT_SEGMENTS_MAX);
    EXPECT(in_place.build_id_size <= BUILD_ID_MAX);
    EXPECT(elf_has_code(image) == (in_place.segment_count > 0));
    elf_each_needed(image, read_name, &names);
    elf_tables_in_place(image, &in_place);
    use_tables(&in_place);
    if (elf_tables_copied(image, &copied) == 0) {
        EXPECT(elf_tables_equal(image, &copied));
        use_tables(&copied);
        elf_tables_give_up(&copied);
        EXPECT(elf_tables_equal(image, &copied));
    }
    if (elf_tables_mapped(image, path, &from_file) == 0) {
        EXPECT(elf_tables_equal(image, &from_file));
        use_tables(&from_file);
        elf_tables_give_up(&from_file);
    }
    use_sections(image, false);
    use_sections(image, true);
    while (mapped_count)
        unmap(mapped_count - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        file = memfd_create("image", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        arena_set_budget(SIZE_MAX);
        sys_override = answer;
    }
    struct fuzz_input input = {data, size};
    ElfW(Phdr) headers[HEADERS_MAX];
    uint8_t count, is_cut;
    fuzz_take(&input, &count, 1);
    fuzz_take(&input, &is_cut, 1);
    count %= HEADERS_MAX + 1;
    fuzz_take(&input, headers, count * sizeof(headers[0]));
    if (input.left == 0)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        ElfW(Phdr) *h = &headers[i];
        if (h->p_type != PT_LOAD)
            continue;
        h->p_vaddr %= input.left;
        h->p_filesz %= input.left - h->p_vaddr + 1;
        h->p_memsz %= 1ull << 40;
        h->p_offset %= 1ull << 40;
    }
    uint8_t *bytes = malloc(input.left);
    EXPECT(bytes);
    memcpy(bytes, input.at, input.left);
    size_t file_size = is_cut ? input.left * is_cut / 256 : input.left;
    EXPECT(ftruncate(file, 0) == 0 && pwrite(file, bytes, file_size, 0) == (ssize_t)file_size);
    /* The headers, too, in memory of their size. */
    ElfW(Phdr) *exact = malloc(count * sizeof(headers[0]) + !count);
    EXPECT(exact);
    memcpy(exact, headers, count * sizeof(headers[0]));
    struct dl_phdr_info info = {
        .dlpi_addr = (uintptr_t)bytes, .dlpi_phdr = exact, .dlpi_phnum = count};
    struct elf_image image;
    elf_read_image(&info, &image);
    use_image(&image);
    free(exact);
    free(bytes);
    return 0;
}
