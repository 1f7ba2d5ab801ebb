/* Cursors on sections of debugging information: what they read, where they fail, and that what they
 * do is counted. */
#include "agent/export/debug_section.h"

#include <fcntl.h>
#include <string.h>

#include "test/check.h"
#include "test/temp_folder.h"

enum { SIZE = 1 << 20, ENOUGH = 1 << 20 };

static uint8_t bytes[SIZE];
static uint8_t window[CURSOR_WINDOW_MIN];
static const char *folder;
static struct elf_file file;
static struct debug_section section;
static struct cursor cursor;
static uint64_t steps;

static void setup(void)
{
    folder = temp_folder_make();
}

static void teardown(void)
{
    if (!file.memory)
        elf_close(&file);
    temp_folder_remove(folder);
}

/* A cursor on the bytes: in memory (0), or in a file (1), behind what is not the section's. */
static void begin(int is_file, uint64_t steps_left)
{
    enum { BEFORE = 100 };
    steps = steps_left;
    file = (struct elf_file){.fd = -1, .memory = bytes, .size = SIZE};
    section = (struct debug_section){.file = &file, .size = SIZE};
    if (is_file) {
        static uint8_t all[BEFORE + SIZE];
        memcpy(all + BEFORE, bytes, SIZE);
        write_file(in_folder(folder, "bytes"), all, sizeof(all));
        file = (struct elf_file){.size = sizeof(all)};
        file.fd = open(in_folder(folder, "bytes"), O_RDONLY);
        ck_assert_int_ge(file.fd, 0);
        section.offset = BEFORE;
    } else {
        section.memory = bytes;
    }
    cursor_begin(&cursor, &section, window, sizeof(window), &steps);
}

/* Numbers of all sizes, across the ends of windows. */
START_TEST(numbers)
{
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    begin(_i, ENOUGH);
    for (size_t at = 0, n = 0; at < 2000; n++) {
        unsigned size = 1 + n % 8;
        uint64_t value = 0;
        memcpy(&value, bytes + at, size);
        ck_assert_uint_eq(cursor_number(&cursor, size), value);
        at += size;
        ck_assert_uint_eq(cursor_offset(&cursor), at);
    }
    cursor_seek(&cursor, SIZE - 3);
    ck_assert_uint_eq(cursor_u16(&cursor), bytes[SIZE - 3] | bytes[SIZE - 2] << 8);
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(cursor_u16(&cursor), 0);
    ck_assert(cursor.failed);
    cursor_seek(&cursor, 0); /* it stays so */
    ck_assert_uint_eq(cursor_u8(&cursor), 0);
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    uint64_t value;
    int64_t as_signed;
} lebs[] = {
    {"\x00", 1, 0, 0},
    {"\x7f", 1, 127, -1},
    {"\x80\x01", 2, 128, 128},
    {"\xff\x80\x00", 3, 127, 127},
    {"\x80\x7f", 2, 127 << 7, -128},
    {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, UINT64_MAX, -1},
    {"\x83\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 20, 3, 3},
};

START_TEST(numbers_of_any_length)
{
    memcpy(bytes, lebs[_i].bytes, lebs[_i].size);
    begin(0, ENOUGH);
    ck_assert_uint_eq(cursor_uleb(&cursor), lebs[_i].value);
    ck_assert_uint_eq(cursor_offset(&cursor), lebs[_i].size);
    cursor_seek(&cursor, 0);
    ck_assert_int_eq(cursor_sleb(&cursor), lebs[_i].as_signed);
    ck_assert_uint_eq(cursor_offset(&cursor), lebs[_i].size);
    ck_assert(!cursor.failed);
}
END_TEST

/* A megabyte of bytes that all say: more follows. */
START_TEST(numbers_without_end)
{
    memset(bytes, 0x80, SIZE);
    begin(_i, ENOUGH);
    ck_assert_uint_eq(cursor_uleb(&cursor), 0);
    ck_assert(cursor.failed);
    begin(_i, ENOUGH);
    ck_assert_int_eq(cursor_sleb(&cursor), 0);
    ck_assert(cursor.failed);
    ck_assert_uint_gt(steps, ENOUGH - 100);
}
END_TEST

START_TEST(texts_cost_what_they_are_long)
{
    memset(bytes, 'x', SIZE);
    bytes[SIZE - 1] = 0;
    begin(_i, ENOUGH);
    cursor_skip_text(&cursor);
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(cursor_offset(&cursor), SIZE);
    ck_assert_uint_lt(steps, ENOUGH - SIZE / 256 + 100);
    begin(_i, 1000);
    cursor_skip_text(&cursor);
    ck_assert(cursor.failed);
    ck_assert_uint_eq(steps, 0);
}
END_TEST

START_TEST(reads_cost_steps)
{
    begin(1, ENOUGH);
    for (uint64_t at = 0; at < 1000; at++) {
        cursor_seek(&cursor, at * CURSOR_WINDOW_MIN);
        (void)cursor_u8(&cursor);
    }
    ck_assert_uint_lt(steps, ENOUGH - 5000);
    begin(1, 100);
    uint64_t at = 0;
    for (; !cursor.failed && at < 1000; at++) {
        cursor_seek(&cursor, at * CURSOR_WINDOW_MIN);
        (void)cursor_u8(&cursor);
    }
    ck_assert_uint_lt(at, 100);
}
END_TEST

START_TEST(ways_outside)
{
    static const uint64_t far[] = {SIZE + 1, UINT64_MAX, UINT64_MAX - 4, 1ull << 63};
    for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
        begin(_i, ENOUGH);
        cursor_seek(&cursor, far[i]);
        ck_assert(cursor.failed);
        begin(_i, ENOUGH);
        cursor_skip(&cursor, 5);
        cursor_skip(&cursor, far[i] - (i == 0 ? 5 : 0));
        ck_assert(cursor.failed);
    }
    begin(_i, ENOUGH);
    cursor_skip(&cursor, SIZE); /* to the end is no way outside */
    ck_assert(!cursor.failed);
    ck_assert_uint_eq(cursor_offset(&cursor), SIZE);
    cursor_skip_text(&cursor);
    ck_assert(cursor.failed);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("debug section");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, numbers, 0, 2);
    tcase_add_loop_test(all, numbers_of_any_length, 0, (int)ARRAY_SIZE(lebs));
    tcase_add_loop_test(all, numbers_without_end, 0, 2);
    tcase_add_loop_test(all, texts_cost_what_they_are_long, 0, 2);
    tcase_add_test(all, reads_cost_steps);
    tcase_add_loop_test(all, ways_outside, 0, 2);
    suite_add_tcase(suite, all);
    return suite;
}
