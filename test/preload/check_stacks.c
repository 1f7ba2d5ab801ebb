/* Stacks of known shape: 200 frames of recursion without frame pointers, above them whatever the
 * work is, below them main or a thread's start. No statistics: every sample must be right. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { DEPTH = 200, CPU_MS = 2000 };

struct shape {
    const char *leaf;
    double in_libc;   /* share of the leaves that must be in libc, at least */
    uint32_t between; /* frames of step and descend: all of DEPTH, or 0: up to them */
    double overhead;  /* share of the agent's own time, at most */
};

/* Here malloc is called 20 million times a second: what the hook takes is a few percent. */
static const struct shape shapes[] = {
    {"compute", 0, DEPTH, 0.03}, {"memcpy", 0.5, DEPTH, 0.03}, {"snprintf", 0.5, DEPTH, 0.03},
    {"malloc", 0.3, DEPTH, 0.2}, {"plt", 0.1, DEPTH, 0.03},    {"signal", 0, DEPTH, 0.03},
    {"descent", 0, 0, 0.03},
};

static bool ends_in_libc(const struct stack *stack)
{
    return strstr(stack->frames[0].object, "/libc.so.6") != NULL;
}

static void expect_shape(const struct profile *profile, const struct shape *shape, int value,
                         const char *where)
{
    char leaf[32];
    snprintf(leaf, sizeof(leaf), "leaf_%s", shape->leaf);
    const char *bottom = strcmp(where, "main") == 0 ? "main" : "work";
    int64_t right = 0, in_libc = 0, total = profile_total(profile, value), real = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if (stack_is_pseudo(stack))
            continue;
        real += stack->values[value];
        uint32_t between = stack_depth_of(stack, "descend") + stack_depth_of(stack, "step");
        bool in_leaf = stack_has(stack, leaf);
        if (!stack_is_whole(stack) || (in_leaf && shape->between && between != shape->between) ||
            between > DEPTH) {
            profile_print(profile, value, true, 3);
            ck_abort_msg("%s in %s: a stack of depth %u, %u frames of the recursion, %s",
                         shape->leaf, where, stack->depth, between,
                         stack_is_whole(stack) ? "whole" : "not whole");
        }
        if ((in_leaf || (!shape->between && between)) && stack_has(stack, bottom)) {
            right += stack->values[value];
            in_libc += ends_in_libc(stack) ? stack->values[value] : 0;
        }
    }
    fprintf(stderr, "%s in %s: %lld, %.4f under the recursion, %.3f of that in libc\n", shape->leaf,
            where, (long long)real, (double)right / (double)real, (double)in_libc / (double)right);
    double overhead = (double)profile_self(profile, value, "libagent overhead") / (double)total;
    ck_assert_double_le(overhead, shape->overhead);
    double walked = (1 - overhead) * (double)total;
    ck_assert_double_ge((double)real, 0.98 * walked);
    /* What is left: the start of the process, and looks at the clock, which take 5 % at most. Of
     * 40 samples more than 8 fall there in one of 1,000 runs, of 400 fewer. */
    ck_assert_double_ge((double)right, 0.90 * walked - 4);
    ck_assert_double_ge((double)in_libc, shape->in_libc * (double)right);
}

static void start(struct run *run, const char *program, const char *leaf, const char *where,
                  const char *const *environment)
{
    char ms[16];
    snprintf(ms, sizeof(ms), "%d", CPU_MS);
    run_start(run, &(struct run_request){.program = program,
                                         .arguments = (const char *[]){leaf, ms, where, NULL},
                                         .environment = environment});
}

static void expect_cpu_samples(const char *program, const struct shape *shape)
{
    static const char *const places[] = {"main", "thread"};
    struct run runs[2];
    for (int i = 0; i < 2; i++)
        start(&runs[i], program, shape->leaf, places[i],
              (const char *[]){"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=250", NULL});
    for (int i = 0; i < 2; i++) {
        struct profile profile;
        run_wait(&runs[i]);
        run_expect_quiet_success(&runs[i]);
        profile_load(&profile, runs[i].profiles, "cpu", runs[i].pid);
        /* Counted, as the time of one may be what a thread used while ticks missed it; there are
         * 44 where three others compute all the time. */
        ck_assert_int_ge(profile_total(&profile, CPU_SAMPLES), CPU_MS / 100);
        expect_shape(&profile, shape, CPU_SAMPLES, places[i]);
        profile_free(&profile);
        run_free(&runs[i]);
    }
}

START_TEST(test_cpu_samples)
{
    expect_cpu_samples("recursion", &shapes[_i]);
}
END_TEST

/* The same program without .eh_frame_hdr, and with .debug_frame alone. */
START_TEST(test_tables_that_the_loader_does_not_know)
{
    static const char *const programs[] = {"recursion_no_hdr", "recursion_debug_frame"};
    static const char *const leaves[] = {"plt", "signal", "descent"};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(shapes[i].leaf, leaves[_i / 2]) == 0)
            expect_cpu_samples(programs[_i % 2], &shapes[i]);
}
END_TEST

START_TEST(test_allocation_samples)
{
    static const struct shape shape = {"malloc", 0, DEPTH, 0};
    static const char *const places[] = {"main", "thread"};
    struct run runs[2];
    for (int i = 0; i < 2; i++)
        start(&runs[i], "recursion", shape.leaf, places[i],
              (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    for (int i = 0; i < 2; i++) {
        struct profile profile;
        run_wait(&runs[i]);
        run_expect_quiet_success(&runs[i]);
        profile_load(&profile, runs[i].profiles, "heap", runs[i].pid);
        expect_shape(&profile, &shape, ALLOC_BYTES, places[i]);
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
    start(&run, "recursion", "compute", "main", (const char *[]){"LIBAGENT_MAX_FRAMES=40", NULL});
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
    tcase_add_loop_test(tcase, test_cpu_samples, 0, sizeof(shapes) / sizeof(shapes[0]));
    tcase_add_loop_test(tcase, test_tables_that_the_loader_does_not_know, 0, 6);
    tcase_add_test(tcase, test_allocation_samples);
    tcase_add_test(tcase, test_stacks_cut_at_max_frames);
    suite_add_tcase(suite, tcase);
    return suite;
}
