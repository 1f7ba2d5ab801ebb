/* Wall profiles of programs whose threads' lives are known: each thread's time is all there, in the
 * state that it was in, on whole stacks. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

/* The bound, and what passes between the clocks of a thread and ours, at its begin and end,
 * where both may wait for a processor. */
#define LOST_MAX    0.01
#define EDGES_NS    20000000
#define WHOLE_MIN   0.98
#define DURATION_MS "2500"

/* On a busy machine looks take long, and would become rarer if their rate were not set. */
#define FREQUENCY "LIBAGENT_FREQUENCY=101"

static const char *const environment[] = {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_PERIOD=1s",
                                          FREQUENCY, NULL};

static const struct {
    const char *thread, *state, *function;
} truth[] = {
    {"nanosleep", "clock_nanosleep", "wait_in_nanosleep"},
    {"poll", "poll", "wait_in_poll"},
    {"epoll", "epoll_wait", "wait_in_epoll"},
    {"condition", "futex", "wait_in_condition"},
    {"semaphore", "futex", "wait_in_semaphore"},
    {"select", "pselect6", "wait_in_select"},
    {"spins", "running", "run_all_the_time"},
};

static struct run run;
static struct profile profile;

static void run_threads(const char *program, const char *const *more, const char *user)
{
    struct run_request request = {.program = program,
                                  .arguments = (const char *[]){DURATION_MS, user, NULL},
                                  .environment = more};
    run_program(&run, &request);
    run_expect_success(&run);
    profile_load(&profile, run.profiles, "wall", run.pid);
    ck_assert_uint_ge(profile.file_count, 2);
}

static void done(void)
{
    profile_free(&profile);
    run_free(&run);
}

static void expect_near(const char *what, int64_t found, int64_t expected, double share,
                        int64_t slack)
{
    double bound = (double)expected * share + (double)slack;
    double off = (double)(found - expected);
    fprintf(stderr, "%s: %.6f s of %.6f s\n", what, (double)found / 1e9, (double)expected / 1e9);
    ck_assert_msg(off <= bound && -off <= bound, "%s: %lld ns, not %lld", what, (long long)found,
                  (long long)expected);
}

/* Of what the thread of that name did. */
static int64_t sum_of(const char *thread, const char *state, const char *function)
{
    int64_t sum = 0;
    for (size_t i = 0; i < profile.stack_count; i++) {
        const struct stack *stack = &profile.stacks[i];
        if (strcmp(stack->thread, thread) == 0 && (!state || strcmp(stack->state, state) == 0) &&
            (!function || stack_has(stack, function)))
            sum += stack->values[WALL_NS];
    }
    return sum;
}

static void expect_lives(void)
{
    for (size_t i = 0; i < sizeof(truth) / sizeof(truth[0]); i++)
        expect_near(truth[i].thread, sum_of(truth[i].thread, NULL, NULL),
                    run_number(&run, truth[i].thread), LOST_MAX, EDGES_NS);
    expect_near("alternates", sum_of("alternates", NULL, NULL), run_number(&run, "alternates"),
                LOST_MAX, EDGES_NS);
    /* Some hundreds of threads of 3 ms, each with its edges. */
    expect_near("short", sum_of("short", NULL, NULL), run_number(&run, "short"), 0.2, 0);
}

/* Where each thread was, as the program tells it. `states`: no signal wakes threads that wait:
 * where one does, the kernel shows the wait as restart_syscall when it has begun anew, and the
 * thread is ready before. */
