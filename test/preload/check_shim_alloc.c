/* The allocation functions answer as they would without us, over each allocator, for callers in
 * any state. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const char *const allocators[] = {"", "libjemalloc.so.2", "libtcmalloc.so.4",
                                         "libmimalloc.so.2"};
/* libjemalloc has no pvalloc. */
static const char *const arguments[][2] = {{NULL}, {"without-pvalloc", NULL}, {NULL}, {NULL}};
enum { ALLOCATORS = sizeof(allocators) / sizeof(allocators[0]) };

static void expect_same_output(const char *program, int allocator, const char *interval)
{
    struct run with, without;
    struct run_request request = {.program = program,
                                  .arguments = arguments[allocator],
                                  .environment = (const char *[]){interval, NULL},
                                  .beside = allocators[allocator]};
    run_program(&with, &request);
    request.without_agent = true;
    run_program(&without, &request);
    run_expect_same(&with, &without);
    run_expect_quiet_success(&with);
    run_free(&with);
    run_free(&without);
}

START_TEST(test_edges_with_every_call_recorded)
{
    expect_same_output("semantics", _i, "LIBAGENT_ALLOC_INTERVAL=1");
}
END_TEST

START_TEST(test_edges_with_few_calls_recorded)
{
    expect_same_output("semantics", _i, "LIBAGENT_ALLOC_INTERVAL=512KiB");
}
END_TEST

START_TEST(test_edges_without_allocation_profile)
{
    expect_same_output("semantics", _i, "LIBAGENT_PROFILES=cpu");
}
END_TEST

START_TEST(test_malloc_in_the_program)
{
    expect_same_output("own_malloc", _i, "LIBAGENT_ALLOC_INTERVAL=1");
}
END_TEST

/* The allocator's malloc is the program's then, and one line says how to have it otherwise. */
START_TEST(test_allocator_before_us)
{
    char preload[4200], line[200];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s %s", allocators[_i], run_agent_path());
    snprintf(line, sizeof(line),
             "libagent: warn: allocations are not seen: malloc is that of %s, which stands before "
             "libagent.so in LD_PRELOAD; behind it they are\n",
             allocators[_i]);
    for (int quiet = 0; quiet < 2; quiet++) {
        struct run run;
        run_program(&run, &(struct run_request){
                              .program = "semantics",
                              .arguments = arguments[_i],
                              .environment = (const char *[]){
                                  preload, quiet ? "LIBAGENT_PROFILES=cpu" : "NO_OPTION=", NULL}});
        run_expect_success(&run);
        ck_assert_str_eq(run.err, quiet ? "" : line);
        run_free(&run);
    }
}
END_TEST

START_TEST(test_program_with_a_sanitizer)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){.program = "gcc_sanitized"});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "1\n");
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "burn"), 0.4e9);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_dlsym_that_allocates)
{
    expect_same_output("own_dlsym", _i, "LIBAGENT_ALLOC_INTERVAL=1");
}
END_TEST

START_TEST(test_small_stacks)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){.program = "small_stacks",
                                            .arguments = (const char *[]){"1000", NULL},
                                            .environment =
                                                (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1",
                                                                 "LIBAGENT_FREQUENCY=1000", NULL}});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "done\n");
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), 0.95e9 * run.cpu_seconds);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "coroutine"), 500000000);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "handle"), 50000000);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "on_smallest_stack"), 50000000);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_alloc");
    TCase *tcase = tcase_create("allocation functions");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_edges_with_every_call_recorded, 0, ALLOCATORS);
    tcase_add_loop_test(tcase, test_edges_with_few_calls_recorded, 0, ALLOCATORS);
    tcase_add_loop_test(tcase, test_edges_without_allocation_profile, 0, ALLOCATORS);
    tcase_add_loop_test(tcase, test_malloc_in_the_program, 0, ALLOCATORS);
    tcase_add_loop_test(tcase, test_allocator_before_us, 1, ALLOCATORS);
    tcase_add_test(tcase, test_program_with_a_sanitizer);
    tcase_add_loop_test(tcase, test_dlsym_that_allocates, 0, ALLOCATORS);
    tcase_add_test(tcase, test_small_stacks);
    suite_add_tcase(suite, tcase);
    return suite;
}
