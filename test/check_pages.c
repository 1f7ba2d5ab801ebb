/* Pages and collapsed stacks of windows: whatever a name holds, their data is what readers made by
 * others (libjansson here) take, and has the sums of the pprof file of the same window. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/export/json.h"
#include "test/pages_fixture.h"
#include "test/preload/picture_expect.h"
#include "test/temp_folder.h"

/* ---- Texts ----------------------------------------------------------------------------------- */

START_TEST(json_of_all_texts_and_numbers)
{
    struct buffer out = {0};
    char every[3 * 0x900], all_bytes[256];
    size_t size = 0;
    for (unsigned c = 1; c < 0x80; c++)
        every[size++] = (char)c;
    for (unsigned c = 0x80; c < 0x800; c++) {
        every[size++] = (char)(0xc0 | c >> 6);
        every[size++] = (char)(0x80 | (c & 0x3f));
    }
    static const char others[] = "\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xb0\xe2\x82\xa8";
    memcpy(every + size, others, sizeof(others));
    json_raw(&out, "[");
    json_text(&out, every, strlen(every));
    for (size_t i = 0; i < 4; i++) {
        const int64_t numbers[] = {0, -1, INT64_MAX, INT64_MIN};
        json_raw(&out, ",");
        json_number(&out, numbers[i]);
    }
    json_raw(&out, "]");
    memset(all_bytes, 0, sizeof(all_bytes));
    for (size_t i = 0; i < out.size; i++)
        all_bytes[out.data[i]] = 1;
    for (int c = 0; c < ' '; c++)
        ck_assert_int_eq(all_bytes[c], 0);
    ck_assert(!all_bytes['<'] && !all_bytes['>'] && !all_bytes['&'] && !all_bytes[0x7f]);
    json_error_t error;
    json_t *array = json_loadb((const char *)out.data, out.size, 0, &error);
    ck_assert_msg(array != NULL, "%s", error.text);
    ck_assert_str_eq(json_string_value(json_array_get(array, 0)), every);
    ck_assert(json_integer_value(json_array_get(array, 1)) == 0);
    ck_assert(json_integer_value(json_array_get(array, 2)) == -1);
    ck_assert(json_integer_value(json_array_get(array, 3)) == INT64_MAX);
    ck_assert(json_integer_value(json_array_get(array, 4)) == INT64_MIN);
    json_decref(array);
    buffer_free(&out);
}
END_TEST

static const char *text_member(const struct picture *page, const char *name)
{
    return json_string_value(json_object_get(page->data, name));
}

enum { VALUE_SIZE = 61 };

/* The text, or 20 dashes of the long one. */
static void make_value(char value[VALUE_SIZE], size_t i)
{
    size_t length = strlen(valid_text(i));
    length = length < VALUE_SIZE ? length : VALUE_SIZE - 1;
    memcpy(value, valid_text(i), length);
    value[length] = 0;
}

/* Every hostile text as a function's name, a thread's, a label's value, and the program's. */
START_TEST(hostile_names_stay_what_they_are)
{
    struct picture page, lines;
    for (size_t i = 0; i < HOSTILE; i++) {
        struct thread_label thread = {.tid = 100 + i};
        struct label_set set = {.count = 0}, empty = {.count = 0};
        uint64_t label[LABEL_WORDS_MAX];
        char value[VALUE_SIZE];
        strncpy(thread.name, hostile[i].name, sizeof(thread.name) - 1);
        make_value(value, i);
        ck_assert_int_eq(label_make(label, "k<&\"", value, NULL), 0);
        ck_assert_int_eq(label_set_change(&set, &empty, label, true), 1);
        add(0, (const uint64_t[]){pc_of(i), pc_of(0)}, 2, &thread,
            &(struct label_view){.set = &set}, 1000 + i);
    }
    const char *comments[] = {hostile[1].name, hostile[9].name, hostile[11].name, NULL};
    request.comments = comments;
    request.program = hostile[1].name;
    request.service = hostile[11].name;
    const struct window *window = recorder_turn(3, 4);
    read_page(window, &page);
    ck_assert_uint_eq(page.row_count, HOSTILE);
    ck_assert_uint_eq(json_array_size(json_object_get(page.data, "threads")), HOSTILE);
    ck_assert_str_eq(text_member(&page, "program"), hostile[1].name);
    ck_assert_str_eq(text_member(&page, "service"), hostile[11].valid);
    const json_t *told = json_object_get(page.data, "comments");
    ck_assert_uint_eq(json_array_size(told), 3);
    ck_assert_str_eq(json_string_value(json_array_get(told, 1)), hostile[9].name);
    ck_assert_str_eq(json_string_value(json_array_get(told, 2)), hostile[11].valid);
    for (size_t i = 0; i < HOSTILE; i++) {
        char value[VALUE_SIZE];
        ck_assert_msg(picture_self(&page, 1, valid_text(i)) == (int64_t)(1000 + i), "%s",
                      valid_text(i));
        make_value(value, i);
        ck_assert_msg(picture_of_label(&page, 1, "k<&\"", value, 0) == (int64_t)(1000 + i), "%s",
                      value);
    }
    read_collapsed(window, &lines);
    ck_assert_uint_eq(lines.row_count, HOSTILE);
    for (size_t i = 0; i < HOSTILE; i++) {
        const char *name = hostile[i].collapsed ? hostile[i].collapsed : valid_text(i);
        ck_assert_msg(picture_self(&lines, 0, name) == (int64_t)(1000 + i), "%s", name);
    }
    picture_free(&page);
    picture_free(&lines);
}
END_TEST