static void expect_states(bool states)
{
    for (size_t i = 0; i < sizeof(truth) / sizeof(truth[0]); i++) {
        const char *state = states ? truth[i].state : NULL;
        int64_t life = run_number(&run, truth[i].thread);
        int64_t found = sum_of(truth[i].thread, state, truth[i].function);
        if (strcmp(truth[i].state, "running") == 0 || !states) {
            /* Where others want the processor the kernel may find no time for a sample of what runs
             * or is ready for some tenths of a second; what is not sampled at the end is told so.
             * A wait that a signal ends within milliseconds may have no look at all. */
            ck_assert_int_ge(found, life / 2 - EDGES_NS);
            found += sum_of(truth[i].thread, "unknown", "[thread end]");
        }
        expect_near(truth[i].function, found, life, LOST_MAX, 2 * EDGES_NS);
    }
    /* 250 ticks at least, each of which sees it running or not: the share that is seen has a
     * deviation of 0.5 / sqrt(250) = 0.032 at most; five of them. It is not said to wait when it
     * is ready, and has no processor. */
    int64_t life = run_number(&run, "alternates"), spun = run_number(&run, "alternates-spun");
    int64_t late = run_number(&run, "alternates-late"), bound = life / 6;
    int64_t running = sum_of("alternates", "running", NULL);
    int64_t waiting = sum_of("alternates", NULL, "run_and_wait") -
                      sum_of("alternates", "running", "run_and_wait");
    fprintf(stderr, "alternates: %lld ms, %lld spun, %lld late; seen running %lld, waiting %lld\n",
            (long long)life / 1000000, (long long)spun / 1000000, (long long)late / 1000000,
            (long long)running / 1000000, (long long)waiting / 1000000);
    int64_t unknown = sum_of("alternates", "unknown", "[thread end]");
    ck_assert_int_ge(running + unknown, spun - bound);
    ck_assert_int_le(running, spun + late + bound);
    ck_assert_int_ge(waiting, life - spun - late - bound);
    ck_assert_int_le(waiting, life - spun + bound);
}

static void expect_whole_stacks(const char *figure)
{
    int64_t read = profile_figure(&profile, "stacks of blocked threads read from outside");
    int64_t broken = profile_figure(
        &profile, "stacks of blocked threads that did not reach main or thread start");
    fprintf(stderr, "%s: %lld stacks read, %lld not whole; of the time %.4f is\n", figure,
            (long long)read, (long long)broken, profile_whole_share(&profile, WALL_NS));
    if (profile_whole_share(&profile, WALL_NS) < WHOLE_MIN)
        profile_print(&profile, WALL_NS, true, 10);
    ck_assert_double_ge(profile_whole_share(&profile, WALL_NS), WHOLE_MIN);
    ck_assert_int_ge(read, 100);
    ck_assert_int_le(broken * 50, read);
}

START_TEST(test_threads)
{
    run_threads("wall_threads", environment, NULL);
    expect_lives();
    expect_states(true);
    expect_whole_stacks("without frame pointers");
    for (size_t i = 0; i < profile.stack_count; i++)
        if (!stack_has(&profile.stacks[i], "wait_in_poll")) /* alloca */
            ck_assert(!profile.stacks[i].approximate);
    done();
}
END_TEST

/* A frame that hangs on rbp is found on the stack, and said to be. */
START_TEST(test_threads_with_frame_pointers)
{
    run_threads("wall_records", environment, NULL);
    expect_lives();
    expect_states(true);
    expect_whole_stacks("with frame pointers");
#if defined(__x86_64__)
    for (size_t i = 0; i < profile.stack_count; i++)
        if (stack_has(&profile.stacks[i], "wait_in_nanosleep"))
            ck_assert(profile.stacks[i].approximate);
#endif
    done();
}
END_TEST

/* It is in pthread_join all the time, from which each of 250 signals takes it for some
 * microseconds. A tick that finds it on its way back says that it runs: where it lost its
 * processor, or a twentieth of the ticks; five deviations of that are 0.07. (Where ticks came with
 * the signals a third to three quarters of its time was seen as a wait.) */
static void expect_main_waits(void)
{
    int64_t life = run_number(&run, "main"), late = run_number(&run, "alternates-late");
    int64_t waits = sum_of("prog_wall_threa", "futex", NULL);
    fprintf(stderr, "main: %lld ms, of which it waits %lld\n", (long long)life / 1000000,
            (long long)waits / 1000000);
    ck_assert_int_ge(waits, life - life / 4 - late);
}

