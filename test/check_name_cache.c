/* Names that are kept for later windows: against a plain list, and by what is read of files. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/export/locations.h"
#include "agent/export/name_cache.h"
#include "agent/export/pprof_fields.h"
#include "test/map_faults.h"

enum { OBJECTS = 3, SPACE = 20000 };

static const struct object objects[OBJECTS];
static struct demangler demangler;
static struct buffer texts;

static void setup(void)
{
    demangle_start(&demangler, DEMANGLE_TEXT_MAX);
}

static void teardown(void)
{
    sys_override = NULL;
    buffer_free(&texts);
    name_cache_clear();
    ck_assert_uint_eq(name_cache_size(), 0);
    demangle_stop(&demangler);
}

/* What `answer` is called: every fifth has no name, every third is mangled. */
static struct symbol_name make_name(uint32_t answer, uint64_t low, uint64_t high)
{
    struct symbol_name name = {.low = low, .high = high, .offset = (uint32_t)texts.size};
    char text[32];
    if (answer % 5 == 0)
        return name;
    name.length = (uint32_t)snprintf(text, sizeof(text), answer % 3 ? "f%u" : "_Z6f%05uv", answer);
    buffer_append(&texts, text, name.length + 1);
    return name;
}

static void check_name(const struct known_name *name, uint32_t answer)
{
    char expected[32];
    if (answer % 5 == 0) {
        ck_assert_ptr_null(name->system);
        return;
    }
    snprintf(expected, sizeof(expected), answer % 3 ? "f%u" : "_Z6f%05uv", answer);
    ck_assert_str_eq(name->system, expected);
    ck_assert_uint_eq(name->system_length, strlen(expected));
    if (answer % 3) {
        ck_assert_ptr_null(name->readable);
        return;
    }
    snprintf(expected, sizeof(expected), "f%05u()", answer);
    ck_assert_str_eq(name->readable, expected);
    ck_assert_uint_eq(name->readable_length, strlen(expected));
}

/* Functions of 1 to 40 bytes cover each object; a window asks for some addresses, and what is not
 * known is added. */
START_TEST(as_a_plain_list_says)
{
    static uint32_t answer[OBJECTS][SPACE];
    static uint64_t start[OBJECTS][SPACE], end[OBJECTS][SPACE];
    static int asked[OBJECTS][SPACE]; /* in which window, counted from 1 */
    struct rng rng = {.state = 7};
    uint32_t next = 1;
    for (size_t object = 0; object < OBJECTS; object++)
        for (uint64_t at = 0, size; at < SPACE; at += size, next++) {
            size = 1 + rng_next(&rng) % 40;
            for (uint64_t i = at; i < at + size && i < SPACE; i++) {
                answer[object][i] = next;
                start[object][i] = at;
                end[object][i] = at + size;
            }
        }
    size_t hits = 0;
    for (int window = 0; window < 200; window++) {
        size_t object = rng_next(&rng) % OBJECTS, count = 0;
        struct symbol_name names[64];
        texts.size = 0;
        name_cache_begin(NAME_CACHE_MAX);
        for (uint64_t at = rng_next(&rng) % 2000; at < SPACE && count < 64;
             at += 1 + rng_next(&rng) % 500) {
            struct known_name name;
            bool is_known = name_cache_get(&objects[object], at, &name);
            if (is_known) {
                check_name(&name, answer[object][at]);
                hits++;
                continue;
            }
            int *last = &asked[object][start[object][at]];
            if (window < NAME_CACHE_RETRY)
                ck_assert(!*last || *last == window + 1);
            *last = window + 1;
            names[count++] = make_name(answer[object][at], start[object][at], end[object][at]);
        }
        ck_assert_int_eq(name_cache_add(&objects[object], names, count, &texts, &demangler), 0);
    }
    ck_assert_uint_gt(hits, 1000);
    for (size_t object = 0; object < OBJECTS; object++)
        for (uint64_t at = 0; at < SPACE; at++) {
            struct known_name name;
            bool is_known = name_cache_get(&objects[object], at, &name);
            ck_assert(!is_known || asked[object][start[object][at]]);
            if (is_known)
                check_name(&name, answer[object][at]);
            else if (asked[object][start[object][at]])
                ck_assert_uint_eq(answer[object][at] % 5, 0); /* forgotten since */
        }
}
END_TEST

START_TEST(that_there_is_no_name_is_forgotten)
{
    struct symbol_name names[] = {make_name(5, 10, 11), make_name(6, 20, 30)};
    struct known_name name;
    name_cache_begin(NAME_CACHE_MAX);
    ck_assert_int_eq(name_cache_add(objects, names, 2, &texts, &demangler), 0);
    size_t before = name_cache_size();
    int profiles = 0;
    for (; name_cache_get(objects, 10, &name); profiles++) {
        check_name(&name, 5);
        ck_assert_int_le(profiles, NAME_CACHE_RETRY);
        name_cache_begin(NAME_CACHE_MAX);
    }
    ck_assert_int_ge(profiles, NAME_CACHE_RETRY / 2);
    ck_assert(name_cache_get(objects, 29, &name));
    check_name(&name, 6);
    ck_assert_uint_lt(name_cache_size(), before);
    /* It has one by now. */
    names[0] = make_name(7, 10, 15);
    ck_assert_int_eq(name_cache_add(objects, names, 1, &texts, &demangler), 0);
    ck_assert(name_cache_get(objects, 14, &name));
    check_name(&name, 7);
}
END_TEST

