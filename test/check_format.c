/* The formatter against snprintf, globs, UTF-8 against an encoder of the test's own. */
#include "test/check.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"
#include "agent/base/rng.h"

/* Both formatters, at each size of the output from 0 to one more than is needed. */
#define CHECK_SAME(...)                                                                            \
    do {                                                                                           \
        char want_[512];                                                                           \
        int whole_ = snprintf(want_, sizeof(want_), __VA_ARGS__);                                  \
        for (int size_ = 0; size_ <= whole_ + 2; size_++) {                                        \
            char got_[512];                                                                        \
            memset(got_, '#', sizeof(got_));                                                       \
            size_t length_ = format(got_, (size_t)size_, __VA_ARGS__);                             \
            if (size_ == 0) {                                                                      \
                ck_assert_uint_eq(length_, 0);                                                     \
            } else {                                                                               \
                char cut_[512];                                                                    \
                snprintf(cut_, (size_t)size_, __VA_ARGS__);                                        \
                ck_assert_str_eq(got_, cut_);                                                      \
                ck_assert_uint_eq(length_, strlen(cut_));                                          \
            }                                                                                      \
            ck_assert_int_eq(got_[size_], '#');                                                    \
        }                                                                                          \
    } while (0)

START_TEST(plain_text_and_strings)
{
    CHECK_SAME("nothing to do");
    CHECK_SAME("%s", "");
    CHECK_SAME("a%sb%sc", "one", "two");
    CHECK_SAME("%.*s|%.*s|%.*s", 0, "none", 2, "two", 100, "all");
    CHECK_SAME("%.*s", INT_MIN, "the least one too");
    CHECK_SAME("%.*s", -1, "a negative precision is none");
    CHECK_SAME("%c%c%%%c", 'a', 'b', 'c');
    const char unended[3] = {'a', 'b', 'c'};
    char out[8];
    ck_assert_uint_eq(format(out, sizeof(out), "%.*s", 3, unended), 3);
    ck_assert_str_eq(out, "abc");
}
END_TEST

START_TEST(a_null_string_does_not_crash)
{
    const char *volatile null = NULL; /* the compiler knows what printf does with one */
    char out[16];
    format(out, sizeof(out), "<%s>", null);
    ck_assert_str_eq(out, "<(null)>");
}
END_TEST

START_TEST(numbers_at_their_limits)
{
    static const long long values[] = {0,         1,         -1,           9,         10,
                                       -10,       99,        INT32_MAX,    INT32_MIN, UINT32_MAX,
                                       INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        long long v = values[i];
        CHECK_SAME("%d %u %x", (int)v, (unsigned)v, (unsigned)v);
        CHECK_SAME("%ld %lu %lx", (long)v, (unsigned long)v, (unsigned long)v);
        CHECK_SAME("%lld %llu %llx", v, (unsigned long long)v, (unsigned long long)v);
        CHECK_SAME("%zu", (size_t)v);
        CHECK_SAME("%04u|%08x|%016lx|%2u|%12d", (unsigned)v, (unsigned)v, (unsigned long)v,
                   (unsigned)v, (int)v);
        CHECK_SAME("%05d|%025lld|%25lld", (int)v, v, v);
    }
    CHECK_SAME("%p %p", (void *)0x1234abcd, (void *)UINTPTR_MAX);
}
END_TEST

START_TEST(random_numbers)
{
    struct rng rng = {.state = 1};
    for (int i = 0; i < 2000; i++) {
        uint64_t v = rng_next(&rng) >> (rng_next(&rng) % 64);
        CHECK_SAME("%lu %ld %lx %u", (unsigned long)v, (long)v, (unsigned long)v, (unsigned)v);
    }
}
END_TEST

START_TEST(an_unknown_directive_ends_the_formatting)
{
    const char *volatile pattern = "%u %q %s"; /* not for the compiler to judge */
    char out[32];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    format(out, sizeof(out), pattern, 1u, (const char *)1);
    ck_assert_str_eq(out, "1 %q %s");
    pattern = "half a directive %0";
    format(out, sizeof(out), pattern);
    ck_assert_str_eq(out, "half a directive %0");
#pragma GCC diagnostic pop
}
END_TEST

START_TEST(globs)
{
    static const struct {
        const char *glob, *text;
        bool match;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "anything", true},
        {"**", "", true},
        {"?", "", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"redis*", "redis-server", true},
        {"redis*", "redis", true},
        {"redis*", "xredis", false},
        {"*server", "redis-server", true},
        {"*server", "servers", false},
        {"a*b*c", "abc", true},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "acb", false},
        {"*a*a*b", "aaaaaaab", true},
        {"*a*a*b", "aaaaaaaa", false},
        {"a?c*", "abc", true},
        {"a?c*", "ac", false},
        {"python3.?", "python3.9", true},
        {"[a]", "a", false},
        {"A", "a", false},
        {"*?", "", false},
        {"*?", "a", true},
        {"a", "", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_msg(glob_match(cases[i].glob, cases[i].text) == cases[i].match, "%s %s",
                      cases[i].glob, cases[i].text);
}
END_TEST

