/* From the text of an option to its value. */
#include "test/check.h"

#include <signal.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/option_parse.h"
#include "agent/base/option_rows.h"

static const struct {
    const char *text;
    bool good;
    uint64_t size, ns; /* ns: UINT64_MAX where only the size is good */
} numbers[] = {
    {"0", true, 0, 0},
    {"7", true, 7, 7000000000},
    {"18446744073709551615", true, UINT64_MAX, UINT64_MAX},
    {"18446744073709551616", false, 0, 0},
    {"99999999999999999999", false, 0, 0},
    {"", false, 0, 0},
    {"B", false, 0, 0},
    {"1 B", false, 0, 0},
    {"1B", true, 1, UINT64_MAX},
    {"3KiB", true, 3072, UINT64_MAX},
    {"3kib", true, 3072, UINT64_MAX},
    {"2MiB", true, 2097152, UINT64_MAX},
    {"2GiB", true, 2147483648, UINT64_MAX},
    {"17179869183GiB", true, 18446744072635809792u, UINT64_MAX},
    {"17179869184GiB", false, 0, 0},
    {"1KiBx", false, 0, 0},
    {"0x10", false, 0, 0},
    {"+1", false, 0, 0},
};

START_TEST(sizes_and_durations_from_text)
{
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        uint64_t value;
        ck_assert_msg(parse_size(numbers[i].text, &value) == numbers[i].good, "%s",
                      numbers[i].text);
        if (numbers[i].good)
            ck_assert_uint_eq(value, numbers[i].size);
        bool time = numbers[i].good && numbers[i].ns != UINT64_MAX;
        ck_assert_msg(parse_duration(numbers[i].text, &value) == time, "%s", numbers[i].text);
        if (time)
            ck_assert_uint_eq(value, numbers[i].ns);
    }
    uint64_t ns;
    ck_assert(parse_duration("1500ms", &ns) && ns == 1500000000);
    ck_assert(parse_duration("2s", &ns) && ns == 2000000000);
    ck_assert(parse_duration("3M", &ns) && ns == 180000000000);
    ck_assert(parse_duration("4h", &ns) && ns == 14400000000000);
}
END_TEST

START_TEST(shown_sizes_and_durations_are_read_again)
{
    static const uint64_t values[] = {0,     1,       1023,       1024,       1536,
                                      65536, 1 << 20, 5ull << 30, 1ull << 40, UINT64_MAX};
    char text[32];
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        uint64_t again;
        show_size(text, sizeof(text), values[i]);
        ck_assert(parse_size(text, &again));
        ck_assert_uint_eq(again, values[i]);
        uint64_t ns = values[i] / 1000000 * 1000000;
        show_duration(text, sizeof(text), ns);
        ck_assert(parse_duration(text, &again));
        ck_assert_uint_eq(again, ns);
    }
}
END_TEST

START_TEST(decimals_from_text)
{
    static const struct {
        const char *text;
        double value; /* -1: not accepted */
    } cases[] = {{"0", 0},    {"1", 1},         {"0.5", 0.5},           {".25", 0.25},  {"1.0", 1},
                 {"1.", 1},   {"0.001", 0.001}, {"1.000001", 1.000001}, {"20.5", 20.5}, {"", -1},
                 {".", -1},   {"0.1.2", -1},    {"-0.5", -1},           {"5e-1", -1},   {"nan", -1},
                 {"50%", -1}, {"0,5", -1},      {"00.5", 0.5}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double number;
        bool good = parse_decimal(cases[i].text, &number);
        ck_assert_msg(good == (cases[i].value >= 0), "%s", cases[i].text);
        if (good)
            ck_assert_double_eq_tol(number, cases[i].value, 1e-15);
    }
}
END_TEST

