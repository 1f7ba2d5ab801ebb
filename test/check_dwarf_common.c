/* Debugging information of which a part lies in another file: what dwz moved to one that several
 * have in common. By hand; that of dwz itself is in test/names/lines.py. */
#include <stdio.h>
#include <string.h>

#include "agent/base/options.h"
#include "test/check.h"
#include "test/dwarf_builder.h"
#include "test/temp_folder.h"

static const uint8_t id[] = {0xab, 1,  2,  3,  4,  5,  6,  7,  8,  9,
                             10,   11, 12, 13, 14, 15, 16, 17, 18, 19};
#define ID_FOLDER ".build-id/ab"
#define ID_FILE   "0102030405060708090a0b0c0d0e0f10111213.debug"

/* With the common file, and without. */
#define TRUTH   "h /src/a.c:4+0, f /src/a.c:12+10"
#define WITHOUT "? a.c:4+0, f a.c:12+10"

static const char *folder;
static char object_path[512];
static struct made made, common;
static struct object object;
static struct line_budget budget;

static void mkdir_in(const char *name)
{
    char command[1024];
    snprintf(command, sizeof(command), "mkdir -p '%s/%s'", folder, name);
    ck_assert_int_eq(system(command), 0);
}

/* As dwz writes it, and as DWARF 5 does, where both files have a .debug_sup. */
enum writing { GNU, DWARF_5, WRITINGS };

static const struct {
    uint8_t text[2], reference[2]; /* forms */
    size_t form_size;
} writings[WRITINGS] = {{{0xa1, 0x3e}, {0xa0, 0x3e}, 2}, {{0x1d}, {0x1c}, 1}};

static void put_supplement(struct made *file, uint8_t is_common, const char *path)
{
    const uint8_t head[] = {5, 0, is_common};
    dwarf_rename(file, LINK, ".debug_sup");
    put_bytes(&file->sections[LINK], head, sizeof(head));
    put_text(&file->sections[LINK], path);
    put(&file->sections[LINK], sizeof(id), 1);
}

/* The file at FOLDER/own/made refers to `link`, for its folder's name and for g, which is h there.
 */
static void refer_to(const char *link, enum writing as)
{
    static const uint32_t text = 2;
    dwarf_make(&made);
    struct bytes *info = &made.sections[INFO];
    uint32_t entry = (uint32_t)common.inlined_name - 1;
    replace(info, made.origin, sizeof(entry), &entry, sizeof(entry));
    replace(info, made.folder, sizeof("/src"), &text, sizeof(text));
    replace(&made.sections[ABBREV], DWARF_ORIGIN_FORM, 1, writings[as].reference,
            writings[as].form_size);
    replace(&made.sections[ABBREV], DWARF_FOLDER_FORM, 1, writings[as].text,
            writings[as].form_size);
    set_length(info);
    if (as == GNU)
        put_text(&made.sections[LINK], link);
    else
        put_supplement(&made, 0, link);
    put_bytes(&made.sections[LINK], id, sizeof(id));
    dwarf_write_at(&made, object_path);
}

/* Gives the common file its id; the section that ends with it. */
static struct bytes *identify(enum writing as)
{
    static const uint8_t note[] = {4, 0, 0, 0, sizeof(id), 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
    struct bytes *section = &common.sections[as == GNU ? NOTE : LINK];
    if (as == GNU)
        put_bytes(section, note, sizeof(note));
    else
        put_supplement(&common, 1, "");
    put_bytes(section, id, sizeof(id));
    return section;
}

static void setup(void)
{
    static char debug_path[512];
    folder = temp_folder_make();
    snprintf(debug_path, sizeof(debug_path), "/nowhere:%s/debug", folder);
    options.debug_path = debug_path;
    mkdir_in("own");
    snprintf(object_path, sizeof(object_path), "%s/own/made", folder);
    dwarf_make(&common);
    replace(&common.sections[INFO], common.inlined_name, 1, "h", 1);
    put_text(&common.sections[TEXTS], "x");
    put_text(&common.sections[TEXTS], "/src");
    object = (struct object){.path = object_path,
                             .segment_count = 1,
                             .segments = {{.vaddr = DWARF_CODE, .size = 0x1000}}};
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

static const char *in_call(void)
{
    int descriptors = count_descriptors(), error;
    budget =
        (struct line_budget){.steps = LINES_PROFILE_STEPS, .is_first = true, .room = DWARF_ROOM};
    const char *text = dwarf_found(&object, DWARF_CALL, &budget, &error);
    ck_assert_int_eq(error, 0);
    ck_assert_int_eq(count_descriptors(), descriptors);
    return text;
}

static const struct {
    const char *link, *place, *name;
} places[] = {
    {"%s/abs/c", "abs", "c"},                         /* as it is */
    {"beside", "own", "beside"},                      /* from the folder of the file */
    {"../up/c", "up", "c"},                           /* the same */
    {"/nowhere/at/all", "debug/" ID_FOLDER, ID_FILE}, /* by its build id */
    {"/usr/none/.dwz/x/c", "debug/.dwz/x", "c"},      /* in a folder of debug files */
};

START_TEST(places_of_the_common_file)
{
    char link[512], path[1024];
    enum writing as = (enum writing)(_i % WRITINGS);
    snprintf(link, sizeof(link), places[_i / WRITINGS].link, folder);
    refer_to(link, as);
    struct bytes *identity = identify(as);
    ck_assert_str_eq(in_call(), WITHOUT);
    mkdir_in(places[_i / WRITINGS].place);
    snprintf(path, sizeof(path), "%s/%s/%s", folder, places[_i / WRITINGS].place,
             places[_i / WRITINGS].name);
    dwarf_write_at(&common, path);
    ck_assert_str_eq(in_call(), TRUTH);
    /* Another file of that name. */
    identity->data[identity->size - 1] ^= 1;
    dwarf_write_at(&common, path);
    ck_assert_str_eq(in_call(), WITHOUT);
}
END_TEST

START_TEST(links_that_are_none)
{
    static const size_t sizes[] = {0, 1, 6, 7, 8, 20, 26};
    char path[1024];
    snprintf(path, sizeof(path), "%s/own/common", folder);
    (void)identify(GNU);
    dwarf_write_at(&common, path);
    refer_to("common", GNU);
    ck_assert_str_eq(in_call(), TRUTH);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) { /* its id is cut, or not there */
        made.sections[LINK].size = sizes[i];
        dwarf_write_at(&made, object_path);
        ck_assert_str_eq(in_call(), WITHOUT);
    }
    memset(made.sections[LINK].data, 'x', DWARF_PART_MAX);
    made.sections[LINK].size = DWARF_PART_MAX;
    dwarf_write_at(&made, object_path);
    ck_assert_str_eq(in_call(), WITHOUT);
}
END_TEST

/* Cut anywhere, or any byte of another value. */
static void expect_nothing_of(struct made *file, const char *path)
{
    struct bytes *section = &file->sections[LINK];
    for (size_t at = 0, size = section->size; at < size; at++) {
        section->data[at] ^= 0x81;
        dwarf_write_at(file, path);
        ck_assert_str_eq(in_call(), WITHOUT);
        section->data[at] ^= 0x81;
        section->size = at;
        dwarf_write_at(file, path);
        ck_assert_str_eq(in_call(), WITHOUT);
        section->size = size;
    }
    dwarf_write_at(file, path);
    ck_assert_str_eq(in_call(), TRUTH);
}

START_TEST(supplements_that_are_none)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/own/common", folder);
    (void)identify(DWARF_5);
    dwarf_write_at(&common, path);
    refer_to("common", DWARF_5);
    expect_nothing_of(&made, object_path);
    expect_nothing_of(&common, path);
    /* What more there is, is no id of that size. */
    put(&made.sections[LINK], 0, 1);
    dwarf_write_at(&made, object_path);
    ck_assert_str_eq(in_call(), WITHOUT);
}
END_TEST