/* ---- What is in it --------------------------------------------------------------------------- */

static int64_t member(const struct picture *page, const char *name)
{
    return json_integer_value(json_object_get(page->data, name));
}

START_TEST(a_page_tells_of_its_window)
{
    struct picture page;
    const struct thread_label alice = {.tid = 41, .name = "alice"}, nobody = {.tid = 0};
    const struct thread_label nameless = {.tid = 43};
    request.family = RECORD_WALL;
    const uint64_t one[] = {pc_of(30), pc_of(0)}, two[] = {JIT_CODE, VDSO_BIAS + 16};
    add(RECORD_BLOCKED, one, 2, &alice, NULL, 7);
    add(RECORD_BLOCKED | RECORD_APPROXIMATE, one, 2, &nameless, NULL, 11);
    add(0, two, 2, &nobody, NULL, 13);
    add(0, (const uint64_t[]){PSEUDO_TAIL, BAD_BIAS + 0x2000}, 2, &alice, NULL, 17);
    struct window *window = recorder_turn(3, 4);
    window->truncated[RECORD_WALL] = (struct record_values){ONE, 100};
    read_page(window, &page);
    ck_assert_str_eq(text_member(&page, "program"), "prog");
    ck_assert_str_eq(text_member(&page, "service"), "service");
    ck_assert_str_eq(text_member(&page, "family"), "wall");
    ck_assert_int_eq(member(&page, "pid"), 4711);
    ck_assert_int_eq(member(&page, "start_ms"), 1700000000123);
    ck_assert_int_eq(member(&page, "duration_ms"), 60000);
    ck_assert_int_eq(member(&page, "default"), 1);
    ck_assert_int_eq(page_type(&page, "samples"), 0);
    ck_assert_int_eq(page_type(&page, "wall"), 1);
    ck_assert_int_eq(picture_total(&page, 1), 148);
    ck_assert_int_eq(picture_self(&page, 1, "libagent truncated"), 100);
    ck_assert_int_eq(picture_of_thread(&page, 1, "alice", 41), 24);
    ck_assert_int_eq(picture_of_thread(&page, 1, "", 43), 11);
    ck_assert_int_eq(picture_of_label(&page, 1, "state", "blocked", 0), 18);
    ck_assert_int_eq(picture_of_label(&page, 1, "state", "running", 0), 30);
    ck_assert_int_eq(picture_of_label(&page, 1, "approximate", "true", 0), 11);
    ck_assert_int_eq(picture_self(&page, 1, "function 30"), 18);
    ck_assert_int_eq(picture_under(&page, 1, "[thread end]"), 17);
    json_t *modules = json_object_get(page.data, "modules");
    const char *const expected[] = {"libfake.so.1", "[anon]", "[vdso]", "[libagent]",
                                    "b\xef\xbf\xbd\xef\xbf\xbd-d.so"};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        size_t at = 0;
        while (at < json_array_size(modules) &&
               strcmp(json_string_value(json_array_get(modules, at)), expected[i]) != 0)
            at++;
        ck_assert_msg(at < json_array_size(modules), "%s", expected[i]);
    }
    picture_free(&page);
}
END_TEST

