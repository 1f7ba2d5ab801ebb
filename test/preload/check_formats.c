/* LIBAGENT_FORMAT: programs whose windows are written as pprof, html and collapsed stacks: all have
 * the same sums by function, of all families; what is sent is pprof all the same; and what is not
 * understood leaves no file. Nothing here is statistical: files of one window are compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/picture_expect.h"
#include "test/preload/run_program.h"

#define ALL_FORMATS "LIBAGENT_FORMAT=pprof,html,collapsed"

static const char *member(const struct picture *page, const char *name)
{
    return json_string_value(json_object_get(page->data, name));
}

/* The files of the only window; `value`: that of collapsed stacks. */
static void expect_alike(const struct run *run, const char *family, int value)
{
    struct profile profile;
    struct picture page, lines;
    char suffix[64];
    profile_load(&profile, run->profiles, family, run->pid);
    ck_assert_uint_eq(profile.file_count, 1);
    snprintf(suffix, sizeof(suffix), ".%s.html", family);
    page_load(&page, run->profiles, suffix);
    picture_expect_page(&page, &profile);
    ck_assert_int_eq(strncmp(member(&page, "family"), family, strcspn(family, "@")), 0);
    ck_assert_int_eq(strncmp(member(&page, "program"), "prog_", 5), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(page.data, "pid")), run->pid);
    ck_assert_int_eq(json_integer_value(json_object_get(page.data, "start_ms")),
                     profile.files[0]->time_nanos / 1000000);
    ck_assert_uint_eq(json_array_size(json_object_get(page.data, "comments")),
                      profile.files[0]->n_comment);
    snprintf(suffix, sizeof(suffix), ".%s.collapsed", family);
    collapsed_load(&lines, run->profiles, suffix);
    picture_expect_collapsed(&lines, &profile, value);
    fprintf(stderr, "%s: %zu rows, %zu lines\n", family, page.row_count, lines.row_count);
    picture_free(&page);
    picture_free(&lines);
    profile_free(&profile);
}

START_TEST(test_cpu_and_wall)
{
    struct run run;
    run_program(&run,
                &(struct run_request){.program = "wall_waits",
                                      .arguments = (const char *[]){"2", NULL},
                                      .environment = (const char *[]){
                                          ALL_FORMATS, "LIBAGENT_PROFILES=cpu,wall",
                                          "LIBAGENT_PERIOD=0", "LIBAGENT_FREQUENCY=101", NULL}});
    run_expect_quiet_success(&run);
    expect_alike(&run, "cpu", CPU_NS);
    expect_alike(&run, "wall", WALL_NS);
    ck_assert_uint_eq(run_file_count(&run, ""), 6);
    run_free(&run);
}
END_TEST

/* Of heap-growth 40 blocks are gone: numbers below 0 in the page, no line. */
START_TEST(test_heaps)
{
    struct run run;
    struct picture page, lines;
    run_program(&run,
                &(struct run_request){
                    .program = "heap_growth",
                    .arguments = (const char *[]){"mark", NULL},
                    .environment = (const char *[]){
                        ALL_FORMATS, "LIBAGENT_PROFILES=alloc,heap,heap-growth,heap-peak",
                        "LIBAGENT_PERIOD=0", "LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_HEAP_BYTES=1",
                        "LIBAGENT_LOG=debug", "LIBAGENT_LOG_FILE=agent.log", NULL}});
    run_expect_quiet_success(&run);
    expect_alike(&run, "heap", LIVE_BYTES);
    expect_alike(&run, "heap-growth", LIVE_BYTES);
    expect_alike(&run, "heap-peak", LIVE_BYTES);
    page_load(&page, run.profiles, ".heap-growth.html");
    int type = page_type(&page, "inuse_space");
    ck_assert_int_eq(picture_self(&page, type, "site_before"), -40 * 1000);
    ck_assert_int_eq(picture_self(&page, type, "site_after"), 60 * 1000);
    ck_assert_int_eq(picture_of_label(&page, type, "bytes", NULL, 1024), 20 * 1000);
    collapsed_load(&lines, run.profiles, ".heap-growth.collapsed");
    ck_assert_int_eq(picture_self(&lines, 0, "site_before"), 0);
    ck_assert_int_eq(picture_self(&lines, 0, "site_after"), 60 * 1000);
    picture_free(&page);
    picture_free(&lines);
    run_free(&run);
}
END_TEST

/* So has each capture. */
START_TEST(test_captures)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "captures",
                          .arguments = (const char *[]){"thread", NULL},
                          .environment = (const char *[]){ALL_FORMATS, "LIBAGENT_PROFILES=cpu",
                                                          "LIBAGENT_FREQUENCY=200", NULL}});
    run_expect_success(&run);
    expect_alike(&run, "cpu@order.1", CPU_NS);
    expect_alike(&run, "cpu@order.2", CPU_NS);
    run_free(&run);
}
END_TEST

