/* Where the agent is off, whole or in part, and what it says then. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void run_status(struct run *run, const char *variable, bool with_agent)
{
    run_program(run, &(struct run_request){.program = "status",
                                           .arguments = (const char *[]){"60", NULL},
                                           .environment = (const char *[]){variable, NULL},
                                           .without_agent = !with_agent});
    run_expect_success(run);
}

static bool leaves_traces(const char *variable)
{
    struct run with, without;
    run_status(&with, variable, true);
    run_status(&without, variable, false);
    bool same = with.out_size == without.out_size && strcmp(with.out, without.out) == 0;
    if (same) {
        run_expect_no_file(&with);
        ck_assert_msg(with.err_size == 0, "%s", with.err);
    }
    run_free(&with);
    run_free(&without);
    return !same;
}

START_TEST(test_off_leaves_no_trace)
{
    static const char *const off[] = {
        "LIBAGENT_ENABLED=0",
        "LIBAGENT_PROCESSES=redis-server,prog_statu,xprog_status,prog_status?",
        "LIBAGENT_PROCESS_RATE=0"};
    ck_assert_msg(!leaves_traces(off[_i]), "%s", off[_i]);
}
END_TEST

START_TEST(test_on_is_seen)
{
    static const char *const on[] = {"LIBAGENT_ENABLED=1", "LIBAGENT_PROCESSES=redis,prog_st?tus",
                                     "LIBAGENT_PROCESSES=*_stat*", "LIBAGENT_PROCESS_RATE=1"};
    ck_assert_msg(leaves_traces(on[_i]), "%s", on[_i]);
}
END_TEST

/* What is wrong with other options is not even looked at. */
START_TEST(test_off_reads_nothing_else)
{
    struct run run;
    run_program(&run, &(struct run_request){.program = "/bin/true",
                                            .environment = (const char *[]){
                                                "LIBAGENT_ENABLED=0", "LIBAGENT_FREQUENCY=often",
                                                "LIBAGENT_HELP=1", "LIBAGENT_TYPO=1", NULL}});
    run_expect_quiet_success(&run);
    run_free(&run);
}
END_TEST

START_TEST(test_musl_program)
{
    struct run with, without;
    struct run_request request = {.program = "musl_hello"};
    run_program(&with, &request);
    request.without_agent = true;
    run_program(&without, &request);
    run_expect_same(&with, &without);
    ck_assert_int_eq(WEXITSTATUS(without.status), 4);
    run_expect_no_file(&with);
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_help)
{
    static const char *const names[] = {"ENABLED",   "PROCESSES",    "PROCESS_RATE",   "PROFILES",
                                        "FREQUENCY", "PERIOD",       "ALLOC_INTERVAL", "MAX_FRAMES",
                                        "OUTPUT",    "OUTPUT_LIMIT", "COMPRESSION",    "MEMORY",
                                        "LOG",       "LOG_FILE",     "SERVICE"};
    struct run run;
    run_program(&run, &(struct run_request){.program = "/bin/true",
                                            .environment = (const char *[]){
                                                "LIBAGENT_HELP=1", "LIBAGENT_FREQUENCY=77", NULL}});
    run_expect_success(&run);
    ck_assert_uint_eq(run.out_size, 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "LIBAGENT_%s=", names[i]);
        ck_assert_msg(strstr(run.err, name) != NULL, "no %s in\n%s", name, run.err);
    }
    ck_assert_ptr_nonnull(strstr(run.err, "LIBAGENT_FREQUENCY=77")); /* the value in force */
    run_expect_no_file(&run);
    run_free(&run);
}
END_TEST

