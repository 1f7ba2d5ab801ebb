/* LIBAGENT_UNWINDER: each way to walk gives the right stacks in whole programs, the profile tells
 * which one was used, and libunwind stays out of the program's sight. That its walks are few
 * enough to be left to cfi is told by the storm (check_storm). */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/run_pair.h"
#include "test/preload/stack_shapes.h"
#include "test/temp_path.h"

enum { CPU_MS = 400 };

START_TEST(test_shapes_by_libunwind)
{
    shape_expect_cpu("recursion", &shapes[_i], CPU_MS, "libunwind");
}
END_TEST

START_TEST(test_shapes_by_frame_pointers)
{
    shape_expect_cpu("recursion_records", &shapes[_i], CPU_MS, "fp");
}
END_TEST

static void expect_allocations(const char *program, const char *unwinder)
{
    static const struct shape shape = {"malloc", 0, SHAPE_DEPTH, 0};
    struct run run;
    struct profile profile;
    shape_start(&run, program, shape.leaf, CPU_MS, "thread",
                (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=64KiB",
                                 unwinder, NULL});
    run_wait(&run);
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "heap", run.pid);
    shape_expect(&profile, &shape, ALLOC_BYTES, "thread");
    /* The leaf is who called malloc. */
    ck_assert_int_eq(profile_self(&profile, ALLOC_BYTES, "leaf_malloc"),
                     profile_under(&profile, ALLOC_BYTES, "leaf_malloc"));
    profile_free(&profile);
    run_free(&run);
}

START_TEST(test_allocations)
{
    expect_allocations("recursion", "LIBAGENT_UNWINDER=libunwind");
    expect_allocations("recursion_records", "LIBAGENT_UNWINDER=fp");
}
END_TEST

/* Samples whose stack has `inner`; *both: those that are whole and have `outer`, too. */
static int64_t reaches(const struct run_request *request, const char *inner, const char *outer,
                       int64_t *both)
{
    struct run run;
    struct profile profile;
    int64_t under = 0;
    *both = 0;
    run_program(&run, request);
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        if (!stack_has(stack, inner))
            continue;
        under += stack->values[CPU_SAMPLES];
        if (stack_has(stack, outer) && stack_is_whole(stack))
            *both += stack->values[CPU_SAMPLES];
    }
    profile_free(&profile);
    run_free(&run);
    ck_assert_int_ge(under, 5);
    return under;
}

static int64_t reaches_over_liar(const char *unwinder, int64_t *both)
{
    return reaches(
        &(struct run_request){.program = "lying_tables",
                              .arguments = (const char *[]){"500", NULL},
                              .environment = (const char *[]){unwinder, "LIBAGENT_PROFILES=cpu",
                                                              "LIBAGENT_FREQUENCY=250", NULL}},
        "under_liar", "above_liar", both);
}

START_TEST(test_records_alone_are_followed)
{
    int64_t both;
    reaches_over_liar("LIBAGENT_UNWINDER=cfi", &both);
    ck_assert_int_eq(both, 0);
    int64_t under = reaches_over_liar("LIBAGENT_UNWINDER=fp", &both);
    ck_assert_int_eq(both, under);
}
END_TEST

START_TEST(test_register_that_holds_something_else)
{
    static const char *const places[] = {"above", "stack"};
    int64_t both;
    int64_t under = reaches(
        &(struct run_request){.program = "busy_register",
                              .arguments = (const char *[]){places[_i], "300", NULL},
                              .environment =
                                  (const char *[]){"LIBAGENT_UNWINDER=fp", "LIBAGENT_PROFILES=cpu",
                                                   "LIBAGENT_FREQUENCY=250", NULL}},
        "under_keeper", "above_keeper", &both);
    ck_assert_int_eq(both, under);
}
END_TEST

/* ---- libunwind is the agent's alone ---- */

static const char *const by_libunwind[] = {"LIBAGENT_UNWINDER=libunwind", "LIBAGENT_FREQUENCY=250",
                                           "LIBAGENT_ALLOC_INTERVAL=4KiB", NULL};

