/* Names of C++ and Rust, made shorter from the inside out. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/rng.h"
#include "agent/export/name_limit.h"

static const struct {
    const char *text;
    size_t limit;
    const char *expected;
} known[] = {
    {"foo(int)", 8, "foo(int)"},
    {"foo(int)", 100, "foo(int)"},
    {"a::f<b<c<d> > >(e<f>)", 20, "a::f<...>(...)"}, /* "<...>" is longer than "<f>" */
    {"a::f<b<c<d, e> > >(e<fffff>)", 22, "a::f<b<...> >(e<...>)"},
    {"a::f<b<c<d, e> > >(e<fffff>)", 21, "a::f<b<...> >(e<...>)"},
    {"a::f<b<c<d, e> > >(e<fffff>)", 20, "a::f<...>(...)"},
    {"a::f<b<c<d, e> > >(e<fffff>)", 14, "a::f<...>(...)"},
    {"a::f<b<c<d, e> > >(e<fffff>)", 13, "a::f<b<c<d..."},
    {"a::f<b<c> >() const", 18, "a::f<...>() const"},
    {"(anonymous namespace)::f<int, long>(char*)", 35, "(anonymous namespace)::f<...>(...)"},
    {"bool operator< <int, long>(A const&, B const&)", 30, "bool operator< <...>(...)"},
    {"A::operator()(int, long, char, short)", 24, "A::operator()(...)"},
    {"A::operator->() const::{lambda(int)#1}", 34, "A::operator->() const::{...}"},
    {"A::operator<<(std::ostream&, int)", 20, "A::operator<<(...)"},
    {"my_operator<int, long, unsigned>()", 22, "my_operator<...>()"},
    {"f(decltype (a->b) const&, long)", 16, "f(...)"},
    {"<alloc::vec::Vec<T> as core::clone::Clone>::clone", 30, "<...>::clone"},
    {"f(long) [clone .cold]", 20, "f(...) [clone .cold]"},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 10, "aaaaaaa..."},
    {"aaaaaa\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 10, "aaaaaa..."},
    {">>>))}}f(int, long)>", 12, NULL}, /* whatever, within the limit */
    {"<<<<((({{{{", 8, NULL},
    {"", 8, ""},
};

START_TEST(known_names)
{
    char out[200];
    memset(out, 'x', sizeof(out));
    size_t length = name_limit_copy(out, known[_i].text, known[_i].limit);
    ck_assert_uint_eq(strlen(out), length);
    ck_assert_uint_le(length, MAX_OF(known[_i].limit, (size_t)8));
    if (known[_i].expected)
        ck_assert_str_eq(out, known[_i].expected);
}
END_TEST

/* Of any text: within the limit, nothing written behind it, and as much kept as may be: with one
 * more limit nothing gets shorter. */
START_TEST(any_text)
{
    static const char letters[] = "<>(){}ab:, -operator\xc3\xa4";
    struct rng rng = {.state = 3};
    for (int round = 0; round < 20000; round++) {
        char text[300], out[400];
        size_t length = rng_next(&rng) % (sizeof(text) - 1), last = 0;
        for (size_t i = 0; i < length; i++)
            text[i] = letters[rng_next(&rng) % (sizeof(letters) - 1)];
        text[length] = 0;
        size_t from = 8 + rng_next(&rng) % 300;
        for (size_t limit = from; limit < from + 3; limit++) {
            memset(out, 'x', sizeof(out));
            size_t got = name_limit_copy(out, text, limit);
            ck_assert_uint_le(got, limit);
            ck_assert_uint_eq(strlen(out), got);
            ck_assert_int_eq(out[got + 1], 'x');
            if (length <= limit)
                ck_assert_str_eq(out, text);
            last = got;
        }
        ck_assert(last <= length || length < 8);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("name_limit");
    TCase *names = tcase_create("names");
    tcase_add_loop_test(names, known_names, 0, ARRAY_SIZE(known));
    tcase_add_test(names, any_text);
    suite_add_tcase(suite, names);
    return suite;
}
