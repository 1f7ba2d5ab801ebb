/* Small stacks: what handler and hooks take of them, and that it is within what the README says:
 * 2 KiB beyond the kernel's frame. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { OURS = 2048, WORK_MS = 1500 };

static void run_case(struct run *run, const char *name, int64_t number,
                     const char *const *environment)
{
    char text[24], ms[24];
    snprintf(text, sizeof(text), "%lld", (long long)number);
    /* Without the agent there are no windows to wait for. */
    snprintf(ms, sizeof(ms), "%d", environment ? WORK_MS : 100);
    run_program(run, &(struct run_request){.program = "harm_stacks",
                                           .arguments = (const char *[]){name, text, ms, NULL},
                                           .environment = environment,
                                           .without_agent = !environment});
    run_expect_quiet_success(run);
}

/* Bytes below the loops of prog_harm_stacks. */
struct depths {
    int64_t thread, compute, cached, all;
};

static struct depths depths(int64_t tick, const char *const *environment)
{
    struct run run;
    run_case(&run, "depth", tick, environment);
    struct depths depths = {run_number(&run, "thread"), run_number(&run, "compute"),
                            run_number(&run, "cached"), run_number(&run, "all")};
    run_free(&run);
    return depths;
}

static void expect_under_2_kib(const char *what, int64_t with, int64_t without)
{
    fprintf(stderr, "%s: %lld bytes of stack, %lld without\n", what, (long long)with,
            (long long)without);
    ck_assert_int_lt(with - without, OURS);
}

/* Compares paint below the stack pointer with that of the same loops without the agent; for CPU
 * samples, with that of an empty handler's tick. */
START_TEST(test_samples_take_under_2_kib)
{
    struct depths none = depths(0, NULL), tick = depths(1, NULL);
    struct depths cpu =
        depths(0, (const char *[]){"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=1000", NULL});
    struct depths alloc =
        depths(0, (const char *[]){"LIBAGENT_PROFILES=alloc", "LIBAGENT_ALLOC_INTERVAL=1", NULL});
    struct depths both =
        depths(0, (const char *[]){"LIBAGENT_FREQUENCY=1000", "LIBAGENT_ALLOC_INTERVAL=1", NULL});
    /* The measure itself: siginfo, registers and the vector state take more than 1 KiB, and where
     * nothing is called nothing is used. */
    int64_t kernel_frame = tick.compute;
    ck_assert_int_ge(kernel_frame, 1024);
    ck_assert_int_eq(none.compute, 0);
    ck_assert_int_gt(cpu.compute, kernel_frame);
    ck_assert_int_gt(alloc.cached, none.cached);
    expect_under_2_kib("a CPU sample", cpu.compute, kernel_frame);
    expect_under_2_kib("an allocation sample", alloc.cached, none.cached);
    expect_under_2_kib("allocation samples of each way", alloc.all, none.all);
    expect_under_2_kib("CPU samples in libc", cpu.all, none.all + kernel_frame);
    expect_under_2_kib("both", both.all, none.all + kernel_frame);
    expect_under_2_kib("a thread's begin and end", both.thread, none.thread);
}
END_TEST

static const char *const often[] = {"LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_FREQUENCY=1000",
                                    "LIBAGENT_PERIOD=1s", NULL};
/* Most stacks are no sample of an allocation: then the agent's thread is born in a CPU sample. */
static const char *const rarely[] = {"LIBAGENT_ALLOC_INTERVAL=1GiB", "LIBAGENT_FREQUENCY=1000",
                                     "LIBAGENT_PERIOD=1s", NULL};

static void expect_in_profiles(const struct run *run, const char *function)
{
    struct profile profile;
    profile_load(&profile, run->profiles, "cpu", run->pid);
    ck_assert_int_ge(profile_total(&profile, CPU_NS), WORK_MS * 900000ll);
    ck_assert_double_ge((double)profile_under(&profile, CPU_NS, function),
                        0.9 * (double)profile_total(&profile, CPU_NS) -
                            (double)profile_self(&profile, CPU_NS, "libagent overhead"));
    profile_free(&profile);
}

/* A coroutine's stack has room for its own frames, as painted without the agent, the largest frame
 * of the kernel, and 2 KiB; the next byte has no access. Compares what the coroutines did. */
START_TEST(test_coroutines_of_the_promised_size)
{
    struct run without, with;
    run_case(&without, "coroutines", 65536, NULL);
    int64_t size =
        (run_number(&without, "used") + run_number(&without, "frame") + OURS + 15) / 16 * 16;
    run_case(&with, "coroutines", size, often);
    fprintf(stderr, "stacks of %lld bytes, %lld used\n", (long long)size,
            (long long)run_number(&with, "used"));
    ck_assert_int_gt(run_number(&with, "used"), run_number(&without, "used") + 1024);
    expect_in_profiles(&with, "coroutine");
    struct profile profile;
    profile_load(&profile, with.profiles, "heap", with.pid);
    ck_assert_int_eq(profile_under(&profile, ALLOC_OBJECTS, "coroutine"),
                     run_number(&with, "blocks"));
    profile_free(&profile);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* Threads of PTHREAD_STACK_MIN that leave of it what the README promises to be enough, while
 * profiles are due: the agent's own thread is born from there. */
START_TEST(test_threads_of_the_least_size)
{
    static const char *const *const settings[] = {often, rarely};
    struct run without, with;
    run_case(&without, "threads", 0, NULL);
    run_case(&with, "threads", 0, settings[_i]);
    run_expect_same(&with, &without);
    expect_in_profiles(&with, "on_smallest_stack");
    ck_assert_uint_ge(run_file_count(&with, ".cpu.pb.gz"), 2);
    run_free(&with);
    run_free(&without);
}
END_TEST

/* The kernel's frame of a signal alone is more than there is room for. 250 ticks may come
 * in a second; a busy machine leaves out most of them. */
START_TEST(test_stacks_of_go)
{
    struct run run;
    struct profile cpu;
    run_program(&run, &(struct run_request){.program = "go_stacks",
                                            .arguments = (const char *[]){"1000", NULL},
                                            .environment =
                                                (const char *[]){"LIBAGENT_FREQUENCY=1000", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&cpu, run.profiles, "cpu", run.pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_SAMPLES, "on_small_stack"), 10);
    profile_free(&cpu);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_stacks");
    TCase *tcase = tcase_create("small stacks");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_samples_take_under_2_kib);
    tcase_add_test(tcase, test_coroutines_of_the_promised_size);
    tcase_add_loop_test(tcase, test_threads_of_the_least_size, 0, 2);
    tcase_add_test(tcase, test_stacks_of_go);
    suite_add_tcase(suite, tcase);
    return suite;
}