/* Files, lines and inlined functions are in the page; sums by function stay. */
START_TEST(test_lines)
{
    struct run run;
    struct picture page;
    run_program(&run,
                &(struct run_request){.program = "lines",
                                      .environment = (const char *[]){
                                          ALL_FORMATS, "LIBAGENT_PROFILES=cpu", "LIBAGENT_PERIOD=0",
                                          "LIBAGENT_SYMBOLS=lines", NULL}});
    run_expect_quiet_success(&run);
    expect_alike(&run, "cpu", CPU_NS);
    page_load(&page, run.profiles, ".cpu.html");
    const json_t *files = json_object_get(page.data, "files");
    size_t i, met = 0;
    json_t *frame;
    json_array_foreach(json_object_get(page.data, "frames"), i, frame)
    {
        const char *name = json_string_value(json_array_get(frame, 0));
        if (strcmp(name, "inner") != 0 && strcmp(name, "middle") != 0 && strcmp(name, "outer") != 0)
            continue;
        int64_t start = run_number(&run, name);
        int64_t line = json_integer_value(json_array_get(frame, 3));
        ck_assert_msg(line >= start && line <= start + 9, "%s: line %lld", name, (long long)line);
        const char *file = json_string_value(
            json_array_get(files, (size_t)json_integer_value(json_array_get(frame, 2))));
        ck_assert_ptr_nonnull(strstr(file, "prog_lines.c"));
        ck_assert_int_eq(json_integer_value(json_array_get(frame, 4)), strcmp(name, "outer") != 0);
        met++;
    }
    ck_assert_uint_ge(met, 3);
    picture_free(&page);
    run_free(&run);
}
END_TEST

static void run_sites(struct run *run, const char *const *environment)
{
    run_program(run, &(struct run_request){.program = "shares",
                                           .arguments = (const char *[]){"10000", "1", NULL},
                                           .environment = environment});
    run_expect_success(run);
}

START_TEST(test_only_what_is_asked_for)
{
    struct run run;
    run_sites(&run, (const char *[]){"LIBAGENT_FORMAT= HTML ", "LIBAGENT_PROFILES=cpu",
                                     "LIBAGENT_COMPRESSION=zstd", NULL});
    ck_assert_str_eq(run.err, "");
    ck_assert_uint_eq(run_file_count(&run, ""), 1);
    ck_assert_uint_eq(run_file_count(&run, ".cpu.html"), 1);
    run_free(&run);
}
END_TEST

/* Backends have formats of their own. */
START_TEST(test_what_is_sent_is_pprof)
{
    struct run run;
    char spool[] = "/tmp/libagent-formats-XXXXXX", variable[64];
    ck_assert_ptr_nonnull(mkdtemp(spool));
    snprintf(variable, sizeof(variable), "LIBAGENT_SPOOL=%s", spool);
    run_sites(&run, (const char *[]){"LIBAGENT_FORMAT=html,collapsed", "LIBAGENT_PROFILES=cpu",
                                     "LIBAGENT_DIALECT=post", variable, NULL});
    ck_assert_str_eq(run.err, "");
    ck_assert_uint_eq(run_file_count(&run, ""), 2);
    ck_assert_uint_eq(run_file_count(&run, ".cpu.html"), 1);
    ck_assert_uint_eq(run_file_count(&run, ".cpu.collapsed"), 1);
    size_t size;
    char *sent = picture_file(spool, ".spool", &size);
    /* A head, and gzip's first bytes. */
    ck_assert_ptr_nonnull(memmem(sent, size, "\n\n\x1f\x8b", 4));
    ck_assert_ptr_null(memmem(sent, size, "<html", 5));
    free(sent);
    run_free(&run);
    /* Without a folder there is no file, which is said. */
    run_sites(&run, (const char *[]){"LIBAGENT_FORMAT=html", "LIBAGENT_PROFILES=cpu", variable,
                                     "LIBAGENT_OUTPUT", NULL});
    ck_assert_str_eq(run.err,
                     "libagent: warn: LIBAGENT_FORMAT is of files, of which there are none "
                     "without LIBAGENT_OUTPUT\n");
    run_expect_no_file(&run);
    run_free(&run);
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", spool);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_what_is_not_understood_leaves_no_file)
{
    static const char *const values[] = {"svg", "html,svg", "html;pprof", ","};
    struct run run;
    char variable[64], expected[256];
    snprintf(variable, sizeof(variable), "LIBAGENT_FORMAT=%s", values[_i]);
    run_sites(&run, (const char *[]){variable, NULL});
    snprintf(expected, sizeof(expected),
             "libagent: error: %s is not understood: it takes one or more of pprof, html, "
             "collapsed; no profile is written\n",
             variable);
    ck_assert_str_eq(run.err, expected);
    run_expect_no_file(&run);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("formats");
    TCase *tcase = tcase_create("whole programs");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_cpu_and_wall);
    tcase_add_test(tcase, test_heaps);
    tcase_add_test(tcase, test_captures);
    tcase_add_test(tcase, test_lines);
    tcase_add_test(tcase, test_only_what_is_asked_for);
    tcase_add_test(tcase, test_what_is_sent_is_pprof);
    tcase_add_loop_test(tcase, test_what_is_not_understood_leaves_no_file, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
