/* dlopen finds for each caller what it finds without us, and what was closed keeps its name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_expect.h"
#include "test/preload/run_pair.h"
#include "test/temp_path.h"

static char folder[TEMP_PATH_SIZE];

static void setup(void)
{
    char command[4 * PATH_MAX], program[PATH_MAX], plugin[PATH_MAX];
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "dlopen")));
    snprintf(program, sizeof(program), "%s", run_program_path("dlopen"));
    snprintf(plugin, sizeof(plugin), "%s", run_program_path("plugin"));
    snprintf(command, sizeof(command),
             "cd %s && mkdir -p sub/deeper && cp '%s' program && cp '%s' sub/libplugin.so && "
             "cp '%s' sub/deeper/libother.so && cp sub/libplugin.so sub/deeper/libthird.so && "
             "gcc -shared -o sub/libchain.so -Wl,--no-as-needed sub/deeper/libother.so "
             "-Wl,-rpath,'$ORIGIN/deeper' -Wl,--disable-new-dtags",
             folder, program, plugin, run_program_path("other_plugin"));
    ck_assert_int_eq(system(command), 0);
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void run_case(struct run *run, const char *name, const char *rounds, bool with_agent)
{
    char program[128];
    snprintf(program, sizeof(program), "%s/program", folder);
    run_program(
        run, &(struct run_request){.program = program,
                                   .arguments = (const char *[]){name, rounds, NULL},
                                   .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1KiB",
                                                                   "LIBAGENT_FREQUENCY=250", NULL},
                                   .folder = folder,
                                   .without_agent = !with_agent});
    ck_assert_msg(run->err_size == 0, "%s", run->err);
}

START_TEST(test_callers_run_path)
{
    struct run with, without;
    run_case(&with, "look-ups", "", true);
    run_case(&without, "look-ups", "", false);
    run_expect_same(&with, &without);
    ck_assert_ptr_nonnull(strstr(without.out, "by the program's RUNPATH: opened"));
    ck_assert_ptr_nonnull(strstr(without.out, "by the plugin's RUNPATH: opened"));
    ck_assert_ptr_nonnull(strstr(without.out, "from the plugin's folder: opened"));
    ck_assert_ptr_nonnull(strstr(without.out, "from the program's folder: opened"));
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_run_path_of_who_loaded_the_caller)
{
    struct run with, without;
    run_case(&with, "chain", "", true);
    run_case(&without, "chain", "", false);
    run_expect_same(&with, &without);
    ck_assert_ptr_nonnull(strstr(without.out, "by its loader's RPATH: opened"));
    ck_assert_ptr_nonnull(strstr(without.out, "who has no path: opened"));
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Work in phases of 1 to 22 ms, sampled each 4: an object's share errs at the ends of its 200
 * phases by a tick at most, 200 * 4 ms / sqrt(12) / sqrt(200) = 16 ms of about 2.2 s. On a busy
 * machine ticks miss the thread for some 0.2 s now and then, which is 0.23 s seen at five programs
 * a processor. Nothing may fall to the wrong one: that would be half of it. */
START_TEST(test_closed_objects_keep_their_names)
{
    struct run run;
    struct profile profile;
    run_case(&run, "turns", "200", true);
    run_expect_success(&run);
    ck_assert_int_ge(run_number(&run, "same"), 10); /* addresses were used again */
    profile_load(&profile, run.profiles, "cpu", run.pid);
    static const char *const functions[] = {"plugin_work", "other_plugin_work"};
    for (int i = 0; i < 2; i++) {
        double truth = (double)run_number(&run, functions[i]);
        double seen = (double)profile_under(&profile, CPU_NS, functions[i]);
        fprintf(stderr, "%s: %.3f of the truth\n", functions[i], seen / truth);
        ck_assert_double_le(fabs(seen - truth), 0.4e9);
    }
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Nothing of ours holds a closed object's file, or reads it where others may cut it short. No
 * symbol is left, and all addresses of the function have one name all the same. */
START_TEST(test_closed_object_whose_file_is_cut_short)
{
    struct run run;
    struct profile profile;
    char name[64];
    run_case(&run, "cut", "", true);
    run_expect_success(&run);
    ck_assert_int_eq(run_number(&run, "mapped"), 0);
    snprintf(name, sizeof(name), "libplugin.so+0x%llx", (long long)run_number(&run, "start"));
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t truth = run_number(&run, "plugin_work");
    ck_assert_int_ge(profile_under(&profile, CPU_NS, name), truth / 10 * 9);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_many_open_and_close_at_once)
{
    struct run run;
    struct profile profile;
    run_case(&run, "crowd", "20000", true);
    run_expect_success(&run);
    ck_assert_int_eq(run_number(&run, "failed:"), 0);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    double whole = profile_whole_share(&profile, CPU_NS);
    fprintf(stderr, "whole: %.4f\n", whole);
    if (whole < 0.98)
        profile_print(&profile, CPU_NS, true, 5);
    ck_assert_double_ge(whole, 0.98);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Compares how much resident memory grows in the last 24,000 of 36,000 rounds (libc itself loses
 * some 100 bytes in each): no more than by 43 bytes for each, less than anything that we keep of an
 * object. What was done there is in the profile. */
START_TEST(test_loop_of_open_and_close_leaves_nothing)
{
    struct run with, without;
    struct profile profile;
    run_case(&with, "loop", "36000", true);
    run_case(&without, "loop", "36000", false);
    run_expect_success(&with);
    run_expect_success(&without);
    ck_assert_int_eq(run_number(&with, "failed:"), 0);
    int64_t growth = run_number(&with, "late-rss-kib") - run_number(&with, "early-rss-kib");
    int64_t alone = run_number(&without, "late-rss-kib") - run_number(&without, "early-rss-kib");
    fprintf(stderr, "resident memory grew by %lld KiB, without by %lld\n", (long long)growth,
            (long long)alone);
    ck_assert_int_le(growth, alone + 1024);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "plugin_work"), 50000000);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* The loader's lock is held by who waits for a thread that we may not make wait for it. */
START_TEST(test_nobody_waits_for_the_loader)
{
    struct run_pair pair;
    run_pair(&pair,
             &(struct run_request){.program = "loader_waits",
                                   .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=16KiB",
                                                                   "LIBAGENT_PERIOD=1s", NULL},
                                   .seconds = 60});
    ck_assert_str_eq(pair.without.out, "walked 7\n");
    profile_expect(pair.with.profiles, "cpu", pair.with.pid, 0.9,
                   (const struct expectation[]){{"work", 0.5}, {NULL, 0}});
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_dlopen");
    TCase *tcase = tcase_create("dlopen");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_callers_run_path);
    tcase_add_test(tcase, test_run_path_of_who_loaded_the_caller);
    tcase_add_test(tcase, test_closed_objects_keep_their_names);
    tcase_add_test(tcase, test_closed_object_whose_file_is_cut_short);
    tcase_add_test(tcase, test_many_open_and_close_at_once);
    tcase_add_test(tcase, test_nobody_waits_for_the_loader);
    tcase_add_test(tcase, test_loop_of_open_and_close_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