START_TEST(a_glob_of_many_stars_takes_no_exponential_time)
{
    char text[2001], glob[401];
    memset(text, 'a', 2000);
    text[2000] = 0;
    for (int i = 0; i < 400; i += 2)
        memcpy(glob + i, "a*", 2);
    memcpy(glob + 398, "b", 2);
    ck_assert(!glob_match(glob, text));
}
END_TEST

static size_t encode(uint32_t c, char out[5])
{
    size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(leads[size] | c);
    out[size] = 0;
    return size;
}

START_TEST(every_character_is_kept_and_every_surrogate_replaced)
{
    for (uint32_t c = 1; c < 0x120000; c++) {
        char in[5], out[16];
        size_t size = encode(c, in);
        size_t length = utf8_copy(out, sizeof(out), in, size);
        bool good = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
        if (length != (good ? size : 3 * size) ||
            (good ? strcmp(out, in) : strncmp(out, "\xef\xbf\xbd\xef\xbf\xbd", 6)) != 0)
            ck_abort_msg("U+%x", c);
    }
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_replaced_one_by_one)
{
#define R "\xef\xbf\xbd"
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"caf\xe9", "caf" R}, /* Latin-1 */
        {"\x80", R},          /* continuation alone */
        {"\xc0\xaf", R R},    /* overlong / */
        {"\xc1\xbf", R R},
        {"\xe0\x80\xaf", R R R},
        {"\xe0\x9f\xbf", R R R},
        {"\xf0\x80\x80\xaf", R R R R},
        {"\xf0\x8f\xbf\xbf", R R R R},
        {"\xf5\x80\x80\x80", R R R R},
        {"\xfe\xff", R R},
        {"\xe2\x82", R R}, /* cut euro sign */
        {"\xe2\x82z", R R "z"},
        {"\xf0\x9f\x98", R R R},
        {"a\xff"
         "b",
         "a" R "b"},
        {"\xe2\x82\xac\x80", "\xe2\x82\xac" R},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[64];
        size_t length = utf8_copy(out, sizeof(out), cases[i].in, strlen(cases[i].in));
        ck_assert_str_eq(out, cases[i].out);
        ck_assert_uint_eq(length, strlen(cases[i].out));
    }
}
END_TEST

START_TEST(utf8_is_cut_at_a_characters_border)
{
    static const char in[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4, 1 bytes */
    static const size_t want[] = {0, 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t size = 0; size < ARRAY_SIZE(want); size++) {
        char out[16];
        memset(out, '#', sizeof(out));
        ck_assert_uint_eq(utf8_copy(out, size, in, sizeof(in) - 1), want[size]);
        ck_assert_int_eq(out[size], '#');
        if (size) {
            ck_assert_int_eq(out[want[size]], 0);
            ck_assert_mem_eq(out, in, want[size]);
        }
    }
    /* The input's length counts, not what follows it in memory. */
    char whole[16];
    utf8_copy(whole, sizeof(whole), "\xe2\x82\xac", 2);
    ck_assert_str_eq(whole, "\xef\xbf\xbd\xef\xbf\xbd");
    /* A replacement that does not fit is not begun. */
    char out[4];
    ck_assert_uint_eq(utf8_copy(out, 4, "ab\xff", 3), 2);
    ck_assert_str_eq(out, "ab");
}
END_TEST

START_TEST(base_names)
{
    ck_assert_str_eq(base_name("/usr/bin/redis"), "redis");
    ck_assert_str_eq(base_name("redis"), "redis");
    ck_assert_str_eq(base_name("/"), "");
    ck_assert_str_eq(base_name(""), "");
    ck_assert_str_eq(base_name("a//b"), "b");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("format");
    TCase *formatter = tcase_create("formatter");
    tcase_add_test(formatter, plain_text_and_strings);
    tcase_add_test(formatter, a_null_string_does_not_crash);
    tcase_add_test(formatter, numbers_at_their_limits);
    tcase_add_test(formatter, random_numbers);
    tcase_add_test(formatter, an_unknown_directive_ends_the_formatting);
    suite_add_tcase(suite, formatter);
    TCase *strings = tcase_create("strings");
    tcase_add_test(strings, globs);
    tcase_add_test(strings, a_glob_of_many_stars_takes_no_exponential_time);
    tcase_add_test(strings, every_character_is_kept_and_every_surrogate_replaced);
    tcase_add_test(strings, bytes_that_are_no_utf8_are_replaced_one_by_one);
    tcase_add_test(strings, utf8_is_cut_at_a_characters_border);
    tcase_add_test(strings, base_names);
    suite_add_tcase(suite, strings);
    return suite;
}
