/* Processes made by other ways than the usual, and by many threads at once: no lock comes along
 * held, nothing of a child is the parent's, and what a child or an exec'd program writes is its
 * own. Prints what was found to standard error. */
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { WINDOWS_MAX = 64 };

static void run_case(struct run *run, const char *name, const char *const *environment)
{
    run_program(run, &(struct run_request){.program = "harm_fork",
                                           .arguments = (const char *[]){name, NULL},
                                           .environment = environment,
                                           .seconds = 120});
    run_expect_quiet_success(run);
}

static void expect_near(const char *what, double value, double truth, double bound)
{
    fprintf(stderr, "%s: %.0f, truth %.0f\n", what, value, truth);
    ck_assert_msg(value >= truth * (1 - bound) && value <= truth * (1 + bound),
                  "%s: %.0f, truth %.0f, bound %.2f", what, value, truth, bound);
}

/* Sampled as often as can be, while the agent's threads write a window each second. */
static const char *const often[] = {"LIBAGENT_ALLOC_INTERVAL=1KiB", "LIBAGENT_FREQUENCY=1000",
                                    "LIBAGENT_PERIOD=1s", NULL};

START_TEST(test_a_thousand_forks)
{
    struct run run;
    struct profile profile;
    run_case(&run, "among", often);
    ck_assert_int_eq(run_number(&run, "children"), 1000);
    ck_assert_int_eq(run_number(&run, "failures"), 0);
    /* Those that ended by exit wrote what they allocated, those that ended by _exit did not. */
    ck_assert_int_eq((int64_t)run_file_count(&run, ".0000.heap.pb.gz"),
                     run_number(&run, "exits") + 1);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    expect_near("cpu of the parent", (double)profile_total(&profile, CPU_NS),
                (double)run_number(&run, "process"), 0.02);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "site_churn"), 0);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "live_as_child"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* The windows of a process follow each other from `born` to `ended`, without gap or overlap of
 * more than the time that changing them takes. */
static void expect_windows(const struct profile *profile, int64_t born, int64_t ended)
{
    const int64_t change = 100000000;
    int64_t at = born, total = 0;
    ck_assert_uint_le(profile->file_count, WINDOWS_MAX);
    for (uint32_t i = 0; i < profile->file_count; i++) {
        const Perftools__Profiles__Profile *file = profile->files[i];
        ck_assert_int_ge(file->time_nanos, at - change);
        at = file->time_nanos + file->duration_nanos;
        total += file->duration_nanos;
    }
    ck_assert_int_ge(profile->files[0]->time_nanos, born);
    ck_assert_int_le(at, ended + change);
    fprintf(stderr, "%u windows of %.3f s in a life of %.3f s\n", profile->file_count,
            (double)total * 1e-9, (double)(ended - born) * 1e-9);
}

START_TEST(test_child_lives_on)
{
    struct run run;
    struct profile profile;
    run_case(&run, "lives-on",
             (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_PERIOD=1s", NULL});
    int child = (int)run_number(&run, "child-pid");
    profile_load(&profile, run.profiles, "cpu", child);
    ck_assert_uint_ge(profile.file_count, 2);
    char first[64];
    snprintf(first, sizeof(first), ".%d.0000.cpu.pb.gz", child);
    ck_assert_ptr_nonnull(strstr(profile.paths[0], first));
    expect_windows(&profile, run_number(&run, "born"), run_number(&run, "ended"));
    expect_near("cpu of the child", (double)profile_total(&profile, CPU_NS),
                (double)run_number(&run, "child"), 0.02);
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "site_child"), 1400000000);
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "site_child_thread"), 350000000);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "site_parent"), 0);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap", child);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_child"), 1000);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_parent"), 0);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    expect_near("cpu of the parent", (double)profile_total(&profile, CPU_NS),
                (double)run_number(&run, "process"), 0.02);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "site_child"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* vfork, clone with the parent's memory, posix_spawn, a bare clone and _Fork: the parent's
 * profiles have what the parent did, exactly, and nobody else writes any. */
