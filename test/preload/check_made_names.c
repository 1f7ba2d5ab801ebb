/* Names of code that is made at run time, as programs tell them to perf. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

/* Samples whose leaf's name has `part` in it, in window `file` (-1: all). */
static int64_t samples_of(const struct profile *profile, const char *part, int file)
{
    int64_t sum = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if ((file < 0 || stack->file == (uint32_t)file) && strstr(stack->frames[0].function, part))
            sum += stack->values[CPU_SAMPLES];
    }
    return sum;
}

static void remove_map(int pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", pid);
    unlink(path);
}

/* The file of a process whose number `name` has; windows are in the order of their names. */
static void expect_names(const struct profile *profile)
{
    uint32_t last = profile->file_count - 1;
    ck_assert_uint_ge(profile->file_count, 2);
    ck_assert_int_gt(samples_of(profile, "first made", 0), 10);
    ck_assert_int_eq(samples_of(profile, "second made", 0), 0);
    /* What was sampled behind the first window before the program saw its file, has the new name,
     * too: addresses are as of the window's end. */
    ck_assert_int_gt(samples_of(profile, "second made", -1), 10);
    ck_assert_int_eq(samples_of(profile, "first made", (int)last), 0);
    ck_assert_int_gt(samples_of(profile, "[jit]", -1), 10);
    ck_assert_int_eq(samples_of(profile, "[anon]", -1), 0);
}

START_TEST(a_map_that_grows)
{
    struct run run;
    struct profile profile;
    run_program(&run,
                &(struct run_request){.program = "made_names",
                                      .environment = (const char *[]){
                                          "LIBAGENT_PERIOD=1s", "LIBAGENT_PROFILES=cpu", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    expect_names(&profile);
    profile_free(&profile);
    remove_map(run.pid);
    run_free(&run);
}
END_TEST

/* In a namespace of its own the process has the number 1, and names its map so. */
START_TEST(in_a_namespace_of_process_numbers)
{
    if (geteuid() != 0)
        return;
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = "/usr/bin/unshare",
                          .arguments = (const char *[]){"--pid", "--fork",
                                                        run_program_path("made_names"), NULL},
                          .environment = (const char *[]){"LIBAGENT_PERIOD=1s",
                                                          "LIBAGENT_PROCESSES=prog_made_names",
                                                          "LIBAGENT_PROFILES=cpu", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", 1);
    expect_names(&profile);
    profile_free(&profile);
    remove_map(1);
    run_free(&run);
}
END_TEST

START_TEST(node)
{
    static const char script[] =
        "function busy(n) { let x = 1; for (let i = 0; i < n; i++) x = x * 31 + i | 0; return x; }"
        "let sum = 0; while (process.cpuUsage().user < 2e6) sum += busy(1000000); console.log(sum "
        "!= 0.5);";
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = "/usr/bin/node",
                          .arguments = (const char *[]){"--perf-basic-prof", "-e", script, NULL},
                          .environment = (const char *[]){"LIBAGENT_PROFILES=cpu", NULL}});
    run_expect_success(&run);
    ck_assert_str_eq(run.out, "true\n");
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t busy = samples_of(&profile, "busy", -1);
    if (busy < 20)
        profile_print(&profile, CPU_SAMPLES, false, 20);
    ck_assert_int_ge(busy, 20);
    profile_free(&profile);
    remove_map(run.pid);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("made_names");
    TCase *tcase = tcase_create("made names");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_map_that_grows);
    tcase_add_test(tcase, in_a_namespace_of_process_numbers);
    tcase_add_test(tcase, node);
    suite_add_tcase(suite, tcase);
    return suite;
}
