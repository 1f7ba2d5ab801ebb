/* Descriptors and threads of the process: the agent's are not among them. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_pair.h"

/* Flushed each second, with as much to say as there can be. */
static const char *const busy[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_LOG=debug",
                                   "LIBAGENT_LOG_FILE=/dev/null", NULL};
/* libunwind makes a pipe where it is let. */
static const char *const by_libunwind[] = {"LIBAGENT_UNWINDER=libunwind", "LIBAGENT_PERIOD=1s",
                                           "LIBAGENT_LOG=debug", "LIBAGENT_LOG_FILE=/dev/null",
                                           NULL};
static const char *const talking[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_LOG=debug", NULL};

static void start_case(struct run *run, const char *name, const char *const *environment)
{
    run_start(run, &(struct run_request){.program = "descriptors",
                                         .arguments = (const char *[]){name, NULL},
                                         .environment = environment,
                                         .without_agent = !environment});
}

START_TEST(test_descriptors_are_as_without)
{
    struct run with, without;
    start_case(&with, "look", _i ? by_libunwind : busy);
    start_case(&without, "look", NULL);
    run_wait(&with);
    run_wait(&without);
    run_expect_same(&with, &without);
    run_expect_quiet_success(&with);
    ck_assert_uint_ge(run_file_count(&with, ".cpu.pb.gz"), 3);
    run_free(&with);
    run_free(&without);
}
END_TEST

static void expect_file(const struct run *run, const char *name, const char *unit, size_t times)
{
    char path[PATH_MAX + 16], text[4096];
    snprintf(path, sizeof(path), "%s/%s", run->folder, name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "no %s", path);
    size_t length = fread(text, 1, sizeof(text) - 1, file), unit_length = strlen(unit);
    text[length] = 0;
    fclose(file);
    ck_assert_msg(length == times * unit_length, "%s has %zu bytes: %s", name, length, text);
    for (size_t i = 0; i < times; i++)
        ck_assert_int_eq(memcmp(text + i * unit_length, unit, unit_length), 0);
}

START_TEST(test_numbers_used_again_get_no_byte_of_ours)
{
    struct run run;
    start_case(&run, "close-all", talking);
    run_wait(&run);
    run_expect_success(&run);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "own-%d", i);
        expect_file(&run, name, "text", 30);
    }
    expect_file(&run, "list", " 0:/own-0 1:/own-1 2:/own-2 3:/own-3 4:/list\n", 1);
    ck_assert_uint_ge(run_file_count(&run, ".cpu.pb.gz"), 3);
    run_free(&run);
}
END_TEST

START_TEST(test_closed_numbers_are_free)
{
    struct run_pair pair;
    char command[2 * PATH_MAX];
    snprintf(command, sizeof(command), "'%s' list >&- 2>&-; cat list",
             run_program_path("descriptors"));
    run_pair(&pair, &(struct run_request){.program = "/bin/sh",
                                          .arguments = (const char *[]){"-c", command, NULL},
                                          .environment = by_libunwind});
    run_expect_quiet_success(&pair.with);
    ck_assert_ptr_nonnull(strstr(pair.with.out, " 1:/list"));
    run_pair_free(&pair);
}
END_TEST

START_TEST(test_reader_of_a_closed_pipe_goes_on)
{
    struct run run;
    char command[4 * PATH_MAX];
    snprintf(command, sizeof(command),
             "LD_PRELOAD='%s' '%s' leave-pipe 2>&1 | { cat > /dev/null; [ ! -e left ]; }",
             run_agent_path(), run_program_path("descriptors"));
    run_program(&run, &(struct run_request){.program = "/bin/sh",
                                            .arguments = (const char *[]){"-c", command, NULL},
                                            .environment = busy,
                                            .without_agent = true});
    ck_assert_msg(run.status == 0, "the pipe was held open");
    /* The shell may be back before the program is: it is not the last of the pipe. */
    run_free(&run);
}
END_TEST

/* An idle thread makes libc slower, and unshare fail: none is born before it is needed. */
START_TEST(test_short_program_has_one_thread)
{
    struct run run;
    run_program(&run, &(struct run_request){.program = "status",
                                            .arguments = (const char *[]){"500", NULL}});
    run_expect_quiet_success(&run);
    ck_assert_int_eq(run_number(&run, "tasks"), 3); /* with "." and ".." */
    ck_assert_ptr_nonnull(strstr(run.out, "Threads:\t1\n"));
    ck_assert_uint_eq(run_file_count(&run, ".pb.gz"), 2);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_descriptors");
    TCase *tcase = tcase_create("descriptors and threads");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_descriptors_are_as_without, 0, 2);
    tcase_add_test(tcase, test_numbers_used_again_get_no_byte_of_ours);
    tcase_add_test(tcase, test_closed_numbers_are_free);
    tcase_add_test(tcase, test_reader_of_a_closed_pipe_goes_on);
    tcase_add_test(tcase, test_short_program_has_one_thread);
    suite_add_tcase(suite, tcase);
    return suite;
}