START_TEST(test_unusual_children)
{
    struct run with, without;
    struct profile profile;
    run_case(&with, "unusual",
             (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_FREQUENCY=1000", NULL});
    ck_assert_int_eq(run_number(&with, "failures"), 0);
    profile_load(&profile, with.profiles, "heap", 0);
    ck_assert_uint_eq(profile.file_count, 1);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_parent"),
                     run_number(&with, "objects"));
    ck_assert_int_eq(profile_under(&profile, ALLOC_OBJECTS, "site_shared"), 0);
    ck_assert_int_eq(profile_under(&profile, ALLOC_OBJECTS, "site_churn"), 0);
    profile_free(&profile);
    profile_load(&profile, with.profiles, "cpu", 0);
    ck_assert_uint_eq(profile.file_count, 1);
    expect_near("cpu of the parent", (double)profile_total(&profile, CPU_NS),
                (double)run_number(&with, "process"), 0.02);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "site_shared"), 0);
    profile_free(&profile);
    run_program(&without, &(struct run_request){.program = "harm_fork",
                                                .arguments = (const char *[]){"unusual", NULL},
                                                .without_agent = true});
    /* All but the last line, the parent's clock. */
    const char *end = strstr(without.out, "process ");
    ck_assert_ptr_nonnull(end);
    ck_assert_int_eq(strncmp(with.out, without.out, (size_t)(end - without.out)), 0);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Such a child neither waits for threads that are the parent's (the watchdog's limit is far below
 * for ever, and at the end what could not be written would be said), nor writes. */
