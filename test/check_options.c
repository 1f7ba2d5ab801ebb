/* Options: each value, each wrong value, what it switches off and what is said. The lines of the
 * log are caught in a file behind descriptor 2. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/compiler.h"
#include "agent/base/option_rows.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "test/temp_path.h"

#define ENVIRONMENT(...) ((char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static int log_fd;

static void setup(void)
{
    char path[TEMP_PATH_SIZE];
    log_fd = mkstemp(temp_path(path, "options"));
    unlink(path);
    dup2(log_fd, 2);
}

/* What has been logged since the last call. */
static const char *logged(void)
{
    static char text[1 << 16];
    ssize_t length = pread(log_fd, text, sizeof(text) - 1, 0);
    text[length > 0 ? length : 0] = 0;
    ck_assert_int_eq(ftruncate(log_fd, 0), 0);
    lseek(log_fd, 0, SEEK_SET);
    return text;
}

static int lines_of(const char *text)
{
    int lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

static void load(char *const *environment)
{
    options_load(environment, "prog");
}

#define CHECK_SILENT() ck_assert_str_eq(logged(), "")

/* One wrong value: one line that names all, and which part is off. */
static void check_wrong(const char *assignment, const char *accepted, enum option_part part)
{
    char name[64], copy[5000];
    snprintf(copy, sizeof(copy), "%s", assignment);
    snprintf(name, sizeof(name), "libagent: error: %.*s=", (int)strcspn(assignment, "="),
             assignment);
    load(ENVIRONMENT(copy));
    const char *line = logged();
    ck_assert_msg(strncmp(line, name, strlen(name)) == 0, "%s: %s", assignment, line);
    ck_assert_int_eq(lines_of(line), 1);
    char shown[300];
    snprintf(shown, sizeof(shown), "=%.200s is not", strchr(assignment, '=') + 1);
    ck_assert_msg(strstr(line, shown) != NULL, "%s: %s", assignment, line);
    ck_assert_msg(strstr(line, accepted) != NULL, "%s: %s", assignment, line);
    for (int i = 0; i < PART_COUNT; i++)
        ck_assert_msg(options_ok((enum option_part)i) == (part != PART_ALL && (int)part != i),
                      "%s: part %d", assignment, i);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(defaults)
{
    load(ENVIRONMENT());
    ck_assert(options.enabled);
    ck_assert_str_eq(options.processes, "*");
    ck_assert(options.process_rate == 1);
    ck_assert_uint_eq(options.profiles, PROFILE_CPU | PROFILE_ALLOC | PROFILE_HEAP);
    ck_assert_uint_eq(options.heap_sample_rate, 1);
    ck_assert(!options.heap_age && !options.heap_bytes);
    ck_assert_uint_eq(options.heap_min_age_ns, 0);
    ck_assert_uint_eq(options.frequency, 101);
    ck_assert_uint_eq(options.alloc_interval, 512 * 1024);
    ck_assert(options.overhead == 1);
    ck_assert_uint_eq(options.max_frames, 256);
    ck_assert_int_eq(options.unwinder, UNWINDER_AUTO);
    ck_assert_uint_eq(options.period_ns, 60000000000u);
    ck_assert_ptr_null(options.output);
    ck_assert_uint_eq(options.output_limit, 1u << 30);
    ck_assert_int_eq(options.compression, COMPRESSION_GZIP);
    ck_assert_uint_eq(options.memory, 64u << 20);
    ck_assert_int_eq(options.log, LOG_WARN);
    ck_assert_ptr_null(options.log_file);
    ck_assert_str_eq(options.service, "prog");
    ck_assert(options.thread_labels);
    ck_assert(!options.help);
    for (int i = 0; i < PART_COUNT; i++)
        ck_assert(options_ok((enum option_part)i));
    CHECK_SILENT();
    load(NULL); /* clearenv leaves no array at all */
    ck_assert_uint_eq(options.frequency, 101);
    CHECK_SILENT();
}
END_TEST

START_TEST(given_values)
{
    load(ENVIRONMENT("PATH=/bin", "LIBAGENT_ENABLED=yes", "LIBAGENT_PROCESSES=redis*,python3",
                     "LIBAGENT_PROCESS_RATE=0.25", "LIBAGENT_PROFILES= alloc ",
                     "LIBAGENT_FREQUENCY=10000", "LIBAGENT_ALLOC_INTERVAL=1",
                     "LIBAGENT_OVERHEAD=0.5", "LIBAGENT_MAX_FRAMES=1024",
                     "LIBAGENT_UNWINDER=libunwind", "LIBAGENT_PERIOD=24h", "LIBAGENT_OUTPUT=/var/p",
                     "LIBAGENT_OUTPUT_LIMIT=5mib", "LIBAGENT_COMPRESSION=ZSTD",
                     "LIBAGENT_MEMORY=9MiB", "LIBAGENT_LOG=debug", "LIBAGENT_SERVICE=shop",
                     "LIBAGENT_THREAD_LABELS=off", "LIBAGENT_HELP=1"));
    ck_assert(options.enabled);
    ck_assert_str_eq(options.processes, "redis*,python3");
    ck_assert(options.process_rate == 0.25);
    ck_assert_uint_eq(options.profiles, PROFILE_ALLOC);
    ck_assert_uint_eq(options.frequency, 10000);
    ck_assert_uint_eq(options.alloc_interval, 1);
    ck_assert(options.overhead == 0.5);
    ck_assert_uint_eq(options.max_frames, 1024);
    ck_assert_int_eq(options.unwinder, UNWINDER_LIBUNWIND);
    ck_assert_uint_eq(options.period_ns, 86400000000000u);
    ck_assert_str_eq(options.output, "/var/p");
    ck_assert_uint_eq(options.output_limit, 5u << 20);
    ck_assert_int_eq(options.compression, COMPRESSION_ZSTD);
    ck_assert_uint_eq(options.memory, 9u << 20);
    ck_assert_int_eq(options.log, LOG_DEBUG);
    ck_assert_str_eq(options.service, "shop");
    ck_assert(!options.thread_labels);
    ck_assert(options.help);
    CHECK_SILENT();
    load(ENVIRONMENT("LIBAGENT_PERIOD=0"));
    ck_assert_uint_eq(options.period_ns, 0);
    ck_assert_str_eq(options.processes, "*"); /* nothing is left of the load before */
}
END_TEST

START_TEST(a_variable_set_to_nothing_is_not_set)
{
    load(ENVIRONMENT("LIBAGENT_FREQUENCY=", "LIBAGENT_OUTPUT=", "LIBAGENT_LOG_FILE=",
                     "LIBAGENT_SERVICE=", "OTEL_SERVICE_NAME=", "DD_SERVICE=dd"));
    ck_assert_uint_eq(options.frequency, 101);
    ck_assert_ptr_null(options.output);
    ck_assert_ptr_null(options.log_file);
    ck_assert_str_eq(options.service, "dd");
    CHECK_SILENT();
}
END_TEST

START_TEST(values_are_copies)
{
    char output[] = "LIBAGENT_OUTPUT=/a", service[] = "OTEL_SERVICE_NAME=b",
         processes[] = "LIBAGENT_PROCESSES=c";
    load(ENVIRONMENT(output, service, processes));
    memset(strchr(output, '/'), 'x', 2);
    memset(strchr(service, 'b'), 'x', 1);
    memset(strchr(processes, 'c'), 'x', 1);
    ck_assert_str_eq(options.output, "/a");
    ck_assert_str_eq(options.service, "b");
    ck_assert_str_eq(options.processes, "c");
}
END_TEST

START_TEST(the_first_of_two_values_counts_as_with_getenv)
{
    load(ENVIRONMENT("LIBAGENT_FREQUENCY=1", "LIBAGENT_FREQUENCY=2"));
    ck_assert_uint_eq(options.frequency, 1);
}
END_TEST

START_TEST(wrong_values_switch_their_part_off)
{
    static const char frequency[] = "a whole number from 1 to 10000";
    check_wrong("LIBAGENT_FREQUENCY=0", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY=10001", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY=-1", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY=1e3", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY= 1", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY=101Hz", frequency, PART_CPU);
    check_wrong("LIBAGENT_FREQUENCY=18446744073709551617", frequency, PART_CPU); /* 1 + 2^64 */
    check_wrong("LIBAGENT_FREQUENCY=4294967297", frequency, PART_CPU);           /* 1 + 2^32 */
    static const char interval[] = "a size from 1 to 1024GiB, in B, KiB, MiB or GiB";
    check_wrong("LIBAGENT_ALLOC_INTERVAL=0", interval, PART_ALLOC);
    check_wrong("LIBAGENT_ALLOC_INTERVAL=512kB", interval, PART_ALLOC);
    check_wrong("LIBAGENT_ALLOC_INTERVAL=1025GiB", interval, PART_ALLOC);
    check_wrong("LIBAGENT_ALLOC_INTERVAL=17179869185GiB", interval, PART_ALLOC); /* wraps to 1 */
    check_wrong("LIBAGENT_PROFILES=cpu,wake", "one or more of cpu, alloc, wall, heap, ", PART_ALL);
    check_wrong("LIBAGENT_HEAP_SAMPLE_RATE=0", "from 1 to 1000000;", PART_HEAP);
    check_wrong("LIBAGENT_HEAP_SAMPLE_RATE=few", "from 1 to 1000000;", PART_HEAP);
    check_wrong("LIBAGENT_HEAP_MIN_AGE=old", "", PART_HEAP);
    check_wrong("LIBAGENT_HEAP_MARK=soon", "0, or a time from 1ms to 8760h", PART_HEAP);
    check_wrong("LIBAGENT_PROFILES=cpu,", "heap, heap-growth, heap-peak;", PART_ALL);
    static const char period[] = "0, or a time from 1s to 24h, in ms, s, m or h";
    check_wrong("LIBAGENT_PERIOD=999ms", period, PART_ALL);
    check_wrong("LIBAGENT_PERIOD=25h", period, PART_ALL);
    check_wrong("LIBAGENT_PERIOD=1d", period, PART_ALL);
    check_wrong("LIBAGENT_MAX_FRAMES=1025", "1 to 1024", PART_ALL);
    check_wrong("LIBAGENT_MEMORY=1", "from 8MiB to 64GiB", PART_ALL);
    check_wrong("LIBAGENT_THREAD_LABELS=2", "0, 1, false, true, no, yes, off or on", PART_ALL);
    check_wrong("LIBAGENT_ENABLED=maybe", "false, true", PART_ALL);
    check_wrong("LIBAGENT_PROCESSES=, ,", "one or more, up to 4095 bytes;", PART_ALL);
    check_wrong("LIBAGENT_PROCESS_RATE=1.1", "a number from 0 to 1;", PART_ALL);
    check_wrong("LIBAGENT_OVERHEAD=0", "a number above 0, up to 20;", PART_ALL);
    check_wrong("LIBAGENT_OVERHEAD=20.1", "a number above 0, up to 20;", PART_ALL);
    check_wrong("LIBAGENT_OUTPUT_LIMIT=much", "a size from", PART_OUTPUT);
    check_wrong("LIBAGENT_UNWINDER=dwarf", "one of auto, cfi, fp, libunwind;", PART_ALL);
    check_wrong("LIBAGENT_COMPRESSION=lz4", "one of gzip, zstd, none;", PART_OUTPUT);
    check_wrong("LIBAGENT_LOG=loud", "one of error, warn, info, debug;", PART_LOG);
    ck_assert_int_eq(options.log, LOG_WARN);
    check_wrong("LIBAGENT_HELP=please", "0, 1,", PART_LOG);
    ck_assert(!options.help);
}
END_TEST

START_TEST(texts_have_a_longest)
{
    char text[4200];
    for (int length = 4095; length <= 4096; length++) {
        int start = sprintf(text, "LIBAGENT_OUTPUT=");
        memset(text + start, 'x', (size_t)length);
        text[start + length] = 0;
        if (length > 4095) {
            check_wrong(text, "a text of up to 4095 bytes", PART_OUTPUT);
            continue;
        }
        load(ENVIRONMENT(text));
        ck_assert_str_eq(options.output, text + start);
        CHECK_SILENT();
    }
    /* All at their longest find room. */
    static char all[ROW_COUNT][4200];
    char *environment[ROW_COUNT + 1] = {NULL};
    for (int i = 0; i < ROW_COUNT; i++) {
        int start =
            sprintf(all[i], "%s=", i == ROW_SERVICE ? "OTEL_SERVICE_NAME" : option_rows[i].name);
        memset(all[i] + start, '0', 4095);
        all[i][start + 4094] = '1'; /* a number that is right, or a wrong word */
        environment[i] = all[i];
    }
    load(environment);
    ck_assert_uint_eq(options.frequency, 1);
    ck_assert_str_eq(options.service, all[ROW_SERVICE] + strlen("OTEL_SERVICE_NAME="));
    ck_assert_str_eq(options.log_file, all[ROW_LOG_FILE] + strlen("LIBAGENT_LOG_FILE="));
}
END_TEST

START_TEST(a_long_wrong_value_leaves_room_for_what_is_accepted)
{
    char text[4000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    memcpy(text, "LIBAGENT_FREQUENCY=", 19);
    check_wrong(text, "a whole number from 1 to 10000; CPU and wall time are not profiled",
                PART_CPU);
}
END_TEST

START_TEST(each_wrong_value_is_said)
{
    load(ENVIRONMENT("LIBAGENT_LOG=loud", "LIBAGENT_FREQUENCY=fast", "LIBAGENT_OUTPUT_LIMIT=x",
                     "LIBAGENT_ALLOC_INTERVAL=y"));
    ck_assert_int_eq(lines_of(logged()), 4);
    ck_assert(!options_ok(PART_CPU) && !options_ok(PART_ALLOC) && !options_ok(PART_OUTPUT));
    ck_assert(options_ok(PART_ALL));
    ck_assert_uint_eq(options.max_frames, 256);
}
END_TEST

START_TEST(the_log_is_set_up_before_the_first_complaint)
{
    char path[TEMP_PATH_SIZE], variable[32 + TEMP_PATH_SIZE];
    int fd = mkstemp(temp_path(path, "log"));
    snprintf(variable, sizeof(variable), "LIBAGENT_LOG_FILE=%s", path);
    load(ENVIRONMENT("LIBAGENT_FREQUENCY=fast", "LIBAGENT_FOO=1", "LIBAGENT_LOG=error", variable));
    CHECK_SILENT();
    char text[1024];
    ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_gt(length, 0);
    text[length] = 0;
    ck_assert_int_eq(lines_of(text), 1); /* the warning about FOO is below the level */
    ck_assert_ptr_nonnull(strstr(text, "LIBAGENT_FREQUENCY=fast"));
    unlink(path);
    close(fd);
}
END_TEST

START_TEST(unknown_variables_are_told_with_what_was_meant)
{
    load(ENVIRONMENT("NOT_LIBAGENT_X=1", "LIBAGENT_freqency=LIBAGENT_", "LIBAGENT=1"));
    ck_assert_str_eq(logged(), "libagent: warn: LIBAGENT_freqency is not an option; "
                               "LIBAGENT_FREQUENCY is\n");
    ck_assert(options_ok(PART_ALL));
    load(ENVIRONMENT("LIBAGENT_SO=/opt/libagent.so"));
    ck_assert_str_eq(logged(), "libagent: warn: LIBAGENT_SO is not an option; "
                               "LIBAGENT_HELP=1 lists them\n");
    ck_assert(options_ok(PART_ALL));
}
END_TEST

START_TEST(unknown_variables_are_bounded)
{
    static char names[12][600];
    char *environment[13] = {NULL};
    for (int i = 0; i < 12; i++) {
        memset(names[i], 'X', sizeof(names[i]) - 1);
        memcpy(names[i], "LIBAGENT_", 9);
        names[i][9] = (char)('a' + i);
        environment[i] = names[i]; /* without an equal sign at that */
    }
    load(environment);
    const char *text = logged();
    ck_assert_int_eq(lines_of(text), 8);
    ck_assert_uint_lt(strlen(text), 8 * 200);
}
END_TEST

START_TEST(service_falls_back)
{
    load(ENVIRONMENT("PYROSCOPE_APPLICATION_NAME=p", "DD_SERVICE=d", "OTEL_SERVICE_NAME=o",
                     "LIBAGENT_SERVICE=s"));
    ck_assert_str_eq(options.service, "s");
    load(ENVIRONMENT("PYROSCOPE_APPLICATION_NAME=p", "DD_SERVICE=d", "OTEL_SERVICE_NAME=o"));
    ck_assert_str_eq(options.service, "o");
    load(ENVIRONMENT("PYROSCOPE_APPLICATION_NAME=p", "DD_SERVICE=d"));
    ck_assert_str_eq(options.service, "d");
    load(ENVIRONMENT("PYROSCOPE_APPLICATION_NAME=p"));
    ck_assert_str_eq(options.service, "p");
    CHECK_SILENT();
}
END_TEST

static bool selected(char *const *environment)
{
    return options_select(environment, false, NAMES("python3.11", "python3"), 0.5);
}

START_TEST(processes_are_selected_by_name)
{
    ck_assert(selected(ENVIRONMENT()));
    ck_assert(selected(ENVIRONMENT("LIBAGENT_PROCESSES=python3.11")));
    ck_assert(selected(ENVIRONMENT("LIBAGENT_PROCESSES=python3")));
    ck_assert(selected(ENVIRONMENT("LIBAGENT_PROCESSES=redis*, *3.1? ,x")));
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_PROCESSES=redis*,python")));
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_PROCESSES=/usr/bin/python3")));
    ck_assert(options_select(ENVIRONMENT("LIBAGENT_PROCESSES=p"), false, NAMES("p", NULL), 0));
    ck_assert(!options_select(ENVIRONMENT("LIBAGENT_PROCESSES=p"), false, NAMES("q", NULL), 0));
    CHECK_SILENT();
}
END_TEST

START_TEST(processes_are_selected_by_chance)
{
    ck_assert(selected(ENVIRONMENT("LIBAGENT_PROCESS_RATE=0.51")));
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_PROCESS_RATE=0.5")));
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_PROCESS_RATE=0")));
    ck_assert(options_select(ENVIRONMENT(), false, NAMES("p", "p"), 0.999999999));
    ck_assert(!options_select(ENVIRONMENT("LIBAGENT_PROCESS_RATE=0"), false, NAMES("p", "p"), 0));
    CHECK_SILENT();
}
END_TEST

static int calls_seen;
static bool count_calls(long number, const long args[6], long *result)
{
    (void)number;
    (void)args;
    (void)result;
    calls_seen++;
    return false;
}

START_TEST(a_process_that_is_left_alone_reads_nothing_else)
{
    sys_override = count_calls;
    static const char *const off[] = {"LIBAGENT_ENABLED=0", "LIBAGENT_ENABLED=false"};
    for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
        char copy[64];
        snprintf(copy, sizeof(copy), "%s", off[i]);
        ck_assert(!selected(ENVIRONMENT(copy, "LIBAGENT_PROCESS_RATE=wrong", "LIBAGENT_FOO=1",
                                        "LIBAGENT_LOG_FILE=/no/such/file")));
    }
    ck_assert(!options_select(ENVIRONMENT("LIBAGENT_ENABLED=wrong"), true, NAMES("p", "p"), 0));
    ck_assert(!selected(
        ENVIRONMENT("LIBAGENT_PROCESSES=other", "LIBAGENT_PROCESS_RATE=x", "LIBAGENT_LOG=x")));
    ck_assert(selected(ENVIRONMENT("LIBAGENT_LOG=x", "LIBAGENT_FOO=1")));
    sys_override = NULL;
    ck_assert_int_eq(calls_seen, 0); /* no system call at all */
    CHECK_SILENT();
}
END_TEST

START_TEST(a_wrong_value_selects_nothing)
{
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_ENABLED=maybe")));
    ck_assert_str_eq(logged(),
                     "libagent: error: LIBAGENT_ENABLED=maybe is not understood: it "
                     "takes 0, 1, false, true, no, yes, off or on; nothing is profiled\n");
    ck_assert(!selected(ENVIRONMENT("LIBAGENT_PROCESS_RATE=half")));
    ck_assert_int_eq(lines_of(logged()), 1);
    ck_assert(!options_ok(PART_ALL));
}
END_TEST

START_TEST(environment_get_takes_whole_names)
{
    char *const *environment = ENVIRONMENT("AB=1", "ABC=2", "A", "A=3", "B=");
    ck_assert_str_eq(environment_get(environment, "A"), "3");
    ck_assert_str_eq(environment_get(environment, "ABC"), "2");
    ck_assert_str_eq(environment_get(environment, "B"), "");
    ck_assert_ptr_null(environment_get(environment, "C"));
    ck_assert_ptr_null(environment_get(NULL, "A"));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("options");
    TCase *loading = tcase_create("load");
    tcase_add_checked_fixture(loading, setup, NULL);
    tcase_add_test(loading, defaults);
    tcase_add_test(loading, given_values);
    tcase_add_test(loading, a_variable_set_to_nothing_is_not_set);
    tcase_add_test(loading, values_are_copies);
    tcase_add_test(loading, the_first_of_two_values_counts_as_with_getenv);
    tcase_add_test(loading, wrong_values_switch_their_part_off);
    tcase_add_test(loading, texts_have_a_longest);
    tcase_add_test(loading, a_long_wrong_value_leaves_room_for_what_is_accepted);
    tcase_add_test(loading, each_wrong_value_is_said);
    tcase_add_test(loading, the_log_is_set_up_before_the_first_complaint);
    tcase_add_test(loading, unknown_variables_are_told_with_what_was_meant);
    tcase_add_test(loading, unknown_variables_are_bounded);
    tcase_add_test(loading, service_falls_back);
    tcase_add_test(loading, environment_get_takes_whole_names);
    suite_add_tcase(suite, loading);
    TCase *selecting = tcase_create("select");
    tcase_add_checked_fixture(selecting, setup, NULL);
    tcase_add_test(selecting, processes_are_selected_by_name);
    tcase_add_test(selecting, processes_are_selected_by_chance);
    tcase_add_test(selecting, a_process_that_is_left_alone_reads_nothing_else);
    tcase_add_test(selecting, a_wrong_value_selects_nothing);
    suite_add_tcase(suite, selecting);
    return suite;
}
