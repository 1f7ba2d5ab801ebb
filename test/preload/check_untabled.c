/* Programs compiled without call frame information, whose stacks are full of old return addresses:
 * no caller is shown that was none. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const struct {
    const char *program;
    const char *unwinder;
} cases[] = {{"untabled_records", "LIBAGENT_UNWINDER=cfi"},
             {"untabled_records", "LIBAGENT_UNWINDER=fp"},
             {"untabled_bare", "LIBAGENT_UNWINDER=cfi"}};

START_TEST(test_callers_are_callers)
{
    static const char *const chain[] = {"store", "request", "server", "main"};
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){
                          .program = cases[_i].program,
                          .environment = (const char *[]){cases[_i].unwinder,
                                                          "LIBAGENT_ALLOC_INTERVAL=64KiB", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "heap", run.pid);
    int64_t in_store = 0;
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        if (!stack_has(stack, "store"))
            continue;
        in_store += stack->values[ALLOC_BYTES];
        ck_assert_uint_ge(stack->depth, 4);
        for (uint32_t k = 0; k < 4; k++)
            ck_assert_str_eq(stack->frames[k].function, chain[k]);
    }
    /* 300,000 blocks of 4,000 bytes; one in 17 is a sample: 0.75 % is one deviation. */
    ck_assert_double_ge((double)in_store, 0.95 * 300000 * 4000);
    ck_assert_int_eq(profile_under(&profile, ALLOC_BYTES, "logger"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

#if defined(__x86_64__)
START_TEST(test_an_old_call_is_none)
{
    struct run run;
    struct profile profile;
    run_program(&run, &(struct run_request){.program = "stale_call"});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t there = profile_under(&profile, CPU_SAMPLES, "spin_without_rules");
    ck_assert_int_ge(there, 5);
    /* But for one in the prologue or the epilogue, which take three instructions of billions. */
    ck_assert_int_eq(profile_under(&profile, CPU_SAMPLES, "truth"), there);
    ck_assert_int_eq(profile_under(&profile, CPU_SAMPLES, "liar"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST
#endif

Suite *suite(void)
{
    Suite *suite = suite_create("untabled");
    TCase *tcase = tcase_create("untabled");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_callers_are_callers, 0, sizeof(cases) / sizeof(cases[0]));
#if defined(__x86_64__)
    tcase_add_test(tcase, test_an_old_call_is_none);
#endif
    suite_add_tcase(suite, tcase);
    return suite;
}
