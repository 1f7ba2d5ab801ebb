/* Options that come as texts, from a program or a file: all of them are right, or none is taken. */
#include "test/check.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/option_pairs.h"
#include "agent/base/options.h"
#include "test/own_log.h"

static struct option_pairs pairs;

static void expect(const char *name, const char *value)
{
    const char *found = option_pairs_get(&pairs, name);
    ck_assert_ptr_nonnull(found);
    ck_assert_str_eq(found, value);
}

/* ---- a list ---- */

START_TEST(keys_are_taken_in_any_case_with_the_prefix_or_without)
{
    ck_assert_int_eq(option_pairs_from_list(&pairs, "frequency=10,MAX_FRAMES = 7,"
                                                    "libagent_Period=3s"),
                     0);
    ck_assert_uint_eq(pairs.count, 3);
    expect("LIBAGENT_FREQUENCY", "10");
    expect("LIBAGENT_MAX_FRAMES", "7");
    expect("LIBAGENT_PERIOD", "3s");
}
END_TEST

/* Some values are lists themselves. */
START_TEST(what_has_no_equals_sign_belongs_to_the_value_before)
{
    ck_assert_int_eq(option_pairs_from_list(&pairs, "profiles=cpu,alloc,frequency=10"), 0);
    ck_assert_uint_eq(pairs.count, 2);
    expect("LIBAGENT_PROFILES", "cpu,alloc");
    expect("LIBAGENT_FREQUENCY", "10");
    ck_assert_int_eq(option_pairs_from_list(&pairs, "output=/a,b"), 0);
    expect("LIBAGENT_OUTPUT", "/a,b");
    ck_assert_int_eq(option_pairs_from_list(&pairs, ""), 0);
    ck_assert_uint_eq(pairs.count, 0);
}
END_TEST

static const struct {
    const char *text, *line;
} wrong[] = {
    {"frequency=0", "libagent_start: LIBAGENT_FREQUENCY=0 is not understood"},
    {"frequency", "libagent_start: frequency is no key=value"},
    {"frequenzy=1", "libagent_start: frequenzy is not an option"},
    {"=1", "libagent_start:  is not an option"},
    {"enabled=1", "libagent_start: LIBAGENT_ENABLED can be set in the environment only"},
    {"toggle_signal=USR1", "libagent_start: LIBAGENT_TOGGLE_SIGNAL can be set in the environment"},
    {"frequency=5,period=never", "libagent_start: LIBAGENT_PERIOD=never is not understood"},
};

START_TEST(a_wrong_one_is_told_in_one_line)
{
    own_log_start();
    ck_assert_int_eq(option_pairs_from_list(&pairs, wrong[_i].text), -EINVAL);
    ck_assert_int_eq(own_log_lines(wrong[_i].line), 1);
    ck_assert_int_eq(own_log_lines("libagent: "), 1);
    own_log_remove();
}
END_TEST

/* Nothing is changed by what is only looked at. */
START_TEST(options_stay_as_they_are_until_they_are_loaded)
{
    char *environment[] = {"LIBAGENT_FREQUENCY=11", NULL};
    options_load(environment, "suite");
    ck_assert_int_eq(option_pairs_from_list(&pairs, "frequency=22"), 0);
    ck_assert_uint_eq(options.frequency, 11);
    options_overlay(OVERLAY_START, pairs.list);
    options_load(environment, "suite");
    ck_assert_uint_eq(options.frequency, 22);
    options_overlay(OVERLAY_START, NULL);
    options_load(environment, "suite");
    ck_assert_uint_eq(options.frequency, 11);
}
END_TEST

/* The file before the start before the environment; an empty value says nothing. */
START_TEST(the_file_comes_before_the_start)
{
    char *environment[] = {"LIBAGENT_FREQUENCY=11", "LIBAGENT_MAX_FRAMES=12", "LIBAGENT_PERIOD=13s",
                           NULL};
    char *of_start[] = {"LIBAGENT_FREQUENCY=21", "LIBAGENT_MAX_FRAMES=22", NULL};
    char *of_file[] = {"LIBAGENT_FREQUENCY=31", "LIBAGENT_MAX_FRAMES=", NULL};
    options_overlay(OVERLAY_START, of_start);
    options_overlay(OVERLAY_FILE, of_file);
    options_load(environment, "suite");
    ck_assert_uint_eq(options.frequency, 31);
    ck_assert_uint_eq(options.max_frames, 22);
    ck_assert_uint_eq(options.period_ns, 13 * NS_PER_SEC);
}
END_TEST

