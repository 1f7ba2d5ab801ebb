/* C++ exceptions find their way: the libraries that unwind them are the program's own, and none of
 * the agent's stands before these; samples and recorded allocations come at all points of a throw.
 * Compared with a run without the agent: how many of which were caught, how many objects were
 * destroyed on the way. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_expect.h"
#include "test/preload/run_pair.h"

enum { LAYERS = 4 };

/* As many samples as the kernel's tick gives, threads of the agent's from the first second on, and
 * an allocation recorded each 4 KiB, so in many throws. */
static const char *const environment[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_FREQUENCY=250",
                                          "LIBAGENT_ALLOC_INTERVAL=4KiB", NULL};

static char folder[64], layers[LAYERS][96];

/* Each copy is a library of its own to the loader. */
static void setup(void)
{
    strcpy(folder, "/tmp/libagent-throws-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < LAYERS; i++) {
        char command[2 * PATH_MAX];
        snprintf(layers[i], sizeof(layers[i]), "%s/liblayer%d.so", folder, i);
        snprintf(command, sizeof(command), "cp '%s' %s", run_program_path("throw_layer"),
                 layers[i]);
        ck_assert_int_eq(system(command), 0);
    }
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* At the end of a throw libgcc writes the handler's registers over those that its own frame saved,
 * but stands on its old stack for some more instructions: no table tells the way out then. That is
 * up to 3 % of such a program's time. The shares of functions are a third of what is usual. */
#define WHOLE_MIN 0.9

/* 50,000 in each of two threads. */
START_TEST(test_through_libraries)
{
    struct run_pair pair;
    run_pair(&pair,
             &(struct run_request){.program = "throws",
                                   .arguments = (const char *[]){"50000", layers[0], layers[1],
                                                                 layers[2], layers[3], NULL},
                                   .environment = environment});
    run_expect_quiet_success(&pair.without);
    ck_assert_ptr_nonnull(strstr(pair.without.out, "thrown in qsort and another from thrown"));
    ck_assert_ptr_null(strstr(pair.without.out, "nothing"));
    profile_expect(pair.with.profiles, "cpu", pair.with.pid, WHOLE_MIN,
                   (const struct expectation[]){{"layer_call", 0.2}, {NULL, 0}});
    profile_expect(pair.with.profiles, "heap", pair.with.pid, WHOLE_MIN,
                   (const struct expectation[]){{"layer_call", 0.3}, {NULL, 0}});
    run_pair_free(&pair);
}
END_TEST

START_TEST(test_in_plugin_of_c_program)
{
    struct run_pair pair;
    run_pair(&pair, &(struct run_request){.program = "c_opens_throws",
                                          .arguments = (const char *[]){layers[0], "200000", NULL},
                                          .environment = environment});
    run_expect_quiet_success(&pair.without);
    ck_assert_str_eq(pair.without.out, "C++ before: 0\n"
                                       "caught 200000, destroyed 1200000\n"
                                       "global after: 0 0\n"
                                       "closed 0\n");
    profile_expect(pair.with.profiles, "cpu", pair.with.pid, WHOLE_MIN,
                   (const struct expectation[]){{"_Unwind_RaiseException", 0.1}, {NULL, 0}});
    profile_expect(pair.with.profiles, "heap", pair.with.pid, WHOLE_MIN,
                   (const struct expectation[]){{"catch_all(unsigned long)", 0.3}, {NULL, 0}});
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_exceptions");
    TCase *tcase = tcase_create("exceptions");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_through_libraries);
    tcase_add_test(tcase, test_in_plugin_of_c_program);
    suite_add_tcase(suite, tcase);
    return suite;
}
