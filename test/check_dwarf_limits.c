/* Debugging information that would take long, or much memory: time is counted in steps, and what is
 * beyond the budget is put off or counted. */
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/dwarf_builder.h"

START_TEST(the_budget_is_kept)
{
    struct made made;
    dwarf_make(&made);
    struct object object = dwarf_write(&made);
    struct line_budget budget = {.steps = 0, .is_first = false, .room = DWARF_ROOM};
    int error;
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "later");
    budget.is_first = true; /* one unit may be read, whatever it takes */
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), DWARF_IN_CALL);
    ck_assert(!budget.is_first);
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "later");
    budget.steps = LINES_PROFILE_STEPS;
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), DWARF_IN_CALL);
    ck_assert_uint_lt(budget.steps, LINES_PROFILE_STEPS);
    unlink(object.path);
}
END_TEST

START_TEST(counts_without_end)
{
    struct made made;
    dwarf_make(&made);
    /* Abbreviations whose attributes never end, as the section goes on with values. */
    struct bytes *abbrev = &made.sections[ABBREV];
    memset(abbrev->data + 3, 0x11, DWARF_PART_MAX - 3);
    abbrev->size = DWARF_PART_MAX;
    ck_assert_str_eq(dwarf_found_in(&made, DWARF_CALL), "");
}
END_TEST

/* Of all addresses of the function. */
static uint64_t all_addresses[DWARF_CODE_SIZE];
static struct line_answer all_answers[DWARF_CODE_SIZE];

static int find_all(const struct object *object, struct line_budget *budget, struct buffer *frames,
                    struct buffer *texts)
{
    for (size_t i = 0; i < DWARF_CODE_SIZE; i++)
        all_addresses[i] = DWARF_CODE + i;
    return lines_find(object, all_addresses, DWARF_CODE_SIZE, budget, all_answers, frames, texts);
}

/* Sequence after sequence over the same code: each costs what it gives, though nothing is new. */
START_TEST(sequences_over_the_same_code)
{
    enum { SEQUENCES = 1000 };
    static const uint8_t advance_and_end[] = {1, 2, DWARF_CODE_SIZE, 0, 1, 1};
    struct made made;
    dwarf_make(&made);
    struct bytes *line = &made.sections[LINE];
    for (int i = 0; i < SEQUENCES; i++) {
        put(line, 0, 1);
        put(line, 9, 1);
        put(line, 2, 1);
        put(line, DWARF_CODE, 8);
        put_bytes(line, advance_and_end, sizeof(advance_and_end));
    }
    set_length(line);
    struct object object = dwarf_write(&made);
    struct buffer frames = {0}, texts = {0};
    struct line_budget budget = {.steps = UINT64_MAX, .is_first = true, .room = DWARF_ROOM};
    ck_assert_int_eq(find_all(&object, &budget, &frames, &texts), 0);
    ck_assert_uint_ge(UINT64_MAX - budget.steps, SEQUENCES * DWARF_CODE_SIZE);
    ck_assert_int_eq(all_answers[0].state, LINES_FOUND);
    buffer_free(&frames);
    buffer_free(&texts);
    unlink(object.path);
}
END_TEST

/* What does not fit of a unit is put off; what was found before is whole. */
START_TEST(the_room_is_kept_within_a_unit)
{
    enum { SMALL = 1000, ONE_ANSWER = 100 };
    struct made made;
    dwarf_make(&made);
    struct object object = dwarf_write(&made);
    struct buffer frames = {0}, texts = {0};
    struct line_budget budget = {.steps = UINT64_MAX, .is_first = true, .room = SMALL};
    ck_assert_int_eq(find_all(&object, &budget, &frames, &texts), 0);
    ck_assert_uint_le(frames.size + texts.size, SMALL / 2 + ONE_ANSWER);
    size_t found_count = 0;
    for (size_t i = 0; i < DWARF_CODE_SIZE; i++) {
        found_count += all_answers[i].state == LINES_FOUND;
        ck_assert(all_answers[i].state == LINES_PUT_OFF || found_count == i + 1);
    }
    ck_assert_uint_gt(found_count, 10);
    ck_assert_uint_lt(found_count, DWARF_CODE_SIZE);
    buffer_free(&frames);
    buffer_free(&texts);
    unlink(object.path);
}
END_TEST

/* Units that cost so much that the list of them does not come to its end: what is behind is
 * counted, and the next object's turn is later. */
