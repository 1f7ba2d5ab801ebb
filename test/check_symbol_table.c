/* The rules for the best name, on small files made for them. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/export/symbols.h"
#include "test/elf_builder.h"
#include "test/temp_folder.h"

enum {
    FUNC = STT_FUNC,
    NONE = STT_NOTYPE,
    LOCAL = STB_LOCAL,
    GLOBAL = STB_GLOBAL,
    WEAK_ONE = STB_WEAK
};

/* The name that a file of these symbols gives to ELF_CODE + `at`; static storage. */
static const char *name_at(const struct elf_symbol *symbols, size_t count, uint64_t at)
{
    static char text[256];
    char path[TEMP_PATH_SIZE];
    close(mkstemp(temp_path(path, "elf")));
    struct elf_parts e = elf_build(symbols, count, SHT_SYMTAB);
    write_file(path, e.data, e.size);
    free(e.data);
    struct object object = elf_built_object(path);
    uint64_t address = ELF_CODE + at;
    struct symbol_name name;
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(&object, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts), 0);
    snprintf(text, sizeof(text), "%.*s", (int)name.length,
             name.length ? (char *)texts.data + name.offset : "");
    buffer_free(&texts);
    unlink(path);
    return text;
}

/* Of two symbols the first wins, in whatever order they stand. */
static const struct {
    struct elf_symbol symbols[2];
    uint64_t at;
} preferred[] = {
    {{{"inner", ELF_CODE + 8, 8, FUNC, LOCAL, 0}, {"outer", ELF_CODE, 64, FUNC, GLOBAL, 0}}, 8},
    {{{"outer", ELF_CODE, 64, FUNC, GLOBAL, 0}, {"inner", ELF_CODE + 8, 8, FUNC, LOCAL, 0}}, 16},
    {{{"typed", ELF_CODE, 8, FUNC, LOCAL, 0}, {"untyped", ELF_CODE, 8, NONE, GLOBAL, 0}}, 1},
    {{{"__exported", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"local", ELF_CODE, 8, FUNC, LOCAL, 0}}, 1},
    {{{"write", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"__write", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"global", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"weak", ELF_CODE, 8, FUNC, WEAK_ONE, 0}}, 1},
    {{{"short", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"longer", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"_ZC1", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"_ZC2", ELF_CODE, 8, FUNC, WEAK_ONE, 0}}, 1},
    {{{"f@@VERS_2", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"ff", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"ifunc", ELF_CODE, 8, STT_GNU_IFUNC, GLOBAL, 0}, {"untyped", ELF_CODE, 8, NONE, GLOBAL, 0}},
     1},
};

START_TEST(the_better_of_two)
{
    const struct elf_symbol *both = preferred[_i].symbols;
    const struct elf_symbol reversed[] = {both[1], both[0]};
    char expected[64];
    strcpy(expected, both[0].name);
    expected[1 + strcspn(expected + 1, "@")] = 0;
    ck_assert_str_eq(name_at(both, 2, preferred[_i].at), expected);
    ck_assert_str_eq(name_at(reversed, 2, preferred[_i].at), expected);
}
END_TEST

/* Symbols that name nothing at ELF_CODE + 8, and ends of those that name something. */
static const struct {
    struct elf_symbol symbol;
    const char *at_7, *at_8, *at_15, *at_16;
} alone[] = {
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "f", "f", ""},
    {{"f", ELF_CODE + 8, 1, FUNC, GLOBAL, 0}, "", "f", "", ""},
    {{"f", ELF_CODE + 8, 0, FUNC, GLOBAL, 0}, "", "f", "f", "f"},
    {{"f", ELF_CODE + 8, 0, NONE, LOCAL, 0}, "", "f", "f", "f"},
    {{"f", ELF_CODE + 8, 0, NONE, LOCAL, ELF_DATA}, "", "", "", ""},
    {{"f", ELF_CODE - 8, 0, FUNC, GLOBAL, 0}, "", "", "", ""}, /* not in its section */
    {{"f", ELF_CODE + 8, 0, STT_OBJECT, GLOBAL, 0}, "", "", "", ""},
    {{".L3", ELF_CODE + 8, 0, NONE, LOCAL, 0}, "", "", "", ""},
    {{"$x", ELF_CODE + 8, 0, NONE, LOCAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, UINT64_MAX, FUNC, GLOBAL, 0}, "", "f", "f", "f"}, /* no wrapping around */
    {{"f", 0, UINT64_MAX, FUNC, GLOBAL, 0}, "f", "f", "f", "f"},
    {{"f", UINT64_MAX, UINT64_MAX, FUNC, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_OBJECT, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_TLS, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_SECTION, LOCAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, ELF_TEXT}, "", "f", "f", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, ELF_DATA}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, 999}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, SHN_ABS}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, SHN_COMMON}, "", "", "", ""},
    {{"", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "", "", ""},
    {{"f@VERSION", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "f", "f", ""},
    {{"@", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "@", "@", ""},
};

START_TEST(one_symbol)
{
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 7), alone[_i].at_7);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 8), alone[_i].at_8);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 15), alone[_i].at_15);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 16), alone[_i].at_16);
}
END_TEST

/* Three around each other and a lesser one that begins with the outer, in all orders in the file;
 * addresses that share a name share its text. */
