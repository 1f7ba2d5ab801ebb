/* The schedulers that have one of the process's interval timers: a program that has it already, or
 * wants it later, is as without the agent, and goes on being profiled. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static const struct scheduler_case {
    const char *option, *timer;
} schedulers[] = {{"LIBAGENT_SCHEDULER=sigprof", "prof"}, {"LIBAGENT_SCHEDULER=sigalrm", "real"}};

/* `line`: what the agent says, once; NULL: nothing. */
static const struct program_case {
    const char *name, *more;
    const char *line;
    const char *must_be_sampled; /* a function */
} cases[] = {
    {"see", NULL, "ticks go on as those of event", "work"},
    {"signal", NULL, "ticks go on as those of event", "work"},
    {"die-of-timer", NULL, "ticks go on as those of event", NULL},
    {"die-of-kill", NULL, NULL, NULL},
    {"exec-chain", "100", NULL, NULL},
    {"exec-fails", NULL, NULL, "work_after_exec_failed"},
    {"exec-ignored", "1", "event is: the program has an action of its own for", "work"},
    {"exec-armed", "1", "event is: the program has a timer of its own with", "work"},
    {"exec-blocked", "1", "event is: the program has blocked", "work"},
    {"forks", NULL, NULL, "work_after_exec_failed"},
    {"bare-timer", NULL, "ticks go on as those of event", "work"},
    {"bare-timer-first", NULL, "ticks go on as those of event", "work"},
    {"wait-for-signal", NULL, "ticks go on as those of event", "work"},
    {"read-signal", NULL, "ticks go on as those of event", "work"},
};
/* Samples: of half a second, whose 125 ticks of the kernel may miss a thread that has to share its
 * processor; with ten programs on each processor 3 were seen. Without ticks there is one at most.
 */
enum { ENOUGH = 1 };
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static void run_case(struct run *run, const struct scheduler_case *scheduler,
                     const struct program_case *program, bool with_agent)
{
    run_program(
        run,
        &(struct run_request){
            .program = "itimers",
            .arguments = (const char *[]){program->name, scheduler->timer, program->more, NULL},
            .environment = (const char *[]){scheduler->option, "LIBAGENT_FREQUENCY=1000", NULL},
            .without_agent = !with_agent,
            .seconds = 60});
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

START_TEST(test_same_as_without)
{
    const struct scheduler_case *scheduler = &schedulers[_i / CASES];
    const struct program_case *program = &cases[_i % CASES];
    struct run with, without;
    run_case(&with, scheduler, program, true);
    run_case(&without, scheduler, program, false);
    ck_assert_msg(with.status == without.status, "%s: status %#x, without %#x: %s", program->name,
                  (unsigned)with.status, (unsigned)without.status, with.err);
    ck_assert_str_eq(with.out, without.out);
    if (program->line)
        ck_assert_msg(count_of(with.err, program->line) == 1, "%s: %s", program->name, with.err);
    else
        ck_assert_str_eq(with.err, without.err);
    if (program->must_be_sampled) {
        struct profile cpu;
        profile_load(&cpu, with.profiles, "cpu", with.pid);
        ck_assert_int_gt(profile_under(&cpu, CPU_SAMPLES, program->must_be_sampled), ENOUGH);
        profile_free(&cpu);
    }
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_death_by_alarm)
{
    static const struct program_case program = {.name = "die-of-alarm"};
    struct run with, without;
    run_case(&with, &schedulers[1], &program, true);
    run_case(&without, &schedulers[1], &program, false);
    ck_assert_int_eq(with.status, without.status);
    ck_assert_str_eq(with.out, without.out);
    ck_assert_int_eq(count_of(with.err, "ticks go on as those of event"), 1);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Its own timer and handler, all of its ticks, and never ours. */
START_TEST(test_starts_and_stops_beside)
{
    static const struct program_case program = {.name = "beside"};
    struct run with, without;
    run_case(&with, &schedulers[_i], &program, true);
    run_case(&without, &schedulers[_i], &program, false);
    ck_assert_msg(with.status == without.status, "status %#x: %s", (unsigned)with.status, with.err);
    ck_assert_str_eq(with.out, without.out);
    run_free(&with);
    run_free(&without);
}
END_TEST

START_TEST(test_signal_that_was_blocked_at_the_start)
{
    static const struct scheduler_case by_default = {"LIBAGENT_SCHEDULER=auto", "prof"};
    static const struct program_case program = {"exec-blocked", "1", NULL, "work"};
    struct run run;
    struct profile cpu;
    run_case(&run, &by_default, &program, true);
    run_expect_quiet_success(&run);
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_SAMPLES, "work"), ENOUGH);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

/* The timer is used again: the agent's thread, which blocks all signals, is not the program. */
START_TEST(test_a_start_from_outside)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "itimers",
                          .arguments = (const char *[]){"toggle", schedulers[_i].timer, NULL},
                          .environment =
                              (const char *[]){schedulers[_i].option, "LIBAGENT_TOGGLE_SIGNAL=USR2",
                                               "LIBAGENT_LOG=warn", NULL}});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "");
    run_free(&run);
}
END_TEST

/* What the kernel has of handlers, masks, pending signals and timers. */
START_TEST(test_no_signal_is_used_where_none_may_be)
{
    static const struct scheduler_case none = {"LIBAGENT_SIGNALS=0", "prof"},
                                       some = {"LIBAGENT_SIGNALS=1", "prof"};
    static const struct program_case program = {"show-signals", NULL, NULL, NULL};
    struct run with, without, as_usual;
    run_case(&with, &none, &program, true);
    run_case(&without, &none, &program, false);
    run_case(&as_usual, &some, &program, true);
    run_expect_same(&with, &without);
    ck_assert_str_ne(as_usual.out, without.out);
    ck_assert_uint_eq(run_file_count(&with, ".cpu.pb.gz"), 1);
    run_free(&with);
    run_free(&without);
    run_free(&as_usual);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("itimers");
    TCase *tcase = tcase_create("programs with timers");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_same_as_without, 0, 2 * CASES);
    tcase_add_test(tcase, test_death_by_alarm);
    tcase_add_loop_test(tcase, test_starts_and_stops_beside, 0, 2);
    tcase_add_test(tcase, test_signal_that_was_blocked_at_the_start);
    tcase_add_loop_test(tcase, test_a_start_from_outside, 0, 2);
    tcase_add_test(tcase, test_no_signal_is_used_where_none_may_be);
    suite_add_tcase(suite, tcase);
    return suite;
}
