#include "test/library_fixture.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "agent/unwind/cfi.h"
#include "agent/unwind/elf_object.h"
#include "test/check.h"

const struct object *object_at(const void *address)
{
    const struct module *module = modules_find(modules_list, (uintptr_t)address);
    ck_assert_ptr_nonnull(module);
    return module->object;
}

static const char *const libraries[] = {"libz.so.1", "libbz2.so.1.0", "liblzma.so.5"};
const char *library_name;
void *library_handle;
const uint8_t *library_code;

static int find_code(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, library_name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X))
            library_code = (const uint8_t *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr +
                           info->dlpi_phdr[i].p_memsz / 2;
    return 1;
}

void library_load(void)
{
    /* One that the suite itself does not hold. */
    for (size_t i = 0; i < ARRAY_SIZE(libraries) && !library_name; i++)
        if (!dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD))
            library_name = libraries[i];
    library_handle = dlopen(library_name, RTLD_NOW);
    ck_assert_ptr_nonnull(library_handle);
    ck_assert_int_eq(dl_iterate_phdr(find_code, NULL), 1);
}

static int compare_tables(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    if (!strstr(info->dlpi_name, library_name))
        return 0;
    struct elf_image image;
    elf_read_image(info, &image);
    return elf_tables_equal(&image, data) ? 1 : 2;
}

void library_check(const struct object *object)
{
    ck_assert(!object->in_place && !object->is_system);
    ck_assert_uint_gt(object->fde_count, 10);
    ck_assert_int_eq(dl_iterate_phdr(compare_tables, (void *)(uintptr_t)object), 1);
    const uint8_t *tables = object->eh_frame_hdr.data;
    ck_assert(tables < library_code - (16 << 20) || tables > library_code + (16 << 20) ||
              !modules_find(modules_list, (uintptr_t)tables));
}

void library_check_rows(const struct object *object)
{
    struct cfi_row row;
    uint32_t rows = 0;
    for (uint64_t i = 0; i < object->segments[0].size; i += 16)
        rows += cfi_row_at(object, object->segments[0].vaddr + i, &row) == 0;
    ck_assert_uint_gt(rows, 100);
}
