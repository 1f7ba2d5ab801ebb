/* Stacks of known shape (stack_shapes.h): 200 frames of recursion without frame pointers. */
#include <string.h>

#include "test/check.h"
#include "test/preload/stack_shapes.h"

enum { CPU_MS = 2000 };

START_TEST(test_cpu_samples)
{
    shape_expect_cpu("recursion", &shapes[_i], CPU_MS, "cfi");
}
END_TEST

/* The same program without .eh_frame_hdr, and with .debug_frame alone. */
START_TEST(test_tables_that_the_loader_does_not_know)
{
    static const char *const programs[] = {"recursion_no_hdr", "recursion_debug_frame"};
    static const char *const leaves[] = {"plt", "signal", "descent"};
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        if (strcmp(shapes[i].leaf, leaves[_i / 2]) == 0)
            shape_expect_cpu(programs[_i % 2], &shapes[i], CPU_MS, "cfi");
}
END_TEST

START_TEST(test_allocation_samples)
{
    static const struct shape shape = {"malloc", 0, SHAPE_DEPTH, 0};
    static const char *const places[] = {"main", "thread"};
    struct run runs[2];
    for (int i = 0; i < 2; i++)
        shape_start(
            &runs[i], "recursion", shape.leaf, CPU_MS, places[i],
            (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    for (int i = 0; i < 2; i++) {
        struct profile profile;
        run_wait(&runs[i]);
        run_expect_quiet_success(&runs[i]);
        profile_load(&profile, runs[i].profiles, "heap", runs[i].pid);
        shape_expect(&profile, &shape, ALLOC_BYTES, places[i]);
        /* The leaf is who called malloc. */
        ck_assert_int_eq(profile_self(&profile, ALLOC_BYTES, "leaf_malloc"),
                         profile_under(&profile, ALLOC_BYTES, "leaf_malloc"));
        profile_free(&profile);
        run_free(&runs[i]);
    }
}
END_TEST

START_TEST(test_stacks_cut_at_max_frames)
{
    struct run run;
    struct profile profile;
    shape_start(&run, "recursion", "compute", CPU_MS, "main",
                (const char *[]){"LIBAGENT_MAX_FRAMES=40", NULL});
    run_wait(&run);
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    for (size_t i = 0; i < profile.stack_count; i++)
        ck_assert_uint_le(profile.stacks[i].depth, 40);
    /* The innermost frames are those that stay. */
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, "leaf_compute"),
                        0.95 * (double)profile_total(&profile, CPU_NS));
    ck_assert(profile_has_comment(&profile, "stacks cut"));
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("stacks");
    TCase *tcase = tcase_create("stacks of known shape");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_cpu_samples, 0, SHAPE_COUNT);
    tcase_add_loop_test(tcase, test_tables_that_the_loader_does_not_know, 0, 6);
    tcase_add_test(tcase, test_allocation_samples);
    tcase_add_test(tcase, test_stacks_cut_at_max_frames);
    suite_add_tcase(suite, tcase);
    return suite;
}