START_TEST(test_child_with_its_parents_pid)
{
    struct run run;
    struct profile profile;
    run_case(&run, "same-pid", often);
    ck_assert_int_eq(run_number(&run, "status"), 0);
    profile_load(&profile, run.profiles, "heap", 1);
    ck_assert_uint_ge(profile.file_count, 1);
    ck_assert_int_eq(profile_under(&profile, ALLOC_OBJECTS, "site_churn"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* The parent allocates 2.56 MB in 400 portions, 5 samples at 512 KiB; between them children on its
 * memory allocate 800 MB in blocks as small. 30 samples or more, of a Poisson distribution of mean
 * 5, come about once in 1e14 runs; a sample at each child's end would be 400. */
START_TEST(test_gaps_are_not_spent_by_children)
{
    const double interval = 524288;
    struct run run;
    struct profile profile;
    run_case(&run, "gaps", (const char *[]){"LIBAGENT_ALLOC_INTERVAL=512KiB", NULL});
    double truth = (double)run_number(&run, "bytes");
    profile_load(&profile, run.profiles, "heap", run.pid);
    double bytes = (double)profile_total(&profile, ALLOC_BYTES);
    fprintf(stderr, "%.0f bytes, truth %.0f\n", bytes, truth);
    ck_assert_double_le(bytes, 30 * interval);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* From a thread that is not the main one, with all signals blocked and a tick pending. Both
 * programs have the same name and pid. */
START_TEST(test_exec_starts_afresh)
{
    struct run run;
    struct profile profile;
    run_case(&run, "exec", (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1", NULL});
    double before = (double)run_number(&run, "before");
    double all = (double)run_number(&run, "process");
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_uint_eq(profile.file_count, 2);
    double sums[2] = {0, 0};
    int is_after[2] = {0, 0};
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        sums[stack->file] += (double)stack->values[CPU_NS];
        is_after[stack->file] |= stack_has(stack, "site_after") ? 1 : 0;
        is_after[stack->file] |= stack_has(stack, "site_before") ? 2 : 0;
    }
    ck_assert_msg(is_after[0] + is_after[1] == 3 && is_after[0] != 0 && is_after[1] != 0,
                  "both programs in one file: %d %d", is_after[0], is_after[1]);
    expect_near("cpu before exec", sums[is_after[1] == 2], before, 0.02);
    expect_near("cpu after exec", sums[is_after[1] == 1], all - before, 0.02);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_before"), 1000);
    ck_assert_int_eq(profile_self(&profile, ALLOC_OBJECTS, "site_after"), 1000);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

struct cost {
    int64_t calls, faults, cpu_us;
};

static struct cost exec_cost(bool with_agent)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "harm_exec_cost",
                          .environment = (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1KiB", NULL},
                          .without_agent = !with_agent});
    run_expect_quiet_success(&run);
    struct cost cost = {run_number(&run, "calls"), run_number(&run, "faults"),
                        run_number(&run, "cpu-us")};
    ck_assert_int_eq(run_number(&run, "threads"), 0);
    if (with_agent) {
        struct profile profile;
        profile_load(&profile, run.profiles, "heap", (int)run_number(&run, "child-pid"));
        ck_assert_uint_eq(profile.file_count, 0);
        profile_free(&profile);
        /* The one that forked was profiled, else nothing was compared. */
        ck_assert_uint_eq(run_file_count(&run, ".heap.pb.gz"), 1);
    }
    run_free(&run);
    return cost;
}

/* What a child does until exec, of a parent with 33 threads that were all sampled: it sees who it
 * is, empties the tables (eight calls), makes a timer, and asks whether there is anything to write.
 * The system calls are 23 more, of about 0.2 us each; of a child that used a millisecond until
 * there, on a busy machine, two more, of the clocks that tell which of its threads did. Copies of
 * pages are 20 more, of 75. A copy of the tables would be hundreds. */
START_TEST(test_exec_at_once_costs_next_to_nothing)
{
    struct cost with = exec_cost(true), without = exec_cost(false);
    fprintf(stderr, "calls %lld, without %lld; faults %lld, without %lld; %lld us\n",
            (long long)with.calls, (long long)without.calls, (long long)with.faults,
            (long long)without.faults, (long long)with.cpu_us);
    ck_assert_int_ge(without.calls, 0);
    ck_assert_int_le(with.calls, without.calls + (with.cpu_us < 1000 ? 23 : 25));
    ck_assert_int_le(with.faults, without.faults + 40);
}
END_TEST

/* A library's constructor, which runs before the agent's, registered handlers: none of them may
 * find signals blocked or the loader's list locked. */
START_TEST(test_handlers_that_were_there_before)
{
    const char *const one_byte[] = {"LIBAGENT_ALLOC_INTERVAL=1", NULL};
    const char *const lines[] = {"prepare: signal 1, object 1\n", "parent: signal 1, object 1\n",
                                 "child: signal 1, object 1\n", "status 768\n"};
    struct run run;
    run_program(&run, &(struct run_request){.program = "harm_fork",
                                            .arguments = (const char *[]){"handlers", NULL},
                                            .environment = one_byte,
                                            .beside = run_program_path("fork_handlers"),
                                            .seconds = 60});
    run_expect_quiet_success(&run);
    size_t size = 0;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ck_assert_msg(strstr(run.out, lines[i]) != NULL, "%s is not in: %s", lines[i], run.out);
        size += strlen(lines[i]);
    }
    ck_assert_uint_eq(run.out_size, size);
    ck_assert_uint_eq(run_file_count(&run, ".heap.pb.gz"), 1);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_fork");
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, test_a_thousand_forks);
    tcase_add_test(tcase, test_child_lives_on);
    tcase_add_test(tcase, test_unusual_children);
    tcase_add_test(tcase, test_child_with_its_parents_pid);
    tcase_add_test(tcase, test_gaps_are_not_spent_by_children);
    tcase_add_test(tcase, test_exec_starts_afresh);
    tcase_add_test(tcase, test_exec_at_once_costs_next_to_nothing);
    tcase_add_test(tcase, test_handlers_that_were_there_before);
    suite_add_tcase(suite, tcase);
    return suite;
}
