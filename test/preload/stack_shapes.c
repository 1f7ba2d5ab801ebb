#include "test/preload/stack_shapes.h"

#include <stdio.h>
#include <string.h>

#include "test/chance.h"
#include "test/check.h"

/* The start of the process, the descents, and looks at the clock take a hundredth of the time where
 * nobody else uses the processor's caches. */
#define SHAPE_ELSEWHERE 0.05

/* Here malloc is called 20 million times a second: what the hook takes is a few percent. */
const struct shape shapes[SHAPE_COUNT] = {
    {"compute", 0, SHAPE_DEPTH, 0.03},
    {"memcpy", 0.5, SHAPE_DEPTH, 0.03},
    {"snprintf", 0.5, SHAPE_DEPTH, 0.03},
    {"malloc", 0.3, SHAPE_DEPTH, 0.2},
    {"plt", 0.1, SHAPE_DEPTH, 0.03},
    {"signal", 0, SHAPE_DEPTH, 0.03},
    {"descent", 0, 0, 0.03},
};

static bool ends_in_libc(const struct stack *stack)
{
    return strstr(stack->frames[0].object, "/libc.so.6") != NULL;
}

void shape_expect(const struct profile *profile, const struct shape *shape, int value,
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
            between > SHAPE_DEPTH) {
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
    double overhead = (double)profile_self(profile, value, "libagent overhead");
    double walked = (double)total - overhead;
    fprintf(stderr, "%s in %s: %.0f and %.0f, %.4f under the recursion, %.3f of that in libc\n",
            shape->leaf, where, walked, overhead, (double)right / (double)real,
            (double)in_libc / (double)right);
    ck_assert_msg(!chance_share_is_above(overhead, (double)total, shape->overhead),
                  "overhead: %.0f of %lld", overhead, (long long)total);
    ck_assert_double_ge((double)real, 0.98 * walked);
    ck_assert_msg(!chance_share_is_above(walked - (double)right, walked, SHAPE_ELSEWHERE),
                  "under the recursion: %lld of %.0f", (long long)right, walked);
    /* What takes how long is another thing in an emulator. */
    double in_libc_share = test_is_emulated() ? shape->in_libc / 10 : shape->in_libc;
    ck_assert_double_ge((double)in_libc, in_libc_share * (double)right);
}

void shape_start(struct run *run, const char *program, const char *leaf, unsigned ms,
                 const char *where, const char *const *environment)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", ms);
    run_start(run, &(struct run_request){.program = program,
                                         .arguments = (const char *[]){leaf, text, where, NULL},
                                         .environment = environment});
}

void shape_expect_cpu(const char *program, const struct shape *shape, unsigned ms,
                      const char *unwinder)
{
    static const char *const places[] = {"main", "thread"};
    struct run runs[2];
    char option[64], comment[64];
    snprintf(option, sizeof(option), "LIBAGENT_UNWINDER=%s", unwinder);
    snprintf(comment, sizeof(comment), "libagent: unwinder: %s", unwinder);
    for (int i = 0; i < 2; i++)
        shape_start(
            &runs[i], program, shape->leaf, ms, places[i],
            (const char *[]){"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=250", option, NULL});
    for (int i = 0; i < 2; i++) {
        struct profile profile;
        run_wait(&runs[i]);
        run_expect_quiet_success(&runs[i]);
        profile_load(&profile, runs[i].profiles, "cpu", runs[i].pid);
        ck_assert(profile_has_comment(&profile, comment));
        /* Counted, as the time of one may be what a thread used while ticks missed it; there are
         * 44 in 2 s where three others compute all the time. */
        ck_assert_int_ge(profile_total(&profile, CPU_SAMPLES), ms / 100);
        shape_expect(&profile, shape, CPU_SAMPLES, places[i]);
        profile_free(&profile);
        run_free(&runs[i]);
    }
}