START_TEST(nested)
{
    static const struct elf_symbol symbols[] = {
        {"middle", ELF_CODE + 10, 80, FUNC, GLOBAL, 0},
        {"outer", ELF_CODE, 100, FUNC, GLOBAL, 0},
        {"inner", ELF_CODE + 20, 10, FUNC, GLOBAL, 0},
        {"a", ELF_CODE, 95, FUNC, LOCAL, 0},
    };
    int first = _i % 4, second = _i / 4 % 4, third = _i / 16;
    if (first == second || second == third || first == third)
        return;
    const struct elf_symbol ordered[] = {symbols[first], symbols[second], symbols[third],
                                         symbols[6 - first - second - third]};
    char path[TEMP_PATH_SIZE];
    close(mkstemp(temp_path(path, "elf")));
    struct elf_parts e = elf_build(ordered, 4, SHT_DYNSYM);
    write_file(path, e.data, e.size);
    free(e.data);
    struct object object = elf_built_object(path);
    uint64_t addresses[101];
    struct symbol_name names[101];
    for (size_t i = 0; i < 101; i++)
        addresses[i] = ELF_CODE + i;
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, 101, names, &texts), 0);
    ck_assert_uint_eq(texts.size, sizeof("outer") + sizeof("middle") + sizeof("inner"));
    for (size_t i = 0; i < 100; i++)
        ck_assert_str_eq((char *)texts.data + names[i].offset, i >= 20 && i < 30   ? "inner"
                                                               : i >= 10 && i < 90 ? "middle"
                                                                                   : "outer");
    ck_assert_uint_eq(names[100].length, 0);
    buffer_free(&texts);
    ck_assert_int_eq(symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, 0, names, &texts), 0);
    unlink(path);
}
END_TEST

/* Without a size: up to whatever starts or ends next. */
START_TEST(symbols_without_a_size)
{
    static const struct elf_symbol symbols[] = {
        {"sized", ELF_CODE + 16, 16, FUNC, GLOBAL, 0},
        {"bare", ELF_CODE + 4, 0, NONE, LOCAL, 0},
        {"label", ELF_CODE + 20, 0, NONE, GLOBAL, 0}, /* inside of sized */
        {"behind", ELF_CODE + 40, 0, FUNC, GLOBAL, 0},
        {"last", ELF_CODE + 48, 0, FUNC, LOCAL, 0},
        {"other_last", ELF_CODE + 48, 0, FUNC, GLOBAL, 0}, /* the better name */
        {"both", ELF_CODE + 64, 4, FUNC, LOCAL, 0},
        {"at_both", ELF_CODE + 64, 0, FUNC, GLOBAL, 0}, /* the other knows where it ends */
        {".L1", ELF_CODE + 50, 0, NONE, LOCAL, 0},
        {"$d", ELF_CODE + 6, 0, NONE, LOCAL, 0},
    };
    static const struct {
        uint64_t at;
        const char *name;
    } truth[] = {
        {0, ""},        {3, ""},        {4, "bare"},        {6, "bare"},        {15, "bare"},
        {16, "sized"},  {20, "sized"},  {31, "sized"},      {32, ""},           {39, ""},
        {40, "behind"}, {47, "behind"}, {48, "other_last"}, {63, "other_last"}, {64, "both"},
        {67, "both"},   {68, ""},       {1000, ""},
    };
    struct elf_symbol turned[ARRAY_SIZE(symbols)];
    for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
        turned[(i * 7 + (size_t)_i) % ARRAY_SIZE(symbols)] = symbols[i];
    for (size_t i = 0; i < ARRAY_SIZE(truth); i++)
        ck_assert_str_eq(name_at(turned, ARRAY_SIZE(symbols), truth[i].at), truth[i].name);
    /* All at once, so that what lies between addresses counts, too. */
    char path[TEMP_PATH_SIZE];
    close(mkstemp(temp_path(path, "elf")));
    struct elf_parts e = elf_build(turned, ARRAY_SIZE(symbols), SHT_SYMTAB);
    write_file(path, e.data, e.size);
    free(e.data);
    struct object object = elf_built_object(path);
    uint64_t addresses[ARRAY_SIZE(truth)];
    struct symbol_name names[ARRAY_SIZE(truth)];
    for (size_t i = 0; i < ARRAY_SIZE(truth); i++)
        addresses[i] = ELF_CODE + truth[i].at;
    struct buffer texts = {0};
    ck_assert_int_eq(
        symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, ARRAY_SIZE(truth), names, &texts), 0);
    for (size_t i = 0; i < ARRAY_SIZE(truth); i++)
        ck_assert_str_eq(names[i].length ? (char *)texts.data + names[i].offset : "",
                         truth[i].name);
    buffer_free(&texts);
    unlink(path);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("symbol_table");
    TCase *rules = tcase_create("rules");
    tcase_add_loop_test(rules, the_better_of_two, 0, ARRAY_SIZE(preferred));
    tcase_add_loop_test(rules, one_symbol, 0, ARRAY_SIZE(alone));
    tcase_add_loop_test(rules, nested, 0, 64);
    tcase_add_loop_test(rules, symbols_without_a_size, 0, 10);
    suite_add_tcase(suite, rules);
    return suite;
}