START_TEST(numbers_as_labels_and_captures)
{
    struct picture page;
    const struct thread_label alice = {.tid = 41, .name = "alice"};
    struct label_set set = {.count = 0}, empty = {.count = 0}, both = {.count = 0};
    struct label_set capture = {.count = 0};
    const int64_t least = INT64_MIN;
    /* In doubles the first two and the last two would be one. */
    static const int64_t large[] = {1ll << 53, (1ll << 53) + 1, 1 - (1ll << 53), -(1ll << 53),
                                    -(1ll << 53) - 1};
    enum { NUMBERS = sizeof(large) / sizeof(large[0]) };
    uint64_t label[LABEL_WORDS_MAX];
    ck_assert_int_eq(label_make(label, "n", NULL, &least), 0);
    ck_assert_int_eq(label_set_change(&set, &empty, label, true), 1);
    ck_assert_int_eq(label_make(label, "endpoint", "/checkout", NULL), 0);
    ck_assert_int_eq(label_set_change(&both, &set, label, true), 1);
    ck_assert_int_eq(label_make(label, "capture", "slice", NULL), 0);
    ck_assert_int_eq(label_set_change(&capture, &empty, label, true), 1);
    const uint64_t stack[] = {pc_of(30)};
    add(0, stack, 1, &alice, &(struct label_view){.set = &set}, 1);
    add(0, stack, 1, &alice, &(struct label_view){.set = &both}, 2);
    add(0, stack, 1, &alice, &(struct label_view){.set = &both, .captures = {&capture}}, 4);
    add(0, stack, 1, &alice, NULL, 8);
    for (size_t i = 0; i < NUMBERS; i++) {
        ck_assert_int_eq(label_make(label, "large", NULL, &large[i]), 0);
        ck_assert_int_eq(label_set_change(&set, &empty, label, true), 1);
        add(0, stack, 1, &alice, &(struct label_view){.set = &set}, 16 << i);
    }
    read_page(recorder_turn(3, 4), &page);
    ck_assert_uint_eq(page.row_count, 4 + NUMBERS);
    ck_assert_uint_eq(json_array_size(json_object_get(page.data, "labels")), 4 + NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++)
        ck_assert_int_eq(picture_of_label(&page, 1, "large", NULL, large[i]), 16 << i);
    ck_assert_int_eq(picture_of_label(&page, 1, "n", NULL, INT64_MIN), 7);
    ck_assert_int_eq(picture_of_label(&page, 1, "endpoint", "/checkout", 0), 6);
    ck_assert_int_eq(picture_of_label(&page, 1, "capture", "slice", 0), 4);
    picture_free(&page);
}
END_TEST

START_TEST(an_empty_window_gives_no_file)
{
    struct buffer out = {0};
    const struct window *window = recorder_turn(3, 4);
    for (int dialect = 0; dialect < DIALECT_FILES; dialect++) {
        write_as(window, (enum export_dialect)dialect, &out);
        ck_assert_uint_eq(out.size, 0);
        ck_assert_ptr_null(out.data);
    }
}
END_TEST

/* With names, and with addresses alone. */
START_TEST(sums_are_those_of_pprof)
{
    struct rng rng = {.state = (uint64_t)_i + 1};
    options.symbols = _i % 2 ? SYMBOLS_OFF : SYMBOLS_NAMES;
    for (int i = 0; i < 150; i++) {
        uint64_t pcs[12];
        uint32_t depth = 1 + (uint32_t)(rng_next(&rng) % 12);
        struct thread_label thread = {.tid = 1 + rng_next(&rng) % 3, .name = "some"};
        for (uint32_t k = 0; k < depth; k++)
            pcs[k] = LIB_BIAS + CODE + FUNCTION * HOSTILE + rng_next(&rng) % (20 * FUNCTION);
        add(0, pcs, depth, &thread, NULL, rng_next(&rng) % 10000000);
    }
    struct window *window = recorder_turn(3, 4);
    window->truncated[RECORD_CPU] = (struct record_values){2 * ONE, 55};
    struct buffer out = {0};
    struct picture page, lines;
    struct profile profile;
    const char *folder = temp_folder_make();
    request.shared = &gathered;
    write_as(window, DIALECT_PPROF, &out);
    write_file(in_folder(folder, "prog.4711.0000.cpu.pb"), out.data, out.size);
    buffer_free(&out);
    profile_load(&profile, folder, "cpu", 0);
    ck_assert_uint_eq(profile.file_count, 1);
    if (options.symbols == SYMBOLS_NAMES) {
        read_page(window, &page);
        picture_expect_page(&page, &profile);
        read_collapsed(window, &lines);
        picture_expect_collapsed(&lines, &profile, CPU_NS);
    } else {
        read_page(window, &page);
        read_collapsed(window, &lines);
        /* The file has no names: by address. */
        for (size_t i = 0; i < profile.stack_count; i++) {
            const struct frame *leaf = &profile.stacks[i].frames[0];
            char name[64];
            if (strcmp(leaf->object, "[libagent]") == 0)
                snprintf(name, sizeof(name), "libagent truncated");
            else
                snprintf(name, sizeof(name), "libfake.so.1+0x%llx",
                         (unsigned long long)leaf->address);
            int64_t truth = 0;
            for (size_t k = 0; k < profile.stack_count; k++)
                if (profile.stacks[k].frames[0].address == leaf->address &&
                    strcmp(profile.stacks[k].frames[0].object, leaf->object) == 0)
                    truth += profile.stacks[k].values[CPU_NS];
            ck_assert_int_eq(picture_self(&page, 1, name), truth);
            ck_assert_int_eq(picture_self(&lines, 0, name), truth);
        }
    }
    picture_free(&page);
    picture_free(&lines);
    profile_free(&profile);
    temp_folder_remove(folder);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("pages");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, json_of_all_texts_and_numbers);
    tcase_add_test(all, hostile_names_stay_what_they_are);
    tcase_add_test(all, a_page_tells_of_its_window);
    tcase_add_test(all, numbers_as_labels_and_captures);
    tcase_add_test(all, an_empty_window_gives_no_file);
    tcase_add_loop_test(all, sums_are_those_of_pprof, 0, 4);
    suite_add_tcase(suite, all);
    return suite;
}