START_TEST(it_has_bounds)
{
    enum { A_PROFILE = 64 };
    size_t most = 0;
    bool shrank = false;
    for (uint32_t i = 1; i < 500000 && !shrank; i++) {
        static const struct object many[64];
        size_t before = name_cache_size();
        texts.size = 0;
        struct symbol_name name = make_name(i * 15 + 1, i * 10, i * 10 + 5);
        if (i % A_PROFILE == 0)
            name_cache_begin(NAME_CACHE_MAX);
        shrank = name_cache_size() < before / 2;
        ck_assert_int_eq(name_cache_add(&many[i % 64], &name, 1, &texts, &demangler), 0);
        most = MAX_OF(most, name_cache_size());
    }
    ck_assert(shrank);
    ck_assert_uint_le(most, NAME_CACHE_MAX + (128 << 10));
}
END_TEST

static size_t opened;

static bool count_opens(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    opened += number == SYS_openat;
    return false;
}

/* Names the functions at these addresses; the string table in static storage. */
static size_t name_all(const uintptr_t *pcs, size_t count, char *all, size_t size)
{
    struct location_table table;
    struct string_table strings;
    string_table_begin(&strings, PROFILE_STRING_TABLE);
    ck_assert_int_eq(locations_begin(&table), 0);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_ne(location_of(&table, modules_list->generation, pcs[i]), 0);
    opened = 0;
    sys_override = count_opens;
    ck_assert_int_eq(locations_name(&table, &strings, true), 0);
    sys_override = NULL;
    size_t length = MIN_OF(strings.encoded.size, size);
    memcpy(all, strings.encoded.data, length);
    string_table_free(&strings);
    locations_free(&table);
    return length;
}

/* With names alone, and with lines, which are kept by address. */
START_TEST(a_later_window_opens_no_file)
{
    options.debug_path = "/nowhere";
    options.symbol_limit = 16 << 20;
    options.symbols = _i ? SYMBOLS_LINES : SYMBOLS_NAMES;
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    /* Named, and code of glibc's that has no name in a stripped one. */
    const uintptr_t pcs[] = {(uintptr_t)name_all + 1, (uintptr_t)suite + 1, (uintptr_t)fopen + 1,
                             (uintptr_t)fopen - 1, (uintptr_t)strlen + 1};
    static char first[4096], later[4096];
    size_t length = name_all(pcs, ARRAY_SIZE(pcs), first, sizeof(first));
    ck_assert_uint_gt(opened, 0);
    for (int i = 0; i < NAME_CACHE_RETRY / 2; i++) {
        ck_assert_uint_eq(name_all(pcs, ARRAY_SIZE(pcs), later, sizeof(later)), length);
        ck_assert_int_eq(memcmp(first, later, length), 0);
        ck_assert_uint_eq(opened, 0);
    }
    /* Another place in a function that was met. */
    const uintptr_t beside[] = {(uintptr_t)name_all + 9, (uintptr_t)fopen + 5};
    name_all(beside, ARRAY_SIZE(beside), later, sizeof(later));
    ck_assert_int_eq(opened > 0, options.symbols == SYMBOLS_LINES);
    modules_forget();
}
END_TEST

START_TEST(no_memory)
{
    bool failed = true;
    for (int i = 0; failed; i++) {
        texts.size = 0;
        struct symbol_name names[] = {make_name(1, 10, 20), make_name(3, 20, 30)};
        struct known_name name;
        name_cache_clear();
        map_faults_begin(i);
        int result = name_cache_add(objects, names, 2, &texts, &demangler);
        (void)map_faults_end(&failed);
        ck_assert_int_eq(result, failed ? -ENOMEM : 0);
        ck_assert_int_eq(name_cache_get(objects, 25, &name), !failed);
        ck_assert_int_le(i, 20);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("name_cache");
    TCase *cache = tcase_create("cache");
    tcase_add_checked_fixture(cache, setup, teardown);
    tcase_add_test(cache, as_a_plain_list_says);
    tcase_add_test(cache, that_there_is_no_name_is_forgotten);
    tcase_add_test(cache, it_has_bounds);
    tcase_add_loop_test(cache, a_later_window_opens_no_file, 0, 2);
    tcase_add_test(cache, no_memory);
    tcase_set_timeout(cache, 60);
    suite_add_tcase(suite, cache);
    return suite;
}
