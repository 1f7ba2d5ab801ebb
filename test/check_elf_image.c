/* What a loaded image says of itself, where it says it wrongly. The image is in memory of exactly
 * its size, so that AddressSanitizer sees a read outside. */
#include "test/check.h"

#include <string.h>

#include "agent/unwind/elf_object.h"

enum { STRINGS = 5 * sizeof(ElfW(Dyn)), NAMES = 12, SIZE = STRINGS + NAMES };

static uint8_t *bytes;
static uint32_t needed;

static void note_needed(const char *name, void *data)
{
    (void)data;
    ck_assert_str_eq(name, needed++ ? "libb" : "liba");
}

/* An image whose dynamic section stands at `at`, the names of two libraries behind it. */
static void count_needed(size_t at, char last)
{
    const ElfW(Dyn) dynamic[] = {{.d_tag = DT_NEEDED, .d_un.d_val = 1},
                                 {.d_tag = DT_NEEDED, .d_un.d_val = 6},
                                 {.d_tag = DT_NEEDED, .d_un.d_val = NAMES},
                                 {.d_tag = DT_STRTAB, .d_un.d_ptr = at + STRINGS},
                                 {.d_tag = DT_STRSZ, .d_un.d_val = NAMES}};
    bytes = malloc(at + SIZE);
    memcpy(bytes + at, dynamic, STRINGS);
    memcpy(bytes + at + STRINGS, "\0liba\0libb\0", NAMES);
    bytes[at + SIZE - 1] = (uint8_t)last;
    const ElfW(Phdr) headers[] = {
        {.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = at + SIZE, .p_memsz = at + SIZE},
        {.p_type = PT_DYNAMIC, .p_vaddr = at, .p_filesz = STRINGS}};
    struct dl_phdr_info info = {
        .dlpi_addr = (uintptr_t)bytes, .dlpi_phdr = headers, .dlpi_phnum = 2};
    struct elf_image image;
    needed = 0;
    elf_read_image(&info, &image);
    elf_each_needed(&image, note_needed, NULL);
    free(bytes);
}

/* Found by fuzzing. */
START_TEST(names_without_end)
{
    count_needed(0, 0);
    ck_assert_uint_eq(needed, 2);
    count_needed(0, 'x');
    ck_assert_uint_eq(needed, 0);
}
END_TEST

/* Found by fuzzing. */
START_TEST(a_dynamic_section_at_an_odd_address)
{
    count_needed(8, 0);
    ck_assert_uint_eq(needed, 2);
    count_needed(3, 0);
    ck_assert_uint_eq(needed, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("elf_image");
    TCase *t = tcase_create("elf_image");
    tcase_add_test(t, names_without_end);
    tcase_add_test(t, a_dynamic_section_at_an_odd_address);
    suite_add_tcase(s, t);
    return s;
}