START_TEST(edit_distances)
{
    static const struct {
        const char *a, *b;
        unsigned distance;
    } cases[] = {{"", "", 0},
                 {"", "abc", 3},
                 {"abc", "abc", 0},
                 {"kitten", "sitting", 3},
                 {"saturday", "sunday", 3},
                 {"abc", "acb", 2},
                 {"FREQENCY", "FREQUENCY", 1},
                 {"intention", "execution", 5}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ck_assert_uint_eq(edit_distance(cases[i].a, cases[i].b), cases[i].distance);
        ck_assert_uint_eq(edit_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    char long_name[500];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = 0;
    ck_assert_uint_eq(edit_distance(long_name, ""), 63);
    ck_assert_uint_eq(edit_distance("", long_name), 63);
}
END_TEST

START_TEST(options_that_were_meant)
{
    static const char *const pairs[][2] = {
        /* Typing errors. */
        {"FREQENCY", "FREQUENCY"},
        {"PEROID", "PERIOD"},
        {"PROFLIES", "PROFILES"},
        {"LOGFILE", "LOG_FILE"},
        {"UPLOADURL", "UPLOAD_URL"},
        {"enabled", "ENABLED"},
        {"output_limt", "OUTPUT_LIMIT"},
        /* One is how the other begins. */
        {"PROFILE", "PROFILES"},
        {"PROCESS", "PROCESSES"},
        {"ALLOC", "ALLOC_INTERVAL"},
        {"FREQ", "FREQUENCY"},
        {"LOG_LEVEL", "LOG"},
        {"OUTPUT_DIR", "OUTPUT"},
        /* None is like it. */
        {"SO", NULL},
        {"UPLOADER", NULL},
        {"HOME", NULL},
        {"VERSION", NULL},
        {"XYZZY", NULL},
        {"S", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        const char *meant = option_meant(pairs[i][0]);
        ck_assert_pstr_eq(meant ? meant + strlen(OPTION_PREFIX) : NULL, pairs[i][1]);
    }
}
END_TEST

static const char *const colours[] = {"red", "green", "blue", NULL};

START_TEST(words_and_sets_of_words)
{
    uint32_t value;
    ck_assert(parse_word("green", colours, &value) && value == 1);
    ck_assert(parse_word("BLUE", colours, &value) && value == 2);
    ck_assert(!parse_word("gree", colours, &value));
    ck_assert(!parse_word("greens", colours, &value));
    ck_assert(!parse_word("", colours, &value));
    ck_assert(parse_word_set("red", colours, &value) && value == 1);
    ck_assert(parse_word_set("blue,red,blue", colours, &value) && value == 5);
    ck_assert(parse_word_set("  Red , gReen ", colours, &value) && value == 3);
    ck_assert(!parse_word_set("", colours, &value));
    ck_assert(!parse_word_set("red,", colours, &value));
    ck_assert(!parse_word_set(",red", colours, &value));
    ck_assert(!parse_word_set("red green", colours, &value));
    ck_assert(!parse_word_set("red;green", colours, &value));
    char text[600]; /* longer than an item may be */
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    ck_assert(!parse_word_set(text, colours, &value));
}
END_TEST

START_TEST(signals_by_name_and_number)
{
    static const struct {
        const char *text;
        uint32_t number;
    } good[] = {
        {"none", 0},      {"0", 0},         {"USR2", SIGUSR2}, {"sigusr1", SIGUSR1},
        {"12", SIGUSR2},  {"SIGPROF", 27},  {"RTMIN", 34},     {"rtmin+3", 37},
        {"SIGRTMAX", 64}, {"RTMAX-14", 50}, {"34", 34},        {"64", 64},
    };
    static const char *const bad[] = {
        "",   "KILL",     "9",        "SIGSTOP", "19",     "SIGSEGV", "11",  "32", "33",
        "65", "RTMIN+31", "RTMAX-31", "RTMIN-1", "RTMIN+", "USR3",    "SIG", "-1", "USR1 "};
    uint32_t number;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(parse_signal(good[i].text, &number) && number == good[i].number, "%s",
                      good[i].text);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!parse_signal(bad[i], &number), "%s", bad[i]);
}
END_TEST

START_TEST(booleans)
{
    static const char *const yes[] = {"1", "true", "yes", "on", "True", "ON"};
    static const char *const no[] = {"0", "false", "no", "off", "NO", "Off"};
    static const char *const neither[] = {"", "2", "00", "y", "tru", "truey", " 1"};
    bool value;
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        ck_assert(parse_bool(yes[i], &value) && value);
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        ck_assert(parse_bool(no[i], &value) && !value);
    for (size_t i = 0; i < ARRAY_SIZE(neither); i++)
        ck_assert(!parse_bool(neither[i], &value));
}
END_TEST

START_TEST(lists_of_globs)
{
    ck_assert(glob_list_match("*", ""));
    ck_assert(glob_list_match("a*, b*", "bc"));
    ck_assert(glob_list_match("a*, b*", "ac"));
    ck_assert(!glob_list_match("a*, b*", "cc"));
    ck_assert(!glob_list_match("", ""));
    ck_assert(!glob_list_match(",,", ""));
    char globs[600]; /* one that is too long matches nothing, and the list goes on */
    memset(globs, '*', sizeof(globs) - 1);
    globs[sizeof(globs) - 1] = 0;
    ck_assert(!glob_list_match(globs, "a"));
    memcpy(globs + sizeof(globs) - 3, ",a", 3);
    ck_assert(glob_list_match(globs, "a"));
    ck_assert(!glob_list_match(globs, "b"));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("option_parse");
    TCase *parsing = tcase_create("parse");
    tcase_add_test(parsing, sizes_and_durations_from_text);
    tcase_add_test(parsing, shown_sizes_and_durations_are_read_again);
    tcase_add_test(parsing, decimals_from_text);
    tcase_add_test(parsing, edit_distances);
    tcase_add_test(parsing, options_that_were_meant);
    tcase_add_test(parsing, words_and_sets_of_words);
    tcase_add_test(parsing, signals_by_name_and_number);
    tcase_add_test(parsing, booleans);
    tcase_add_test(parsing, lists_of_globs);
    suite_add_tcase(suite, parsing);
    return suite;
}