/* A common file that refers to a common file: itself. */
START_TEST(a_chain_of_common_files)
{
    refer_to("made", GNU);
    (void)identify(GNU);
    put_bytes(&made.sections[NOTE], common.sections[NOTE].data, common.sections[NOTE].size);
    dwarf_write_at(&made, object_path);
    ck_assert_str_eq(in_call(), WITHOUT);
    char path[1024];
    snprintf(path, sizeof(path), "%s/own/made2", folder);
    dwarf_write_at(&made, path);
    refer_to("made2", GNU);
    ck_assert_str_eq(in_call(), WITHOUT);
    ck_assert_uint_gt(budget.steps, LINES_PROFILE_STEPS / 2);
}
END_TEST

/* Any byte of another value, and any end: what is found is right or not there. */
START_TEST(common_files_that_are_damaged)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/own/common", folder);
    (void)identify(GNU);
    refer_to("common", GNU);
    for (int part = INFO; part <= TEXTS; part++) {
        struct bytes *bytes = &common.sections[part];
        for (size_t at = 0, size = bytes->size; part != NAMES && at < size; at++) {
            uint8_t good = bytes->data[at];
            bytes->data[at] = (uint8_t)(at % 3 == 0 ? 0 : at % 3 == 1 ? 0xff : good ^ 0x81);
            dwarf_write_at(&common, path);
            ck_assert_ptr_nonnull(strstr(in_call(), "a.c:4+0, f "));
            bytes->data[at] = good;
            bytes->size = at;
            dwarf_write_at(&common, path);
            ck_assert_ptr_nonnull(strstr(in_call(), "a.c:4+0, f "));
            bytes->size = size;
        }
    }
    dwarf_write_at(&common, path);
    ck_assert_str_eq(in_call(), TRUTH);
}
END_TEST

/* Units of it are listed, which counts. */
START_TEST(a_common_file_of_many_units)
{
    enum { UNITS = 5000 };
    char path[1024];
    snprintf(path, sizeof(path), "%s/own/common", folder);
    struct bytes *info = &common.sections[INFO];
    info->size = 0;
    for (int i = 0; i < UNITS; i++) {
        put(info, 8, 4);
        put(info, 4, 2);
        put(info, 0, 4);
        put(info, 8, 1);
        put(info, 0, 1);
    }
    (void)identify(GNU);
    dwarf_write_at(&common, path);
    refer_to("common", GNU);
    ck_assert_str_eq(in_call(), "? /src/a.c:4+0, f /src/a.c:12+10");
    ck_assert_uint_lt(budget.steps, LINES_PROFILE_STEPS - UNITS);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dwarf common");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, places_of_the_common_file, 0, (int)ARRAY_SIZE(places) * WRITINGS);
    tcase_add_test(all, supplements_that_are_none);
    tcase_add_test(all, links_that_are_none);
    tcase_add_test(all, a_chain_of_common_files);
    tcase_add_test(all, common_files_that_are_damaged);
    tcase_add_test(all, a_common_file_of_many_units);
    suite_add_tcase(suite, all);
    return suite;
}
