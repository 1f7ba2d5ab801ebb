/* Debugging information made by hand: what is in it, and what is wrong with it. That of compilers
 * is held against llvm-symbolizer's by test/names/lines.py. */
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/dwarf_builder.h"

START_TEST(functions_files_and_lines)
{
    struct made made;
    dwarf_make(&made);
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE - 1), "");
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE), "f /src/a.c:10+10");
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL - 1), "f /src/a.c:10+10");
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL), DWARF_IN_CALL);
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL + 0xf), DWARF_IN_CALL);
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL + 0x10), "f /src/a.c:13+10");
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE + DWARF_CODE_SIZE - 1), "f /src/a.c:13+10");
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE + DWARF_CODE_SIZE), "");
}
END_TEST

/* The linker leaves what it threw away at addresses where no code is: it says nothing of those that
 * it seems to reach. */
START_TEST(what_the_linker_threw_away)
{
    struct made made;
    dwarf_make(&made);
    static const uint64_t nowhere = DWARF_CODE - 8;
    memcpy(made.sections[LINE].data + made.sequence, &nowhere, sizeof(nowhere));
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE), "f ?:0+0");
    memcpy(made.sections[INFO].data + made.low, &nowhere, sizeof(nowhere));
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CODE), "");
}
END_TEST

/* Cut anywhere: what is left is right or not there. */
START_TEST(sections_that_are_cut)
{
    struct made made;
    for (int section = INFO; section <= LINE; section++) {
        dwarf_make(&made);
        size_t whole = made.sections[section].size;
        size_t right = 0;
        for (size_t size = 0; size <= whole; size++) {
            made.sections[section].size = size;
            const char *text = dwarf_found_in(&made, DWARF_CALL);
            right += strcmp(text, DWARF_IN_CALL) == 0;
            ck_assert_msg(!strstr(text, ":4") || strstr(text, "a.c:4"), "%d %zu: %s", section, size,
                          text);
        }
        ck_assert_uint_ge(right, 1);
    }
}
END_TEST

/* Any byte of another value: it ends, and its texts are texts. */
START_TEST(bytes_that_are_wrong)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct made made;
    size_t different = 0;
    for (int section = INFO; section <= LINE; section++) {
        dwarf_make(&made);
        for (size_t at = 0; at < made.sections[section].size; at++) {
            uint8_t good = made.sections[section].data[at];
            made.sections[section].data[at] = values[(at + (size_t)_i) % ARRAY_SIZE(values)];
            different += strcmp(dwarf_found_in(&made, DWARF_CALL), DWARF_IN_CALL) != 0;
            made.sections[section].data[at] = good;
        }
    }
    ck_assert_uint_gt(different, 50);
}
END_TEST

START_TEST(functions_that_refer_to_themselves)
{
    struct made made;
    dwarf_make(&made);
    uint32_t self = (uint32_t)made.inlined_entry;
    memcpy(made.sections[INFO].data + made.origin, &self, sizeof(self));
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL), "? /src/a.c:4+0, f /src/a.c:12+10");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dwarf");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, functions_files_and_lines);
    tcase_add_test(all, what_the_linker_threw_away);
    tcase_add_test(all, sections_that_are_cut);
    tcase_add_loop_test(all, bytes_that_are_wrong, 0, 5);
    tcase_add_test(all, functions_that_refer_to_themselves);
    suite_add_tcase(suite, all);
    return suite;
}