START_TEST(a_list_of_units_that_takes_too_long)
{
    enum { ATTRIBUTES = 20000, UNITS = LINES_UNIT_STEPS / ATTRIBUTES + 1 };
    struct made made;
    dwarf_make(&made);
    struct bytes *info = &made.sections[INFO], *abbrev = &made.sections[ABBREV];
    static struct bytes behind;
    behind = *info;
    info->size = 0;
    uint32_t table = (uint32_t)abbrev->size;
    put(abbrev, 1, 1);
    put(abbrev, 0x11, 1);
    put(abbrev, 0, 1);
    for (int i = 0; i < ATTRIBUTES; i++) { /* flags, which take no bytes of the unit */
        put(abbrev, 0x3c, 1);
        put(abbrev, 0x19, 1);
    }
    put(abbrev, 0, 3);
    for (int i = 0; i < UNITS; i++) {
        put(info, 8, 4);
        put(info, 4, 2);
        put(info, table, 4);
        put(info, 8, 1);
        put(info, 1, 1);
    }
    put_bytes(info, behind.data, behind.size);
    struct object object = dwarf_write(&made);
    struct line_budget budget = {
        .steps = LINES_PROFILE_STEPS, .is_first = true, .room = DWARF_ROOM};
    int error;
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "");
    ck_assert_int_eq(error, 0);
    ck_assert_uint_eq(budget.left_out, 1);
    ck_assert_uint_eq(budget.steps, 0);
    ck_assert(!budget.is_first);
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "later");
    unlink(object.path);
}
END_TEST

/* A packed section says how large it will be. */
static const struct {
    uint32_t kind;
    uint64_t size;
    int error;
} packed[] = {
    {1, 1ull << 40, -E2BIG}, {1, DWARF_ROOM + 1, -E2BIG}, {1, 0, -ENOEXEC},
    {1, 100, -ENOEXEC},      {2, 100, -ENOEXEC},          {3, 100, -ENOEXEC},
    {2, 1ull << 40, -E2BIG},
};

START_TEST(packed_sections_that_lie)
{
    struct made made;
    dwarf_make(&made);
    Elf64_Chdr head = {.ch_type = packed[_i].kind, .ch_size = packed[_i].size};
    memcpy(made.sections[INFO].data, &head, sizeof(head));
    made.flags[INFO] = SHF_COMPRESSED;
    struct object object = dwarf_write(&made);
    struct line_budget budget = {
        .steps = LINES_PROFILE_STEPS, .is_first = true, .room = DWARF_ROOM};
    int error;
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "");
    ck_assert_int_eq(error, packed[_i].error);
    unlink(object.path);
}
END_TEST

/* The old way to say it: its name, and the size behind a word, its highest byte first. */
static const struct {
    const char *word;
    uint64_t size;
    size_t section_size; /* 0: as it is */
    int error;
} packed_of_old[] = {
    {"ZLIB", 1ull << 40, 0, -E2BIG}, {"ZLIB", DWARF_ROOM + 1, 0, -E2BIG},
    {"ZLIB", 0, 0, -ENOEXEC},        {"ZLIB", 100, 0, -ENOEXEC},
    {"ZLIC", 100, 0, -ENOEXEC},      {"ZLIB", 100, 12, -ENOEXEC},
    {"ZLIB", 100, 11, -ENOEXEC},     {"ZLIB", UINT64_MAX, 0, -E2BIG},
};

START_TEST(old_packed_sections_that_lie)
{
    struct made made;
    dwarf_make(&made);
    struct bytes *info = &made.sections[INFO];
    uint64_t size = __builtin_bswap64(packed_of_old[_i].size);
    dwarf_rename(&made, INFO, ".zdebug_info");
    memcpy(info->data, packed_of_old[_i].word, 4);
    memcpy(info->data + 4, &size, sizeof(size));
    if (packed_of_old[_i].section_size)
        info->size = packed_of_old[_i].section_size;
    struct object object = dwarf_write(&made);
    struct line_budget budget = {
        .steps = LINES_PROFILE_STEPS, .is_first = true, .room = DWARF_ROOM};
    int error;
    ck_assert_str_eq(dwarf_found(&object, DWARF_CALL, &budget, &error), "");
    ck_assert_int_eq(error, packed_of_old[_i].error);
    unlink(object.path);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dwarf limits");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, the_budget_is_kept);
    tcase_add_test(all, counts_without_end);
    tcase_add_test(all, a_list_of_units_that_takes_too_long);
    tcase_add_test(all, the_room_is_kept_within_a_unit);
    tcase_add_test(all, sequences_over_the_same_code);
    tcase_add_loop_test(all, packed_sections_that_lie, 0, (int)ARRAY_SIZE(packed));
    tcase_add_loop_test(all, old_packed_sections_that_lie, 0, (int)ARRAY_SIZE(packed_of_old));
    suite_add_tcase(suite, all);
    return suite;
}
