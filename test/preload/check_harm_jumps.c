/* Handlers of the program's that end by a jump: the thread goes on as without us, and goes on being
 * sampled. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const struct {
    const char *name;
    const char *function; /* that is seen, by this value of the profile */
    int value;
    int64_t enough;
} cases[] = {{"siglongjmp", "afterwards", CPU_SAMPLES, 3},
             {"longjmp", "afterwards", CPU_SAMPLES, 3},
             {"prof", "afterwards", CPU_SAMPLES, 3},
             {"calls", "afterwards", CPU_SAMPLES, 3},
             {"alternate", "computing", CPU_NS, 400000000}};

/* Compares actions, masks and pending signals after thousands of jumps. Some of them fall into a
 * sample: each of the timer's, since the two come together; of the sender's one or a few in a
 * run. A thread that a single one leaves inside the agent has no sample from then on. */
static int64_t run_and_compare(int number)
{
    struct run with, without;
    struct profile profile;
    struct run_request request = {
        .program = "harm_jumps",
        .arguments = (const char *[]){cases[number].name, NULL},
        .environment =
            (const char *[]){"LIBAGENT_FREQUENCY=1000", "LIBAGENT_ALLOC_INTERVAL=4KiB", NULL}};
    run_start(&with, &request);
    request.without_agent = true;
    run_start(&without, &request);
    run_wait(&with);
    run_wait(&without);
    run_expect_success(&without);
    run_expect_success(&with);
    /* The program's own timer missed its thread as well. */
    const char *many = "many jumps: 1\n";
    if (!strstr(with.out, many) || !strstr(without.out, many)) {
        run_free(&with);
        run_free(&without);
        return -1;
    }
    ck_assert_str_eq(with.out, without.out);
    ck_assert_msg(strncmp(with.err, "jumps ", 6) == 0 && strchr(with.err, '\n')[1] == 0, "%s",
                  with.err);
    profile_load(&profile, with.profiles, "cpu", with.pid);
    int64_t seen = profile_under(&profile, cases[number].value, cases[number].function);
    fprintf(stderr, "%s: %s%lld\n", cases[number].name, with.err, (long long)seen);
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
    return seen;
}

/* Where other programs want the processor, too, the scheduler may give the thread just the time
 * between ticks (traced: 1.4 ms of each 4 ms, for 0.2 s of its time); of the two seconds afterwards
 * some are sampled. Without the mask of our handler every second run leaves the thread inside. */
START_TEST(test_jumps_out_of_handlers)
{
    int good = 0;
    for (int try = 0; try < 5 && good < 2; try++) {
        int64_t seen = run_and_compare(_i);
        if (seen < 0)
            continue;
        ck_assert_int_ge(seen, cases[_i].enough);
        good++;
    }
    ck_assert_int_eq(good, 2);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_jumps");
    TCase *tcase = tcase_create("jumps");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, test_jumps_out_of_handlers, 0, sizeof(cases) / sizeof(cases[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
