/* What a program sees of its own process, by its own calls and in /proc, at several points of its
 * life: the same as without the agent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

/* Both runs in one folder, since the program prints its environment, descriptors and folders. */
static char folder[TEMP_PATH_SIZE];

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "visible")));
}

static void remove_file(const char *name, int (*remove_it)(const char *))
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    (void)remove_it(path); /* if it is there */
}

static void run_case(struct run *run, const char *name, const char *period, bool with_agent)
{
    remove_file("below", rmdir);
    remove_file("ours", unlink);
    run_program(run,
                &(struct run_request){
                    .program = "harm_visible",
                    .arguments = (const char *[]){name, NULL},
                    .environment = (const char *[]){"LIBAGENT_FREQUENCY=1000",
                                                    "LIBAGENT_ALLOC_INTERVAL=16KiB", period, NULL},
                    .without_agent = !with_agent,
                    .folder = folder,
                    .seconds = 60});
}

/* The most threads of the agent that the program saw. */
static long most_threads(void)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/ours", folder);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    long most = 0, lines = 0;
    for (long number; fscanf(file, "%ld", &number) == 1; lines++)
        most = number > most ? number : most;
    fclose(file);
    ck_assert_int_gt(lines, 0);
    return most;
}

static const char *line_of(const char *text, const char *at, char *line, size_t size)
{
    while (at > text && at[-1] != '\n')
        at--;
    snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
    return at;
}

/* The outputs are long: tells the first line that differs, and under which headings it stands. */
static void expect_same(const struct run *with, const struct run *without)
{
    const char *a = with->out, *b = without->out;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a != *b) {
        char first[256], second[256], where[256] = "", of[256] = "";
        const char *line = line_of(with->out, a, first, sizeof(first));
        line_of(without->out, b, second, sizeof(second));
        while (line > with->out && !where[0]) {
            line = line_of(with->out, line - 1, where, sizeof(where));
            if (!of[0] && strncmp(where, "status of", 9) == 0)
                strcpy(of, where);
            if (strncmp(where, "==== ", 5) != 0)
                where[0] = 0;
        }
        ck_abort_msg("%s %s:\nwith:    %s\nwithout: %s\n%.1000s", where, of, first, second,
                     with->err);
    }
    run_expect_same(with, without);
}

static void finish(struct run *with, struct run *without)
{
    struct profile profile;
    profile_load(&profile, with->profiles, "cpu", 0);
    /* A tick at least: where several programs want a processor the kernel may give a thread none in
     * 0.2 s of its time on end. */
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "work"), 1000000);
    profile_free(&profile);
    profile_load(&profile, with->profiles, "heap", 0);
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "work"), 0);
    profile_free(&profile);
    run_free(without);
    with->own_folder = true;
    run_free(with);
}

static long expect_same_as_without(const char *name, const char *period)
{
    struct run with, without;
    make_folder();
    run_case(&without, name, period, false);
    run_expect_quiet_success(&without);
    ck_assert_int_eq(most_threads(), 0);
    run_case(&with, name, period, true);
    expect_same(&with, &without);
    long most = most_threads();
    finish(&with, &without);
    return most;
}

START_TEST(test_life)
{
    ck_assert_int_eq(expect_same_as_without("live", "LIBAGENT_PERIOD=60s"), 0);
}
END_TEST

/* After the first period the agent has threads, which are not in the program's view of itself. */
START_TEST(test_life_with_threads_of_the_agent)
{
    ck_assert_int_ge(expect_same_as_without("live", "LIBAGENT_PERIOD=1s"), 1);
}
END_TEST

START_TEST(test_threads_that_block_all)
{
    expect_same_as_without("block", "LIBAGENT_PERIOD=60s");
}
END_TEST

START_TEST(test_signal_that_is_ignored)
{
    expect_same_as_without("ignore", "LIBAGENT_PERIOD=60s");
}
END_TEST

START_TEST(test_start_with_the_signal_ignored)
{
    expect_same_as_without("start-ignored", "LIBAGENT_PERIOD=60s");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_visible");
    TCase *tcase = tcase_create("visible");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, test_life);
    tcase_add_test(tcase, test_life_with_threads_of_the_agent);
    tcase_add_test(tcase, test_threads_that_block_all);
    tcase_add_test(tcase, test_signal_that_is_ignored);
    tcase_add_test(tcase, test_start_with_the_signal_ignored);
    suite_add_tcase(suite, tcase);
    return suite;
}
