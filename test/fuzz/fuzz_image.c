/* A loaded image of any content: what its program headers name is looked for, and its tables are
 * taken in all three ways (in place, from the file, as a copy). What the loader has mapped is to be
 * trusted: PT_LOAD headers are made to lie in the image. All else is as it comes.
 *
 * Input: the number of headers, the headers, the bytes of the image; the file is the same bytes. */
#include "test/fuzz/fuzz_input.h"

#include <link.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/elf_object.h"

enum { HEADERS_MAX = 8, MAPPED_MAX = 4 };

/* Mappings of the file, to be undone. */
static struct {
    long at, size;
} mapped[MAPPED_MAX];
static uint32_t mapped_count;
static char path[64];
static int file;

static bool note_mapping(long number, const long args[6], long *result)
{
    if (number != SYS_mmap || args[4] < 0 || mapped_count == MAPPED_MAX)
        return false;
    *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    mapped[mapped_count].at = *result;
    mapped[mapped_count++].size = args[1];
    return true;
}

static void undo_mappings(void)
{
    for (; mapped_count; mapped_count--)
        if (mapped[mapped_count - 1].at > 0)
            sys_raw6(SYS_munmap, mapped[mapped_count - 1].at, mapped[mapped_count - 1].size, 0, 0,
                     0, 0);
}

static void read_name(const char *name, void *data)
{
    *(size_t *)data += strlen(name);
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
    for (uint32_t i = 0; i < MIN_OF(object->fde_count, 4u); i++) {
        struct cfi_row row;
        int32_t first;
        memcpy(&first, object->fde_index + (size_t)i * 8, sizeof(first));
        int error =
            cfi_row_at(object, object->eh_frame_hdr.vaddr + (uint64_t)(int64_t)first + 1, &row);
        EXPECT(error <= 0);
    }
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
        if (copied.eh_frame_hdr.data)
            arena_release((void *)(uintptr_t)copied.eh_frame_hdr.data,
                          copied.eh_frame_hdr.size + copied.eh_frame.size);
    }
    if (elf_tables_from_file(image, path, &from_file) == 0)
        use_tables(&from_file);
    undo_mappings();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        file = memfd_create("image", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        sys_override = note_mapping;
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