static const char *const ways[][2] = {
    {"LIBAGENT_PROFILES=wall", "LIBAGENT_SCHEDULER=auto"}, /* and no CPU profile */
    {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=event"},
    {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=sleep"},
    {"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=sigalrm"},
};

/* Every scheduler that gives wall time gives the same. */
START_TEST(test_schedulers)
{
    run_threads("wall_threads",
                (const char *[]){ways[_i][0], ways[_i][1], "LIBAGENT_PERIOD=1s", FREQUENCY, NULL},
                NULL);
    fprintf(stderr, "%s:\n", ways[_i][1]);
    expect_lives();
    bool by_signal = strstr(ways[_i][1], "sigalrm") != NULL;
    expect_states(!by_signal);
    if (by_signal)
        expect_main_waits();
    profile_free(&profile);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_int_eq(profile.file_count == 0, _i == 0);
    done();
}
END_TEST

static const char *const beats[] = {FREQUENCY, "LIBAGENT_FREQUENCY=1000"};

/* Threads whose waits fit the ticks, and end with them: by looks alone they were shown running for
 * a fifth to one and a half times what they were. The kernel's account of each is what is told. */
START_TEST(test_bursts)
{
    run_threads(
        "wall_bursts",
        (const char *[]){"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_PERIOD=1s", beats[_i], NULL},
        NULL);
    for (int i = 0; i < 3; i++) {
        char name[16], ran[16];
        snprintf(name, sizeof(name), "burst%d", i);
        snprintf(ran, sizeof(ran), "burst%d-ran", i);
        int64_t life = run_number(&run, name), truth_ns = run_number(&run, ran);
        int64_t running = sum_of(name, "running", NULL), unknown = sum_of(name, "unknown", NULL);
        fprintf(stderr, "%s: ran for %lld ms, shown %lld, unknown %lld\n", name,
                (long long)truth_ns / 1000000, (long long)running / 1000000,
                (long long)unknown / 1000000);
        ck_assert_int_ge(running + unknown, truth_ns - life / 100 - EDGES_NS);
        ck_assert_int_le(running, truth_ns + life / 100 + EDGES_NS);
        ck_assert_int_ge(sum_of(name, "clock_nanosleep", "work_and_wait"),
                         life - truth_ns - life / 20 - EDGES_NS);
    }
    done();
}
END_TEST

/* Where a processor is wanted by more threads than one, who waits for it has it when another begins
 * to wait. Ticks that came only then (by a signal that main had to take first) saw that one run for
 * a third of its life less than it did. It is ready for 0.8 to 0.9 of that, and 200 ticks, as some
 * are missed, see a share with a deviation of 0.4 / sqrt(200) = 0.028: four and a half of them,
 * which 1 run in 100,000 is beyond. A wait that is over may be seen until the thread runs again:
 * for a quarter of that time. */
START_TEST(test_one_processor)
{
    cpu_set_t processors;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(processors), &processors), 0);
    for (int i = 0, found = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &processors) && found++)
            CPU_CLR(i, &processors);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(processors), &processors), 0);
    run_threads("wall_turns",
                (const char *[]){"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SCHEDULER=sigalrm",
                                 "LIBAGENT_PERIOD=1s", FREQUENCY, NULL},
                NULL);
    int64_t life = run_number(&run, "life"), spun = run_number(&run, "spun");
    int64_t late = run_number(&run, "late");
    int64_t running = sum_of("turns", "running", NULL);
    int64_t unknown = sum_of("turns", "unknown", "[thread end]");
    fprintf(stderr, "of %lld ms %lld spun, %lld late; seen running %lld, unknown %lld\n",
            (long long)life / 1000000, (long long)spun / 1000000, (long long)late / 1000000,
            (long long)running / 1000000, (long long)unknown / 1000000);
    ck_assert_int_ge(running + unknown, spun + late - late / 4 - life / 8);
    ck_assert_int_le(running, spun + late + life / 8);
    done();
}
END_TEST

