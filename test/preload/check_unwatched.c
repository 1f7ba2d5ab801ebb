/* Objects that come past the wrapper of dlopen, or whose code runs before it has returned, are
 * walked from the first samples on. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_expect.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

static char folder[TEMP_PATH_SIZE];

static void setup(void)
{
    static const char *const objects[][2] = {{"unwatched", "program"},
                                             {"deep_plugin", "sub/libdeep.so"},
                                             {"other_plugin", "sub/libother.so"},
                                             {"constructor_plugin", "sub/libconstructor.so"}};
    char command[2 * PATH_MAX];
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "unwatched")));
    snprintf(command, sizeof(command), "mkdir %s/sub", folder);
    ck_assert_int_eq(system(command), 0);
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        snprintf(command, sizeof(command), "cp '%s' %s/%s", run_program_path(objects[i][0]), folder,
                 objects[i][1]);
        ck_assert_int_eq(system(command), 0);
    }
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void run_case(struct run *run, const char *name, const char *object)
{
    char program[128];
    snprintf(program, sizeof(program), "%s/program", folder);
    run_program(run, &(struct run_request){.program = program,
                                           .arguments = (const char *[]){name, object, NULL},
                                           .environment =
                                               (const char *[]){"LIBAGENT_FREQUENCY=250", NULL}});
    run_expect_quiet_success(run);
}

/* Value under `bottom` of the stacks that are whole and have their leaf in an object whose path
 * has `object` in it; *all gets that of all stacks with such a leaf. */
static int64_t whole_in(const struct profile *profile, int value, const char *object,
                        const char *bottom, int64_t *all)
{
    int64_t whole = 0;
    *all = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if (stack_is_pseudo(stack) || !strstr(stack->frames[0].object, object))
            continue;
        *all += stack->values[value];
        if (stack_is_whole(stack) && stack_has(stack, bottom))
            whole += stack->values[value];
    }
    return whole;
}

/* Counted, as the time of one sample may be what ticks missed. */
static void expect_whole(const struct run *run, const char *object, const char *bottom,
                         int64_t least)
{
    struct profile profile;
    int64_t all;
    profile_load(&profile, run->profiles, "cpu", run->pid);
    int64_t whole = whole_in(&profile, CPU_SAMPLES, object, bottom, &all);
    fprintf(stderr, "%s: %lld of %lld samples whole\n", object, (long long)whole, (long long)all);
    if (whole != all)
        profile_print(&profile, CPU_SAMPLES, true, 5);
    ck_assert_int_ge(all, least);
    ck_assert_int_eq(whole, all);
    profile_free(&profile);
}

START_TEST(test_loaded_by_libc_itself)
{
    struct run run;
    run_case(&run, "iconv", NULL);
    expect_whole(&run, "/gconv/", "convert", 20);
    run_free(&run);
}
END_TEST

START_TEST(test_loaded_by_an_object_bound_to_libc)
{
    struct run run;
    run_case(&run, "deepbind", NULL);
    expect_whole(&run, "/libother.so", "deep_work", 20);
    run_free(&run);
}
END_TEST

/* Opened by a path, inside the wrapper, and by a name, where no frame of ours is in between. */
START_TEST(test_constructors)
{
    static const char *const names[] = {"sub/libconstructor.so", "libconstructor.so"};
    char path[128];
    struct run run;
    struct profile profile;
    snprintf(path, sizeof(path), "%s/%s", folder, names[_i]);
    run_case(&run, "constructor", _i ? names[_i] : path);
    expect_whole(&run, "/libconstructor.so", "constructor", 10);
    int64_t all;
    profile_load(&profile, run.profiles, "heap", run.pid);
    int64_t whole = whole_in(&profile, ALLOC_BYTES, "/libconstructor.so", "constructor", &all);
    fprintf(stderr, "%lld of %lld bytes whole\n", (long long)whole, (long long)all);
    /* 100 MB at a sample for each 512 KiB: 190 samples with a deviation of 14. */
    ck_assert_int_ge(all, 50000000);
    ck_assert_int_eq(whole, all);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("unwatched");
    TCase *tcase = tcase_create("unwatched");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_loaded_by_libc_itself);
    tcase_add_test(tcase, test_loaded_by_an_object_bound_to_libc);
    tcase_add_loop_test(tcase, test_constructors, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