START_TEST(the_copy_of_the_environment_is_what_options_are_read_from)
{
    char text[] = "LIBAGENT_FREQUENCY=11";
    char *environment[] = {"PATH=/bin",  text, "DD_SERVICE=shop", "TMPDIR=/t", "HOME=/",
                           "no_proxy=h", NULL};
    char *const *kept = options_keep(environment);
    memset(text, 'x', sizeof(text) - 1); /* the program writes over it */
    ck_assert_str_eq(environment_get(kept, "LIBAGENT_FREQUENCY"), "11");
    ck_assert_str_eq(environment_get(kept, "DD_SERVICE"), "shop");
    ck_assert_str_eq(environment_get(kept, "TMPDIR"), "/t");
    ck_assert_str_eq(environment_get(kept, "no_proxy"), "h");
    ck_assert_ptr_null(environment_get(kept, "PATH"));
    ck_assert_ptr_null(environment_get(kept, "HOME"));
}
END_TEST

/* ---- lines ---- */

START_TEST(a_file_has_lines)
{
    static const char text[] = "# a comment = 1\n"
                               "\n"
                               "  LIBAGENT_FREQUENCY=10\r\n"
                               "profiles = cpu,alloc \n"
                               "enabled=off\n"
                               "frequency=20";
    ck_assert_int_eq(option_pairs_from_lines(&pairs, text, "file"), 0);
    expect("LIBAGENT_FREQUENCY", "20"); /* the last one */
    expect("LIBAGENT_PROFILES", "cpu,alloc");
    expect("LIBAGENT_ENABLED", "off");
    ck_assert_ptr_null(option_pairs_get(&pairs, "LIBAGENT_PERIOD"));
}
END_TEST

/* An editor may put the mark there, which nobody sees. */
START_TEST(a_byte_order_mark_says_nothing)
{
    ck_assert_int_eq(option_pairs_from_lines(&pairs,
                                             "\xef\xbb\xbf"
                                             "frequency=10\n",
                                             "file"),
                     0);
    expect("LIBAGENT_FREQUENCY", "10");
}
END_TEST

START_TEST(a_wrong_line_is_told_by_its_number)
{
    own_log_start();
    ck_assert_int_eq(option_pairs_from_lines(&pairs, "# 1\n\nfrequency=10\nperiod=1x\n", "file"),
                     -EINVAL);
    ck_assert_int_eq(own_log_lines("file, line 4: LIBAGENT_PERIOD=1x is not understood"), 1);
    ck_assert_int_eq(option_pairs_from_lines(&pairs, "nothing", "file"), -EINVAL);
    ck_assert_int_eq(own_log_lines("file, line 1: nothing is no key=value"), 1);
    own_log_remove();
}
END_TEST

START_TEST(too_many_are_refused)
{
    static char text[OPTION_PAIRS_BYTES * 2];
    for (size_t used = 0; used < sizeof(text) - 16; used += strlen(text + used))
        strcpy(text + used, "frequency=10\n");
    own_log_start();
    ck_assert_int_eq(option_pairs_from_lines(&pairs, text, "file"), -EINVAL);
    ck_assert_int_eq(own_log_lines("file, line 65: too many options"), 1);
    own_log_remove();
}
END_TEST

START_TEST(files_with_other_values_differ)
{
    static struct option_pairs other;
    ck_assert_int_eq(option_pairs_from_lines(&pairs, "frequency=10\n", "file"), 0);
    ck_assert_int_eq(option_pairs_from_lines(&other, "# the same\nFREQUENCY = 10", "file"), 0);
    ck_assert(option_pairs_equal(&pairs, &other));
    ck_assert_int_eq(option_pairs_from_lines(&other, "frequency=11\n", "file"), 0);
    ck_assert(!option_pairs_equal(&pairs, &other));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("option_pairs");
    TCase *list = tcase_create("list");
    tcase_add_test(list, keys_are_taken_in_any_case_with_the_prefix_or_without);
    tcase_add_test(list, what_has_no_equals_sign_belongs_to_the_value_before);
    tcase_add_loop_test(list, a_wrong_one_is_told_in_one_line, 0, ARRAY_SIZE(wrong));
    tcase_add_test(list, options_stay_as_they_are_until_they_are_loaded);
    tcase_add_test(list, the_file_comes_before_the_start);
    tcase_add_test(list, the_copy_of_the_environment_is_what_options_are_read_from);
    suite_add_tcase(suite, list);
    TCase *lines = tcase_create("lines");
    tcase_add_test(lines, a_file_has_lines);
    tcase_add_test(lines, a_byte_order_mark_says_nothing);
    tcase_add_test(lines, a_wrong_line_is_told_by_its_number);
    tcase_add_test(lines, too_many_are_refused);
    tcase_add_test(lines, files_with_other_values_differ);
    suite_add_tcase(suite, lines);
    return suite;
}
