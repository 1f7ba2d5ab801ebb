/* Labels that a program sets: in its profile each function has the label that it ran under. */
#include <errno.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void run(struct run *run, const char *what, bool without_agent)
{
    run_program(run, &(struct run_request){.program = "labels",
                                           .arguments = (const char *[]){what, NULL},
                                           .environment =
                                               (const char *[]){"LIBAGENT_PROFILES=cpu,wall,alloc",
                                                                "LIBAGENT_ALLOC_INTERVAL=1", NULL},
                                           .without_agent = without_agent});
    run_expect_success(run);
}

/* All that lies under the function has the label, and something does. Labels are set around the
 * call and a sample has those of its instant, so there is no tolerance; a wall sample of time that
 * a thread waited has its stack and its labels from the same tick. */
static void expect_all(const struct profile *profile, const char *function, const char *text)
{
    int64_t all = profile_under_label(profile, 1, function, "work", text, 0), sum = 0;
    for (size_t i = 0; i < profile->stack_count; i++)
        if (stack_has(&profile->stacks[i], function) && !stack_is_pseudo(&profile->stacks[i]))
            sum += profile->stacks[i].values[1];
    ck_assert_int_gt(sum, 0);
    ck_assert_msg(all == sum, "%s: %lld of %lld", function, (long long)all, (long long)sum);
}

static void expect_none(const struct profile *profile, const char *function)
{
    static const char *const texts[] = {"f", "g", "h"};
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(profile_under_label(profile, 1, function, "work", texts[i], 0), 0);
}

START_TEST(test_each_function_has_its_label)
{
    static const char *const families[] = {"cpu", "heap", "wall"};
    struct run with, without;
    struct profile profile;
    run(&with, "", false);
    run(&without, "", true);
    run_expect_quiet_success(&with);
    run_expect_same(&with, &without);
    for (size_t i = 0; i < 3; i++) {
        profile_load(&profile, with.profiles, families[i], with.pid);
        expect_all(&profile, "f", "f");
        expect_all(&profile, "g", "g");
        expect_all(&profile, "h", "h");
        expect_none(&profile, "u");
        ck_assert_int_eq(profile_under_label(&profile, 1, "h", "number", NULL, -7),
                         profile_under_label(&profile, 1, "h", "work", "h", 0));
        if (i == 1) { /* each allocation is sampled: 5 times 8 blocks */
            ck_assert_int_eq(profile_under_label(&profile, ALLOC_OBJECTS, "f", "work", "f", 0), 40);
            ck_assert_int_eq(profile_under_label(&profile, ALLOC_BYTES, "g", "work", "g", 0),
                             40000);
        }
        profile_free(&profile);
    }
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_a_fork_child_inherits_none)
{
    struct run with;
    struct profile profile;
    run(&with, "fork", false);
    profile_load(&profile, with.profiles, "heap", (int)run_number(&with, "child"));
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "u"), 0);
    expect_none(&profile, "u");
    profile_free(&profile);
    profile_load(&profile, with.profiles, "heap", with.pid);
    expect_all(&profile, "f", "f");
    ck_assert_int_eq(profile_under_label(&profile, ALLOC_OBJECTS, "f", "work", "f", 0), 16);
    profile_free(&profile);
    run_free(&with);
}
END_TEST

START_TEST(test_a_start_knows_no_label_of_before)
{
    struct run with;
    struct profile profile;
    run(&with, "restart", false);
    ck_assert_int_eq(run_number(&with, "stop"), 0);
    ck_assert_int_eq(run_number(&with, "while-off"), -ENOTCONN);
    ck_assert_int_eq(run_number(&with, "start"), 0);
    ck_assert_int_eq(run_number(&with, "clear"), -ENOENT);
    profile_load(&profile, with.profiles, "heap", with.pid);
    expect_all(&profile, "f", "f");
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "u"), 0);
    expect_none(&profile, "u");
    profile_free(&profile);
    run_free(&with);
}
END_TEST

START_TEST(test_what_is_refused)
{
    static const struct {
        const char *call;
        int result;
    } expected[] = {{"reserved-0", -EINVAL},
                    {"reserved-1", -EINVAL},
                    {"reserved-2", -EINVAL},
                    {"reserved-3", -EINVAL},
                    {"reserved-4", -EINVAL},
                    {"reserved-5", -EINVAL},
                    {"reserved-6", -EINVAL},
                    {"reserved-7", -EINVAL},
                    {"reserved-8", -EINVAL},
                    {"reserved-9", -EINVAL},
                    {"empty-key", -EINVAL},
                    {"empty-text", -EINVAL},
                    {"no-key", -EINVAL},
                    {"long-text", -E2BIG},
                    {"longest-text", 0},
                    {"long-key", -E2BIG},
                    {"a", 0},
                    {"g", 0},
                    {"ninth", -ENOSPC},
                    {"replaced", 0},
                    {"clear", 0},
                    {"clear-again", -ENOENT}};
    struct run with;
    run(&with, "errors", false);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        ck_assert_msg(run_number(&with, expected[i].call) == expected[i].result, "%s",
                      expected[i].call);
    /* Said once. */
    const char *line = strstr(with.err, ": refused: ");
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_null(strstr(line + 1, ": refused: "));
    run_free(&with);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("labels");
    TCase *labels = tcase_create("labels");
    tcase_set_timeout(labels, 240);
    tcase_add_test(labels, test_each_function_has_its_label);
    tcase_add_test(labels, test_a_fork_child_inherits_none);
    tcase_add_test(labels, test_a_start_knows_no_label_of_before);
    tcase_add_test(labels, test_what_is_refused);
    suite_add_tcase(suite, labels);
    return suite;
}