/* Whoever says it: another tool's variable, a file; and nothing that may be secret. */
START_TEST(test_help_shows_what_is_in_force)
{
    static const struct {
        const char *environment[4], *lines[4];
    } cases[] = {
        {{"PYROSCOPE_SERVER_ADDRESS=http://127.0.0.1:1/base/", "DD_ENV=e", "LIBAGENT_OUTPUT"},
         {"LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:1/base\n", "LIBAGENT_TAGS=env:e\n",
          "LIBAGENT_OUTPUT=(no files)\n",
          "profiles are sent to pyroscope, http://127.0.0.1:1/base (by PYROSCOPE_SERVER_ADDRESS)"}},
        {{"DD_PROFILING_ENABLED=1", "DD_TRACE_AGENT_URL=unix:///run/none"},
         {"LIBAGENT_UPLOAD_URL=datadog+unix:///run/none\n", "LIBAGENT_OUTPUT=/"}},
        {{"LIBAGENT_UPLOAD_URL=file:///proc/none", "LIBAGENT_OUTPUT"},
         {"LIBAGENT_UPLOAD_URL=file:///proc/none\n", "LIBAGENT_OUTPUT=/proc/none\n"}},
        {{"LIBAGENT_UPLOAD_URL=http://127.0.0.1:1/put?token=hush"},
         {"LIBAGENT_UPLOAD_URL=(nothing is sent)\n", "LIBAGENT_UPLOAD_URL's 1. is not understood"}},
        {{"LIBAGENT_UPLOAD_URL=http://127.0.0.1:1,http://me:hush@h"},
         {"LIBAGENT_UPLOAD_URL=(nothing is sent)\n", "LIBAGENT_UPLOAD_URL's 2. is not understood"}},
        {{"LIBAGENT_CONFIG=config"}, {"LIBAGENT_FREQUENCY=29\n"}},
        /* What auto is, and what a scheduler gave way to. */
        {{"LIBAGENT_PROFILES=cpu"}, {"LIBAGENT_SCHEDULER=cputimer\n"}},
        {{"LIBAGENT_PROFILES=cpu,wall"}, {"LIBAGENT_SCHEDULER=cputimer, event for wall time\n"}},
        {{"LIBAGENT_PROFILES=cpu", "LIBAGENT_SIGNALS=0"}, {"LIBAGENT_SCHEDULER=event\n"}},
        {{"LIBAGENT_PROFILES=cpu", "LIBAGENT_SCHEDULER=sigprof", "LIBAGENT_TOGGLE_SIGNAL=PROF"},
         {"LIBAGENT_SCHEDULER=event\n"}},
        /* No start at all. */
        {{"LIBAGENT_START=manual", "PYROSCOPE_SERVER_ADDRESS=http://127.0.0.1:1"},
         {"LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:1\n"}},
        {{"LIBAGENT_FREQUENCY=x", "LIBAGENT_PERIOD=x"},
         {"LIBAGENT_FREQUENCY=(wrong value)\n", "LIBAGENT_PERIOD=(wrong value)\n"}},
    };
    const char *environment[8] = {"LIBAGENT_HELP=1", "LIBAGENT_PROFILES=alloc",
                                  "LIBAGENT_PROCESSES=true"};
    struct run run;
    memcpy(environment + 3, cases[_i].environment, sizeof(cases[_i].environment));
    run_program(
        &run,
        &(struct run_request){
            .program = "/bin/sh",
            .arguments = (const char *[]){"-c", "echo FREQUENCY=29 > config; exec /bin/true", NULL},
            .environment = environment});
    run_expect_success(&run);
    for (int i = 0; i < 4 && cases[_i].lines[i]; i++) {
        const char *line = strstr(run.err, cases[_i].lines[i]);
        ck_assert_msg(line != NULL, "no %s", cases[_i].lines[i]);
        ck_assert_ptr_null(strstr(line + 1, cases[_i].lines[i])); /* once */
    }
    ck_assert_ptr_null(strstr(run.err, "hush"));
    run_free(&run);
}
END_TEST

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static const struct {
    const char *variable;
    const char *said[3];     /* in the one line */
    const char *families[2]; /* that are written all the same */
} wrong[] = {
    {"LIBAGENT_FREQUENCY=often", {"LIBAGENT_FREQUENCY", "often", "10000"}, {"heap"}},
    {"LIBAGENT_FREQUENCY=0", {"LIBAGENT_FREQUENCY", "0", "10000"}, {"heap"}},
    {"LIBAGENT_FREQUENCY=20000", {"LIBAGENT_FREQUENCY", "20000", "10000"}, {"heap"}},
    {"LIBAGENT_ALLOC_INTERVAL=5 apples", {"LIBAGENT_ALLOC_INTERVAL", "5 apples"}, {"cpu"}},
    {"LIBAGENT_ALLOC_INTERVAL=-1", {"LIBAGENT_ALLOC_INTERVAL", "-1"}, {"cpu"}},
    {"LIBAGENT_COMPRESSION=lzma", {"LIBAGENT_COMPRESSION", "lzma", "zstd"}, {NULL}},
    {"LIBAGENT_LOG=loud", {"LIBAGENT_LOG", "loud", "debug"}, {"cpu", "heap"}},
    {"LIBAGENT_FREQENCY=50", {"LIBAGENT_FREQENCY", "LIBAGENT_FREQUENCY"}, {"cpu", "heap"}},
    {"LIBAGENT_OUPUT=/tmp", {"LIBAGENT_OUPUT", "LIBAGENT_OUTPUT"}, {"cpu", "heap"}},
    {"LIBAGENT_ENABLED=perhaps", {"LIBAGENT_ENABLED", "perhaps"}, {NULL}},
};

/* One line, and the program runs on with what is left. */
START_TEST(test_wrong_values)
{
    struct run run;
    run_status(&run, wrong[_i].variable, true);
    ck_assert_msg(lines_of(run.err) == 1, "%s:\n%s", wrong[_i].variable, run.err);
    ck_assert_msg(strncmp(run.err, "libagent: ", 10) == 0, "%s", run.err);
    for (int i = 0; i < 3 && wrong[_i].said[i]; i++)
        ck_assert_msg(strstr(run.err, wrong[_i].said[i]) != NULL, "no %s in %s", wrong[_i].said[i],
                      run.err);
    size_t files = 0;
    for (; files < 2 && wrong[_i].families[files]; files++) {
        char suffix[32];
        snprintf(suffix, sizeof(suffix), ".%s.pb.gz", wrong[_i].families[files]);
        ck_assert_msg(run_file_count(&run, suffix) == 1, "%s: no %s", wrong[_i].variable, suffix);
    }
    ck_assert_uint_eq(run_file_count(&run, ""), files);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_off");
    TCase *tcase = tcase_create("off");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_off_leaves_no_trace, 0, 3);
    tcase_add_loop_test(tcase, test_on_is_seen, 0, 4);
    tcase_add_test(tcase, test_off_reads_nothing_else);
    tcase_add_test(tcase, test_musl_program);
    tcase_add_test(tcase, test_help);
    tcase_add_loop_test(tcase, test_help_shows_what_is_in_force, 0, 12);
    tcase_add_loop_test(tcase, test_wrong_values, 0, sizeof(wrong) / sizeof(wrong[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
