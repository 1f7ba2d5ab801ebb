/* Files and lines within the budget of a profile: what one profile does not reach, later ones do,
 * and what they say meanwhile. The addresses are of this program, which has debugging information.
 */
#include "test/check.h"

#include <link.h>
#include <string.h>

#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/export/debug_file.h"
#include "agent/export/demangle.h"
#include "agent/export/line_cache.h"
#include "agent/export/location_parts.h"
#include "agent/export/name_cache.h"
#include "agent/export/perf_map.h"
#include "agent/export/pprof_fields.h"

/* Each of a unit of its own. */
static const struct {
    const void *code;
    const char *file;
} met[] = {
    {(const void *)locations_name, "/agent/export/location_names.c"},
    {(const void *)lines_find, "/agent/export/lines.c"},
    {(const void *)buffer_append, "/agent/base/buffer.c"},
    {(const void *)debug_file_open, "/agent/export/debug_file.c"},
    {(const void *)demangle_start, "/agent/export/demangle.c"},
    {(const void *)perf_map_find, "/agent/export/perf_map.c"},
};
enum { MET = sizeof(met) / sizeof(met[0]) };

static void setup(void)
{
    options.debug_path = "/nowhere";
    options.symbol_limit = 16 << 20;
    options.name_limit = 100;
    options.symbols = SYMBOLS_LINES;
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
}

static void teardown(void)
{
    location_lines_steps = LINES_PROFILE_STEPS;
    name_cache_clear();
    line_cache_clear();
    modules_forget();
}

/* Whether one of the strings ends so. */
static bool has_text(const struct string_table *strings, const char *end)
{
    const uint8_t *at = strings->encoded.data;
    return memmem(at, strings->encoded.size, end, strlen(end)) != NULL;
}

/* Names all in a profile of its own; how many have lines, each that of its own file. */
static size_t name_all_by(bool reads_lines, bool *is_whole)
{
    struct location_table table;
    struct string_table strings;
    string_table_begin(&strings, PROFILE_STRING_TABLE);
    ck_assert_int_eq(locations_begin(&table), 0);
    uint32_t numbers[MET];
    for (size_t i = 0; i < MET; i++) {
        numbers[i] = location_of(&table, modules_list->generation, (uintptr_t)met[i].code + 1);
        ck_assert_uint_ne(numbers[i], 0);
    }
    ck_assert_int_eq(locations_name(&table, &strings, reads_lines), 0);
    size_t found = 0;
    for (size_t i = 0; i < MET; i++) {
        uint32_t count;
        const struct location_line *line = location_lines(&table, numbers[i], &count);
        ck_assert_uint_ge(count, 1);
        ck_assert_uint_ne(line[count - 1].function, 0); /* its name is there at once */
        ck_assert_int_eq(line[count - 1].line != 0, has_text(&strings, met[i].file));
        found += line[count - 1].line != 0;
    }
    const struct place *place = place_at(&table, location_at(&table, numbers[0] - 1)->place);
    *is_whole = place->has_lines && !place->is_put_off;
    string_table_free(&strings);
    locations_free(&table);
    return found;
}

static size_t name_all(bool *is_whole)
{
    return name_all_by(true, is_whole);
}

START_TEST(all_at_once)
{
    bool is_whole;
    ck_assert_uint_eq(name_all(&is_whole), MET);
    ck_assert(is_whole);
    ck_assert_uint_eq(stats_get(STAT_LINES_PUT_OFF), 0);
}
END_TEST

START_TEST(what_was_not_reached_is_found_later)
{
    bool is_whole;
    uint64_t put_off = stats_get(STAT_LINES_PUT_OFF);
    location_lines_steps = 1; /* one unit is read, whatever it takes */
    for (size_t profile = 1; profile <= MET; profile++) {
        ck_assert_uint_eq(name_all(&is_whole), profile);
        ck_assert_int_eq(is_whole, profile == MET);
        put_off += MET - profile;
        ck_assert_uint_eq(stats_get(STAT_LINES_PUT_OFF), put_off);
    }
    ck_assert_uint_eq(name_all(&is_whole), MET); /* kept */
}
END_TEST

/* Profiles that read none, in between: they have what is known, and put nothing off. */
START_TEST(some_profiles_read_none)
{
    bool is_whole;
    location_lines_steps = 1;
    uint64_t put_off = 0;
    for (size_t profile = 1; profile <= MET; profile++) {
        ck_assert_uint_eq(name_all_by(false, &is_whole), profile - 1);
        ck_assert(!is_whole);
        ck_assert_uint_eq(stats_get(STAT_LINES_PUT_OFF), put_off);
        ck_assert_uint_eq(name_all(&is_whole), profile);
        put_off += MET - profile;
    }
    ck_assert_uint_eq(name_all_by(false, &is_whole), MET);
    ck_assert(is_whole);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("location lines");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, all_at_once);
    tcase_add_test(all, what_was_not_reached_is_found_later);
    tcase_add_test(all, some_profiles_read_none);
    suite_add_tcase(suite, all);
    return suite;
}