/* Who runs is told by clocks, and nobody is walked but from outside. */
START_TEST(test_without_signals)
{
    run_threads("wall_threads",
                (const char *[]){"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_SIGNALS=0",
                                 "LIBAGENT_SCHEDULER=event", "LIBAGENT_PERIOD=1s", NULL},
                NULL);
    expect_lives();
    expect_near("without a stack", sum_of("spins", "running", "running (not sampled)"),
                run_number(&run, "spins"), LOST_MAX, 2 * EDGES_NS);
    expect_near("waiting", sum_of("poll", "poll", "wait_in_poll"), run_number(&run, "poll"),
                LOST_MAX, 2 * EDGES_NS);
    ck_assert_int_eq(profile_figure(&profile, "cpu samples"), 0);
    done();
}
END_TEST

/* A program that gives up root: the kernel shows nothing of its threads. All time is there still;
 * those that never ran for long have no stack, others the last one that was sampled. */
START_TEST(test_another_user)
{
    run_threads("wall_threads", environment, "65534");
    expect_lives();
    for (size_t i = 0; i < sizeof(truth) / sizeof(truth[0]); i++) {
        bool runs = strcmp(truth[i].state, "running") == 0;
        int64_t found = sum_of(truth[i].thread, runs ? "running" : "blocked", NULL);
        if (runs) /* what was not sampled at its end */
            found += sum_of(truth[i].thread, "unknown", "[thread end]");
        expect_near(truth[i].thread, found, run_number(&run, truth[i].thread), LOST_MAX,
                    2 * EDGES_NS);
    }
    for (size_t i = 0; i < profile.stack_count; i++)
        ck_assert_int_eq(profile.stacks[i].approximate,
                         strcmp(profile.stacks[i].state, "blocked") == 0);
    ck_assert_int_ge(profile_figure(&profile, "stacks of blocked threads that could not be read"),
                     100);
    int64_t waiting = run_number(&run, "alternates") - run_number(&run, "alternates-spun") -
                      run_number(&run, "alternates-late");
    int64_t sampled = sum_of("alternates", "blocked", "run_and_wait");
    fprintf(stderr, "waits of %lld ms, %lld with a sampled stack\n", (long long)waiting / 1000000,
            (long long)sampled / 1000000);
    /* Until its first sample there is none: a tenth of a second of its time, four times over. */
    ck_assert_int_ge(sampled, waiting - run_number(&run, "alternates") / 6 - 400000000);
    done();
}
END_TEST

/* Where signals are allowed, the stacks are exact; the waits that the kernel ends then are what
 * that costs. */
START_TEST(test_another_user_with_signals)
{
    run_threads("wall_threads",
                (const char *[]){"LIBAGENT_PROFILES=cpu,wall", "LIBAGENT_PERIOD=1s",
                                 "LIBAGENT_WALL_SIGNAL=1", NULL},
                "65534");
    expect_lives();
    /* libc goes on with this wait by itself. */
    int64_t exact = 0;
    for (size_t i = 0; i < profile.stack_count; i++)
        if (stack_has(&profile.stacks[i], "wait_in_condition") && !profile.stacks[i].approximate)
            exact += profile.stacks[i].values[WALL_NS];
    expect_near("exact", exact, run_number(&run, "condition"), LOST_MAX, 5 * EDGES_NS);
    done();
}
END_TEST

/* The kernel shows nothing, and all of the process waits between two functions that compute: what
 * follows the wait has none of it, and a wait that the program ends in is one, too. */
