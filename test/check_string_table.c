/* The two tables under the pprof encoder: pairs of numbers, and texts; also texts whose hashes are
 * equal. */
#include "test/check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/pair_map.h"
#include "agent/base/rng.h"
#include "agent/export/string_table.h"
#include "test/map_faults.h"

enum { FIELD = 6 };

START_TEST(pairs)
{
    enum { PAIRS = 20000 };
    struct pair_map map = {.used = 0};
    ck_assert_uint_eq(pair_map_get(&map, 0, 0), 0);
    for (int round = 0; round < 2; round++) {
        struct rng rng = {.state = 3};
        for (uint32_t i = 1; i <= PAIRS; i++) {
            /* dense in one, sparse in the other, turned round, and 0 */
            uint64_t first = i % 2 ? i : rng_next(&rng), second = i % 2 ? rng_next(&rng) : i;
            if (i == PAIRS)
                first = second = 0;
            if (round == 0) {
                ck_assert_uint_eq(pair_map_get(&map, first, second), 0);
                ck_assert_int_eq(pair_map_add(&map, first, second, i), 0);
            }
            ck_assert_uint_eq(pair_map_get(&map, first, second), i);
            if (first != second)
                ck_assert_uint_eq(pair_map_get(&map, second, first), 0);
            ck_assert_uint_eq(pair_map_get(&map, first, second + (1ull << 40)), 0);
            ck_assert_uint_eq(pair_map_get(&map, first + (1ull << 40), second), 0);
        }
    }
    pair_map_free(&map);
    ck_assert_ptr_null(map.slots);
    pair_map_free(&map);
}
END_TEST

/* The text that stands as number `wanted` in the encoded table; its length in *length. */
static const char *encoded_text(const struct string_table *table, uint32_t wanted, size_t *length)
{
    const uint8_t *at = table->encoded.data, *end = at + table->encoded.size;
    for (uint32_t number = 0; at < end; number++) {
        ck_assert_uint_eq(*at++, FIELD << 3 | 2);
        *length = 0;
        for (unsigned shift = 0, more = 1; more; shift += 7) {
            *length |= (size_t)(*at & 0x7f) << shift;
            more = *at++ & 0x80;
        }
        if (number == wanted)
            return (const char *)at;
        at += *length;
    }
    ck_abort_msg("no text %u", wanted);
}

static void check_text(const struct string_table *table, uint32_t number, const char *expected)
{
    size_t length;
    const char *text = encoded_text(table, number, &length);
    ck_assert_uint_eq(length, strlen(expected));
    ck_assert_mem_eq(text, expected, length);
}

START_TEST(texts)
{
    struct string_table table;
    string_table_begin(&table, FIELD);
    check_text(&table, 0, "");
    ck_assert_uint_eq(string_table_add(&table, "", 0), 0);
    ck_assert_uint_eq(string_table_add(&table, "a", 1), 1);
    ck_assert_uint_eq(string_table_add(&table, "ab", 2), 2);
    ck_assert_uint_eq(string_table_add(&table, "ab", 1), 1);
    ck_assert_uint_eq(string_table_add(&table, "a\0", 2), 3);
    /* Made valid before it is looked for */
    ck_assert_uint_eq(string_table_add(&table, "\xff", 1), 4);
    ck_assert_uint_eq(string_table_add(&table, "\xfe", 1), 4);
    ck_assert_uint_eq(string_table_add(&table, "\xef\xbf\xbd", 3), 4);
    check_text(&table, 4, "\xef\xbf\xbd");
    for (uint32_t i = 0; i < 10000; i++) {
        char text[64];
        int length = snprintf(text, sizeof(text), "%*u", (int)(i % 40), i);
        ck_assert_uint_eq(string_table_add(&table, text, (size_t)length), 5 + i);
        ck_assert_uint_eq(string_table_add(&table, text, (size_t)length), 5 + i);
    }
    check_text(&table, 5 + 9999, "                                   9999");
    string_table_free(&table);
    ck_assert_ptr_null(table.encoded.data);
}
END_TEST

START_TEST(long_texts_are_cut)
{
    struct string_table table;
    string_table_begin(&table, FIELD);
    char text[STRING_MAX + 2];
    memset(text, 'x', sizeof(text));
    uint32_t whole = string_table_add(&table, text, STRING_MAX);
    ck_assert_uint_eq(string_table_add(&table, text, STRING_MAX + 1), whole);
    ck_assert_uint_ne(string_table_add(&table, text, STRING_MAX - 1), whole);
    memset(text, 0xff, sizeof(text)); /* grows threefold */
    size_t length;
    encoded_text(&table, string_table_add(&table, text, sizeof(text)), &length);
    ck_assert_uint_eq(length, STRING_MAX / 3 * 3);
    ck_assert_int_eq(table.error, 0);
    string_table_free(&table);
}
END_TEST

static uint64_t turned(uint64_t hash)
{
    return hash << 5 | hash >> 59;
}

static bool is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

/* Two texts of 16 letters with one hash (its steps can be turned back), and a third with the next
 * one in line. */
START_TEST(equal_hashes)
{
    enum { LENGTH = 16 };
    char a[LENGTH + 1] = "the first word: ", b[LENGTH + 1] = "";
    uint64_t word_a[2], word_b[2];
    memcpy(word_a, a, LENGTH);
    struct rng rng = {.state = 11};
    do {
        for (size_t i = 0; i < 8; i++)
            b[i] = (char)('a' + rng_next(&rng) % 26);
        memcpy(word_b, b, LENGTH);
        word_b[1] =
            word_a[1] ^ turned(hash_mix(LENGTH, word_a[0])) ^ turned(hash_mix(LENGTH, word_b[0]));
        memcpy(b, word_b, LENGTH);
    } while (!is_plain(b, LENGTH));
    ck_assert_uint_eq(hash_mix(hash_mix(LENGTH, word_a[0]), word_a[1]),
                      hash_mix(hash_mix(LENGTH, word_b[0]), word_b[1]));
    struct string_table table;
    string_table_begin(&table, FIELD);
    for (int round = 0; round < 2; round++) {
        ck_assert_uint_eq(string_table_add(&table, a, LENGTH), 1);
        ck_assert_uint_eq(string_table_add(&table, b, LENGTH), 2);
    }
    check_text(&table, 1, a);
    check_text(&table, 2, b);
    string_table_free(&table);
}
END_TEST

START_TEST(no_memory)
{
    bool failed = true;
    for (int i = 0; failed; i++) {
        map_faults_begin(i);
        struct string_table table;
        string_table_begin(&table, FIELD);
        for (uint32_t n = 0; n < 20000; n++) {
            char text[16];
            int length = snprintf(text, sizeof(text), "text %u", n);
            uint32_t number = string_table_add(&table, text, (size_t)length);
            ck_assert_uint_eq(number, table.error ? 0 : n + 1);
        }
        int error = table.error;
        string_table_free(&table);
        ck_assert_int_eq(map_faults_end(&failed), 0);
        ck_assert_int_eq(error, failed ? -ENOMEM : 0);
        ck_assert_int_lt(i, 100);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("string_table");
    TCase *tables = tcase_create("tables");
    tcase_add_test(tables, pairs);
    tcase_add_test(tables, texts);
    tcase_add_test(tables, long_texts_are_cut);
    tcase_add_test(tables, equal_hashes);
    tcase_add_test(tables, no_memory);
    tcase_set_timeout(tables, 30);
    suite_add_tcase(suite, tables);
    return suite;
}
