/* What LIBAGENT_HELP=1 shows, and what no line shows. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/option_rows.h"
#include "agent/base/options.h"
#include "test/own_log.h"

#define ENVIRONMENT(...) ((char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static int lines_of(const char *text)
{
    int lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

START_TEST(the_help_shows_the_values_in_force)
{
    static char text[1 << 15];
    options_load(ENVIRONMENT("LIBAGENT_FREQUENCY=99", "LIBAGENT_PERIOD=never", "LIBAGENT_OUTPUT=/p",
                             "DD_SERVICE=shop"),
                 "prog");
    size_t length = options_help(ENVIRONMENT(), NULL, text, sizeof(text));
    ck_assert_uint_eq(length, strlen(text));
    ck_assert_int_eq(lines_of(text), 2 * ROW_COUNT);
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_FREQUENCY=99\n    samples in each second"));
    ck_assert_ptr_nonnull(strstr(text, "(a whole number from 1 to 10000; default 101)\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_PERIOD=(wrong value)\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_OUTPUT=/p\n"));
    ck_assert_ptr_nonnull(strstr(text, "default ${TMPDIR:-/tmp}/libagent-UID)"));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_SERVICE=shop\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_ALLOC_INTERVAL=512KiB\n"));
    /* Cut, it stays within its bounds. */
    for (size_t size = 0; size < 300; size++) {
        char cut[301];
        memset(cut, '#', sizeof(cut));
        size_t used = options_help(ENVIRONMENT(), NULL, cut, size);
        ck_assert_uint_eq(used, size ? size - 1 : 0);
        ck_assert_mem_eq(cut, text, used);
        ck_assert_int_eq(cut[size], '#');
    }
}
END_TEST

START_TEST(what_may_be_secret_is_hidden)
{
    static char text[1 << 15], value[8192];
    options_load(ENVIRONMENT("LIBAGENT_UPLOAD_URL=http://h/put?token=hush"), "prog");
    options_help(ENVIRONMENT(), NULL, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_UPLOAD_URL=(hidden)\n"));
    options_help(ENVIRONMENT(),
                 (struct option_shown[]){{&options.tags, NULL}, {&options.upload_url, "u"}, {0}},
                 text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_UPLOAD_URL=u\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_TAGS=OTEL_RESOURCE_ATTRIBUTES, "));
    /* Too long for an option. */
    int length = snprintf(value, sizeof(value), "LIBAGENT_UPLOAD_URL=http://hush");
    memset(value + length, 'a', sizeof(value) - 1 - (size_t)length);
    char log_file[256];
    own_log_start();
    snprintf(log_file, sizeof(log_file), "LIBAGENT_LOG_FILE=%s", own_log_path());
    options_load(ENVIRONMENT(value, log_file), "prog");
    ck_assert_int_eq(own_log_lines("LIBAGENT_UPLOAD_URL=(hidden) is not understood"), 1);
    ck_assert_int_eq(own_log_lines("hush"), 0);
    own_log_remove();
}
END_TEST

START_TEST(the_help_shows_the_default_folder)
{
    static char text[1 << 15], expected[128];
    static char *const tmpdirs[] = {"TMPDIR=/t", "TMPDIR=", "OTHER=1"};
    for (int i = 0; i < 3; i++) {
        options_load(ENVIRONMENT(tmpdirs[i]), "prog");
        options_help(ENVIRONMENT(tmpdirs[i]), NULL, text, sizeof(text));
        snprintf(expected, sizeof(expected), "LIBAGENT_OUTPUT=%s/libagent-%u\n",
                 i == 0 ? "/t" : "/tmp", (unsigned)geteuid());
        ck_assert_ptr_nonnull(strstr(text, expected));
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("options_help");
    TCase *all = tcase_create("all");
    tcase_add_test(all, the_help_shows_the_values_in_force);
    tcase_add_test(all, what_may_be_secret_is_hidden);
    tcase_add_test(all, the_help_shows_the_default_folder);
    suite_add_tcase(suite, all);
    return suite;
}
