/* `go tool pprof`, the reader that everyone has, takes what the agent writes. Where go is not
 * installed only our own reader is asked (the other suites). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static bool has_go(void)
{
    return system("command -v go > /dev/null 2>&1") == 0;
}

/* The report of `go tool pprof MODE FILE`. */
static void report(struct run *run, const char *mode, const char *file)
{
    char command[2 * PATH_MAX], home[PATH_MAX];
    const char *own_home = getenv("HOME");
    snprintf(command, sizeof(command), "exec go tool pprof -symbolize=none %s '%s'", mode, file);
    /* go keeps its build cache there, and builds pprof once. */
    snprintf(home, sizeof(home), "HOME=%s", own_home ? own_home : "/tmp");
    run_program(run, &(struct run_request){.program = "/bin/sh",
                                           .arguments = (const char *[]){"-c", command, NULL},
                                           .environment = (const char *[]){home, NULL},
                                           .without_agent = true,
                                           .seconds = 150});
    run_expect_success(run);
}

static void expect_read(const char *folder, const char *family, const char *function,
                        const char *types)
{
    struct profile profile;
    struct run raw, top;
    profile_load(&profile, folder, family, 0);
    ck_assert_uint_eq(profile.file_count, 1);
    report(&raw, "-raw", profile.paths[0]);
    ck_assert_msg(strstr(raw.out, types) != NULL, "%.500s", raw.out);
    ck_assert_ptr_nonnull(strstr(raw.out, "thread name"));
    /* Of what is live the program has nothing left: asked for what it allocated. */
    bool is_heap = strcmp(family, "heap") == 0;
    report(&top, is_heap ? "-top -sample_index=alloc_space" : "-top", profile.paths[0]);
    ck_assert_msg(strstr(top.out, function) != NULL, "%.2000s", top.out);
    run_free(&raw);
    run_free(&top);
    profile_free(&profile);
}

START_TEST(test_go_tool_pprof_reads_both_families)
{
    if (!has_go())
        return;
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "recursion",
                          .arguments = (const char *[]){"malloc", "1500", "thread", NULL}});
    run_expect_quiet_success(&run);
    expect_read(run.profiles, "cpu", "leaf_malloc", "samples/count cpu/nanoseconds");
    expect_read(
        run.profiles, "heap", "leaf_malloc",
        "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]");
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("pprof");
    TCase *tcase = tcase_create("go tool pprof");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_go_tool_pprof_reads_both_families);
    suite_add_tcase(suite, tcase);
    return suite;
}