START_TEST(test_no_proc)
{
    char script[2 * PATH_MAX];
    snprintf(script, sizeof(script), "mount -t tmpfs none /proc; exec env LD_PRELOAD=%s %s",
             run_agent_path(), run_program_path("wall_pauses"));
    /* One period: a flush is CPU time, for which ticks look again. */
    run_in_own_mounts(&run, script,
                      (const char *[]){"LIBAGENT_PROFILES=cpu,wall", FREQUENCY, NULL});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "wall", run.pid);
    const char *thread = "prog_wall_pause";
    int64_t waited = run_number(&run, "waited");
    expect_near("waits", sum_of(thread, "blocked", NULL), waited, 0.2, 4 * EDGES_NS);
    expect_near("before", sum_of(thread, "blocked", "before_the_wait"), waited / 2, 0.2,
                4 * EDGES_NS);
    expect_near("after", sum_of(thread, "blocked", "after_the_wait"), waited / 2, 0.2,
                4 * EDGES_NS);
    ck_assert_int_le(sum_of(thread, "unknown", NULL), waited / 8);
    done();
}
END_TEST

/* Below a frame of varying size, what waits tells by which callers: `callers`, innermost first. */
static const struct {
    const char *waits;
    const char *callers[5];
} rooms[] = {
    {"wait_plainly", {"take_room", "call_plainly", "take_turn", "take_turns"}},
    {"wait_deep", {"take_room", "call_plainly", "call_deep", "take_turn", "take_turns"}},
    {"wait_deeper", {"take_room", "call_plainly", "call_deep", "call_deeper", "take_turn"}},
    {"wait_jumped_to", {"take_room", "take_turn", "take_turns"}},
};

static bool has_callers(const struct stack *stack, const char *leaf, const char *const callers[5])
{
    uint32_t at = 0;
    while (at < stack->depth && strcmp(stack->frames[at].function, leaf) != 0)
        at++;
    for (size_t i = 0; i < 5 && callers[i]; i++)
        if (++at >= stack->depth || strcmp(stack->frames[at].function, callers[i]) != 0)
            return false;
    return stack_is_whole(stack);
}

/* Such a frame is not where earlier ones have been, whose records are still on the stack. */
START_TEST(test_frames_of_varying_size)
{
    run_program(&run, &(struct run_request){.program = "wall_alloca",
                                            .environment = (const char *[]){
                                                "LIBAGENT_PROFILES=wall", FREQUENCY, NULL}});
    run_expect_success(&run);
    profile_load(&profile, run.profiles, "wall", run.pid);
    int64_t all = 0, right = 0;
    for (size_t i = 0; i < profile.stack_count; i++) {
        for (size_t way = 0; way < sizeof(rooms) / sizeof(rooms[0]); way++) {
            const struct stack *stack = &profile.stacks[i];
            if (!stack_has(stack, rooms[way].waits))
                continue;
            all += stack->values[WALL_NS];
            if (has_callers(stack, rooms[way].waits, rooms[way].callers))
                right += stack->values[WALL_NS];
        }
    }
    fprintf(stderr, "varying size: %.3f s of %.3f s have their callers\n", (double)right / 1e9,
            (double)all / 1e9);
    ck_assert_int_ge(all, 1000000000);
    ck_assert_int_ge(right, all / 10 * 9);
    done();
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("wall_truth");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_threads);
    tcase_add_test(tcase, test_threads_with_frame_pointers);
    tcase_add_test(tcase, test_frames_of_varying_size);
    tcase_add_loop_test(tcase, test_schedulers, 0, sizeof(ways) / sizeof(ways[0]));
    tcase_add_test(tcase, test_without_signals);
    if (getuid() == 0) {
        tcase_add_test(tcase, test_another_user);
        tcase_add_test(tcase, test_another_user_with_signals);
        tcase_add_test(tcase, test_no_proc);
    }
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("one_processor");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_bursts, 0, 2);
    tcase_add_test(tcase, test_one_processor);
    suite_add_tcase(suite, tcase);
    return suite;
}
