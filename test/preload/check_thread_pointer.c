/* Programs that give a thread another thread pointer for a while are sampled then, too, and no
 * signal of the agent's looks at thread-local data that are not there. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_pair.h"

static const struct {
    const char *pointer, *scheduler, *profiles;
} cases[] = {
    {"none", "cputimer", "cpu,alloc,heap"},
    {"zeros", "cputimer", "cpu,alloc,heap"},
    {"ones", "cputimer", "cpu,alloc,heap"},
    {"none", "auto", "cpu,wall"},
    {"none", "event", "cpu,wall"},
    {"none", "sleep", "cpu"},
    {"none", "sigprof", "cpu"},
    {"none", "sigalrm", "cpu,wall"},
};

static void run_case(struct run_pair *pair, const char *pointer, const char *signal,
                     const char *scheduler, const char *profiles)
{
    char chosen[64], wanted[64];
    snprintf(chosen, sizeof(chosen), "LIBAGENT_SCHEDULER=%s", scheduler);
    snprintf(wanted, sizeof(wanted), "LIBAGENT_PROFILES=%s", profiles);
    run_pair(pair, &(struct run_request){
                       .program = "thread_pointer",
                       .arguments = (const char *[]){pointer, signal, NULL},
                       .environment = (const char *[]){chosen, wanted, "LIBAGENT_TERM_FLUSH=1",
                                                       "LIBAGENT_FREQUENCY=1000", NULL}});
}

START_TEST(test_computes_with_another_pointer)
{
    struct run_pair pair;
    struct profile profile;
    run_case(&pair, cases[_i].pointer, NULL, cases[_i].scheduler, cases[_i].profiles);
    run_expect_quiet_success(&pair.with);
    profile_load(&profile, pair.with.profiles, "cpu", pair.with.pid);
    int64_t sampled = profile_under(&profile, CPU_NS, "elsewhere");
    fprintf(stderr, "%s, %s: %lld ns\n", cases[_i].pointer, cases[_i].scheduler,
            (long long)sampled);
    /* Of a second, where no sample was taken then it would be none; where the machine is busy ticks
     * are late, and a thread's time is in its next sample. */
    ck_assert_int_gt(sampled, 500000000);
    profile_free(&profile);
    run_pair_free(&pair);
}
END_TEST

/* By scheduler: SIGPROF, SIGALRM, SIGTERM. */
static const struct {
    const char *signal, *scheduler;
} ends[] = {{"27", "sigprof"}, {"14", "sigalrm"}, {"15", "cputimer"}};

START_TEST(test_is_ended_meanwhile)
{
    struct run_pair pair;
    run_case(&pair, "none", ends[_i].signal, ends[_i].scheduler, "cpu");
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_pointer");
    TCase *tcase = tcase_create("thread_pointer");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_computes_with_another_pointer, 0,
                        sizeof(cases) / sizeof(cases[0]));
    tcase_add_loop_test(tcase, test_is_ended_meanwhile, 0, sizeof(ends) / sizeof(ends[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