START_TEST(test_programs_unwinding_is_its_own)
{
    struct run run;
    run_program(&run, &(struct run_request){.program = "whose_unwinder",
                                            .arguments = (const char *[]){"300", NULL},
                                            .environment = by_libunwind});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "error none\n"
                              "caught 1\n"
                              "frames 1\n"
                              "linked libgcc_s.so.1\n"
                              "linked_backtrace libc.so.6\n"
                              "named libgcc_s.so.1\n"
                              "named_backtrace libc.so.6\n"
                              "next unseen\n"
                              "libunwind there\n");
    run_free(&run);
}
END_TEST

/* libgcc_s comes after libunwind here. */
START_TEST(test_plugin_of_c_program_throws)
{
    struct run_pair pair;
    char layer[PATH_MAX];
    snprintf(layer, sizeof(layer), "%s", run_program_path("throw_layer"));
    run_pair(&pair, &(struct run_request){.program = "c_opens_throws",
                                          .arguments = (const char *[]){layer, "50000", NULL},
                                          .environment = by_libunwind});
    run_expect_quiet_success(&pair.without);
    ck_assert_ptr_nonnull(strstr(pair.without.out, "caught 50000, destroyed 300000\n"));
    struct profile profile;
    profile_load(&profile, pair.with.profiles, "cpu", pair.with.pid);
    ck_assert(profile_has_comment(&profile, "libagent: unwinder: libunwind"));
    int64_t raises = 0;
    for (size_t i = 0; i < profile.stack_count; i++)
        for (uint32_t k = 0; k < profile.stacks[i].depth; k++)
            if (strcmp(profile.stacks[i].frames[k].function, "_Unwind_RaiseException") == 0) {
                ck_assert_ptr_nonnull(strstr(profile.stacks[i].frames[k].object, "/libgcc_s.so"));
                raises++;
            }
    ck_assert_int_ge(raises, 1);
    profile_free(&profile);
    run_pair_free(&pair);
}
END_TEST

/* Files of its names are found first, but are no libraries. */
START_TEST(test_libunwind_is_not_there)
{
    static const char *const names[] = {"libunwind-x86_64.so.8", "libunwind-x86_64.so"};
    char folder[TEMP_PATH_SIZE], path[2 * TEMP_PATH_SIZE], search[2 * TEMP_PATH_SIZE];
    struct run run;
    struct profile profile;
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "absent")));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs("no library\n", file);
        fclose(file);
    }
    snprintf(search, sizeof(search), "LD_LIBRARY_PATH=%s", folder);
    run_program(&run,
                &(struct run_request){.program = "whose_unwinder",
                                      .arguments = (const char *[]){"300", NULL},
                                      .environment = (const char *[]){
                                          "LIBAGENT_UNWINDER=libunwind", "LIBAGENT_PROFILES=alloc",
                                          "LIBAGENT_ALLOC_INTERVAL=4KiB", search, NULL}});
    run_expect_success(&run);
    ck_assert_str_eq(
        run.err,
        "libagent: warn: LIBAGENT_UNWINDER=libunwind: libunwind-x86_64.so.8 is not installed "
        "(Debian: libunwind8): stacks "
        "are walked by cfi\n");
    ck_assert_ptr_nonnull(strstr(run.out, "error none\ncaught 1\n"));
    ck_assert_ptr_nonnull(strstr(run.out, "libunwind absent\n"));
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert(profile_has_comment(&profile, "libagent: unwinder: cfi"));
    /* Allocations: of those it has as many as it throws, however little time it is given. */
    ck_assert_int_ge(profile_under(&profile, ALLOC_OBJECTS, "__cxa_allocate_exception"), 1);
    profile_free(&profile);
    run_free(&run);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        remove(path);
    }
    remove(folder);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("unwinders");
    TCase *tcase = tcase_create("unwinders");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_shapes_by_libunwind, 0, SHAPE_COUNT);
    tcase_add_loop_test(tcase, test_shapes_by_frame_pointers, 0, SHAPE_COUNT);
    tcase_add_test(tcase, test_allocations);
    tcase_add_test(tcase, test_records_alone_are_followed);
    tcase_add_loop_test(tcase, test_register_that_holds_something_else, 0, 2);
    tcase_add_test(tcase, test_programs_unwinding_is_its_own);
    tcase_add_test(tcase, test_plugin_of_c_program_throws);
    tcase_add_test(tcase, test_libunwind_is_not_there);
    suite_add_tcase(suite, tcase);
    return suite;
}
