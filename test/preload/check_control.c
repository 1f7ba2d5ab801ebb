/* The agent is switched and changed from outside: by signals, by a file, at SIGTERM. */
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

static void run(struct run *run, const char *const *arguments, const char *const *environment)
{
    run_program(run, &(struct run_request){
                         .program = "control", .arguments = arguments, .environment = environment});
}

/* Bytes that a function allocated, of which 16 KiB are a sample: there whatever the machine does.
 */
static int64_t seen(const struct run *run, const char *family, const char *folder,
                    const char *function)
{
    struct profile profile;
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", run->folder, folder);
    profile_load(&profile, path, family, run->pid);
    int64_t amount = profile_under(&profile, CPU_NS, function);
    profile_free(&profile);
    return amount;
}

/* ---- signals ---- */

static void expect_switched_off_and_on(const struct run *with)
{
    run_expect_success(with);
    ck_assert_str_eq(with->out, "signal default, flags 0\nsignal default, flags 0\n");
    ck_assert_int_gt(seen(with, "heap", "profiles", "work_before"), 0);
    ck_assert_int_eq(seen(with, "heap", "profiles", "work_between"), 0);
    ck_assert_int_eq(seen(with, "cpu", "profiles", "work_between"), 0);
    ck_assert_int_gt(seen(with, "heap", "profiles", "work_after"), 0);
}

/* Nobody is there: what is sent is lost, and told of. */
#define A_BACKEND "LIBAGENT_UPLOAD_URL=http://127.0.0.1:1"

/* 1: with a backend, what sends is a thread of libc's. */
START_TEST(test_a_signal_switches_off_and_on)
{
    struct run with;
    run(&with, (const char *[]){"toggle", NULL},
        (const char *[]){"LIBAGENT_TOGGLE_SIGNAL=SIGUSR2", "LIBAGENT_ALLOC_INTERVAL=16KiB",
                         _i ? A_BACKEND : NULL, NULL});
    expect_switched_off_and_on(&with);
    if (!_i)
        ck_assert_str_eq(with.err, "");
    run_free(&with);
}
END_TEST

/* The signal that a scheduler would have is the control's, also when it starts anew. */
START_TEST(test_a_schedulers_signal_switches_off_and_on)
{
    static const struct {
        const char *option, *scheduler, *line;
        int number;
    } cases[] = {
        {"LIBAGENT_TOGGLE_SIGNAL=PROF", "LIBAGENT_SCHEDULER=sigprof",
         "libagent: warn: LIBAGENT_SCHEDULER=sigprof is not used, event is: LIBAGENT_TOGGLE_SIGNAL "
         "has SIGPROF\n",
         SIGPROF},
        {"LIBAGENT_TOGGLE_SIGNAL=ALRM", "LIBAGENT_SCHEDULER=sigalrm",
         "libagent: warn: LIBAGENT_SCHEDULER=sigalrm is not used, event is: LIBAGENT_TOGGLE_SIGNAL "
         "has SIGALRM\n",
         SIGALRM},
    };
    struct run with;
    char number[16];
    snprintf(number, sizeof(number), "%d", cases[_i].number);
    run(&with, (const char *[]){"toggle", number, NULL},
        (const char *[]){cases[_i].option, cases[_i].scheduler, "LIBAGENT_ALLOC_INTERVAL=16KiB",
                         NULL});
    expect_switched_off_and_on(&with);
    ck_assert_str_eq(with.err, cases[_i].line); /* once, though it started twice */
    run_free(&with);
}
END_TEST

START_TEST(test_a_signal_starts_what_is_to_be_started_by_hand)
{
    struct run with;
    run(&with, (const char *[]){"start", NULL},
        (const char *[]){"LIBAGENT_START=manual", "LIBAGENT_TOGGLE_SIGNAL=USR2",
                         "LIBAGENT_FLUSH_SIGNAL=rtmin+5", "LIBAGENT_LOG_FILE=log",
                         "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    run_expect_quiet_success(&with);
    ck_assert_int_eq(seen(&with, "heap", "profiles", "work_before"), 0);
    ck_assert_int_gt(seen(&with, "heap", "profiles", "work_after"), 0);
    ck_assert_int_eq(seen(&with, "heap", "profiles", "work_between"), 0);
    run_free(&with);
}
END_TEST

/* The program leaves by a way that writes nothing. */
START_TEST(test_a_signal_writes_what_there_is)
{
    struct run with;
    run(&with, (const char *[]){"flush", NULL},
        (const char *[]){"LIBAGENT_FLUSH_SIGNAL=rtmin+5", "LIBAGENT_PERIOD=0",
                         "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    run_expect_quiet_success(&with);
    ck_assert_str_eq(with.out, "written\n");
    ck_assert_int_gt(seen(&with, "heap", "profiles", "work_before"), 0);
    run_free(&with);
}
END_TEST

START_TEST(test_a_signal_that_the_program_ignores_is_refused)
{
    struct run with;
    char command[PATH_MAX + 64];
    snprintf(command, sizeof(command), "trap '' USR1; exec %s", run_program_path("control"));
    run_program(&with, &(struct run_request){
                           .program = "/bin/sh",
                           .arguments = (const char *[]){"-c", command, NULL},
                           .environment = (const char *[]){"LIBAGENT_TOGGLE_SIGNAL=10",
                                                           "LIBAGENT_PROCESSES=prog_*", NULL}});
    run_expect_success(&with);
    ck_assert_str_eq(with.out, "USR1 other, flags 0\n");
    ck_assert_str_eq(with.err,
                     "libagent: error: LIBAGENT_TOGGLE_SIGNAL: the program ignores signal "
                     "10: it is not used\n");
    run_free(&with);
}
END_TEST

START_TEST(test_the_programs_own_handlers_come_first)
{
    struct run with;
    run(&with, (const char *[]){"take", NULL},
        (const char *[]){"LIBAGENT_TOGGLE_SIGNAL=USR2", "LIBAGENT_TERM_FLUSH=1", NULL});
    run_expect_success(&with);
    ck_assert_str_eq(with.out, "USR2 was 1, flags 0\ncame 1\nTERM was 1\ncame 2\n"
                               "TERM was ours 1\nTERM default, flags 0\nTERM was 1\ncame 3\n");
    ck_assert_str_eq(with.err, "libagent: warn: LIBAGENT_TOGGLE_SIGNAL: the program uses signal 12 "
                               "itself now\n");
    run_free(&with);
}
END_TEST

/* As it would have ended, and the last window is there. */
START_TEST(test_sigterm_writes_the_last_window)
{
    static const char *const ways[] = {"alone", "threads", "twice"};
    struct run with;
    run(&with, (const char *[]){"term", ways[_i], NULL},
        (const char *[]){"LIBAGENT_TERM_FLUSH=1", "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    ck_assert(WIFSIGNALED(with.status));
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    ck_assert_ptr_nonnull(strstr(with.out, "TERM default, flags 0\nkilled "));
    ck_assert_str_eq(with.err, "");
    ck_assert_int_gt(seen(&with, "heap", "profiles", "work_before"), 0);
    run_free(&with);
}
END_TEST

START_TEST(test_sigterm_ends_as_without_where_nothing_can_be_written)
{
    /* 0: it is off; 1: there is no such folder. */
    struct run with;
    run(&with, (const char *[]){"term", _i ? "alone" : "off", NULL},
        (const char *[]){"LIBAGENT_TERM_FLUSH=1", "LIBAGENT_TOGGLE_SIGNAL=USR2",
                         _i ? "LIBAGENT_OUTPUT=/proc/none" : "LIBAGENT_PERIOD=0", NULL});
    ck_assert(WIFSIGNALED(with.status));
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    run_free(&with);
}
END_TEST

/* Told on a line, or kept; on a machine that was too busy for either the line of the handler says
 * what it knows of. */
static void expect_no_silent_loss(const struct run *run, bool has_spool)
{
    bool is_late = strstr(run->err, "in time") != NULL;
    ck_assert_msg(is_late || strstr(run->err, "sent without an answer: "), "%s", run->err);
    ck_assert_msg(!strstr(run->err, "lost: 0\n"), "%s", run->err);
    if (has_spool && !is_late)
        ck_assert_msg(run_file_count(run, ".spool") > 0, "%s", run->err);
}

/* A backend that takes what it is sent and does not answer; a minute would be allowed at exit.
 * Nobody knows of the profile that it has; of the others all is told, or they go to the spool. */
START_TEST(test_sigterm_waits_for_no_backend)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    struct timespec end;
    struct run with;
    char url[64];
    int backend = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(backend, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(backend, 100), 0);
    ck_assert_int_eq(getsockname(backend, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof(url), "LIBAGENT_UPLOAD_URL=http://127.0.0.1:%d", ntohs(address.sin_port));
    bool is_sending = _i >= 1, has_spool = _i == 2;
    run(&with, (const char *[]){"term", is_sending ? "sending" : "alone", NULL},
        (const char *[]){"LIBAGENT_TERM_FLUSH=1", "LIBAGENT_EXIT_TIMEOUT=60s", "LIBAGENT_PERIOD=1s",
                         "LIBAGENT_ALLOC_INTERVAL=16KiB", url,
                         has_spool ? "LIBAGENT_SPOOL=profiles" : NULL, NULL});
    clock_gettime(CLOCK_MONOTONIC, &end);
    close(backend);
    ck_assert(WIFSIGNALED(with.status));
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    int64_t took = (int64_t)end.tv_sec * 1000000000 + end.tv_nsec - run_number(&with, "killed");
    fprintf(stderr, "from SIGTERM to the end: %lld ms\n", (long long)took / 1000000);
    /* One second is allowed; the rest is for a machine that does something else. */
    ck_assert_int_lt(took, 5000000000);
    if (is_sending) /* else the agent has no thread yet that may send */
        expect_no_silent_loss(&with, has_spool);
    run_free(&with);
}
END_TEST

/* The window that SIGTERM asks for cannot be written, nor, where a period has passed, the one
 * before it: the disk hangs when a file is made, or gets its name. */
START_TEST(test_sigterm_waits_a_second_for_a_disk_that_hangs)
{
    static const char *const calls[] = {"made", "named"};
    bool has_begun = _i >= 2;
    struct run with;
    run(&with, (const char *[]){"hang", calls[_i % 2], has_begun ? "sending" : "alone", NULL},
        (const char *[]){"LIBAGENT_TERM_FLUSH=1", "LIBAGENT_PERIOD=1s",
                         "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    ck_assert_msg(WIFSIGNALED(with.status), "%s%s", with.out, with.err);
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    ck_assert_uint_eq(run_file_count(&with, ".gz"), 0);
    ck_assert_msg(strstr(with.err, "in time") != NULL, "%s", with.err);
    int64_t took = (int64_t)with.end_ns - run_number(&with, "killed");
    fprintf(stderr, "from SIGTERM to the end: %lld ms\n", (long long)took / 1000000);
    ck_assert_int_ge(took, 1000000000);
    /* The rest is for a machine that does something else. */
    ck_assert_int_lt(took, 5000000000);
    run_free(&with);
}
END_TEST

/* Which signals may be used is told in one line, and which options do not go together. */
START_TEST(test_what_cannot_be_is_told_in_one_line)
{
    static const struct {
        const char *options[3];
        const char *line;
    } cases[] = {
#define NOT_A_SIGNAL(value)                                                                        \
    {{"LIBAGENT_FLUSH_SIGNAL=" value},                                                             \
     "libagent: error: LIBAGENT_FLUSH_SIGNAL=" value                                               \
     " is not understood: it takes none, or a signal that programs may handle, not KILL, STOP, "   \
     "those of faults, 32 or 33, by name or number, as USR2, 12 or RTMIN+3"}
        NOT_A_SIGNAL("KILL"),
        NOT_A_SIGNAL("SIGSTOP"),
        NOT_A_SIGNAL("32"),
        NOT_A_SIGNAL("33"),
        {{"LIBAGENT_SIGNALS=0", "LIBAGENT_TOGGLE_SIGNAL=USR1"},
         "libagent: warn: LIBAGENT_SIGNALS=0: LIBAGENT_TOGGLE_SIGNAL is not used\n"},
        {{"LIBAGENT_SIGNALS=0", "LIBAGENT_FLUSH_SIGNAL=USR1"},
         "libagent: warn: LIBAGENT_SIGNALS=0: LIBAGENT_FLUSH_SIGNAL is not used\n"},
        {{"LIBAGENT_SIGNALS=0", "LIBAGENT_TERM_FLUSH=1"},
         "libagent: warn: LIBAGENT_SIGNALS=0: LIBAGENT_TERM_FLUSH is not used\n"},
        {{"LIBAGENT_SIGNALS=0", "LIBAGENT_WALL_SIGNAL=1", "LIBAGENT_PROFILES=cpu,wall"},
         "libagent: warn: LIBAGENT_SIGNALS=0: LIBAGENT_WALL_SIGNAL is not used\n"},
        {{"LIBAGENT_SCHEDULER=sigprof", "LIBAGENT_SIGNALS=0", "LIBAGENT_PROFILES=cpu,wall"},
         "libagent: error: LIBAGENT_SCHEDULER=sigprof needs a signal, and LIBAGENT_SIGNALS=0 "
         "allows none: no time is profiled"},
    };
    struct run with;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run(&with, NULL,
            (const char *[]){cases[i].options[0], cases[i].options[1], cases[i].options[2], NULL});
        run_expect_success(&with);
        ck_assert_msg(strncmp(with.err, cases[i].line, strlen(cases[i].line)) == 0, "%s", with.err);
        ck_assert_msg(strchr(with.err, '\n') == with.err + strlen(with.err) - 1, "%s", with.err);
        run_free(&with);
    }
}
END_TEST

/* Not asked for, SIGTERM is what it was: nothing is written. */
START_TEST(test_sigterm_is_left_alone)
{
    struct run with;
    run(&with, (const char *[]){"term", "alone", NULL}, NULL);
    ck_assert(WIFSIGNALED(with.status));
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    run_expect_no_file(&with);
    run_free(&with);
}
END_TEST

/* ---- the file ---- */

START_TEST(test_a_file_switches_and_changes)
{
    struct run with;
    run(&with, (const char *[]){"configure", NULL},
        (const char *[]){"LIBAGENT_CONFIG=config", "LIBAGENT_PERIOD=1s", "LIBAGENT_LOG_FILE=log",
                         "LIBAGENT_LOG=info", "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL});
    run_expect_quiet_success(&with);
    ck_assert_int_gt(seen(&with, "heap", "profiles", "work_before"), 0);
    ck_assert_int_eq(seen(&with, "heap", "profiles", "work_between"), 0);
    ck_assert_int_eq(seen(&with, "cpu", "profiles", "work_between"), 0);
    ck_assert_int_eq(seen(&with, "cpu", "second", "work_between"), 0);
    ck_assert_int_gt(seen(&with, "cpu", "second", "work_after"), 0);
    ck_assert_int_eq(seen(&with, "heap", "second", "work_after"), 0); /* PROFILES=cpu */
    ck_assert_int_eq(seen(&with, "cpu", "profiles", "work_after"), 0);
    run_free(&with);
}
END_TEST

/* Switched off before the program began, and on while it does nothing. */
START_TEST(test_a_file_switches_an_idle_program_on)
{
    struct run with;
    char command[2 * PATH_MAX];
    snprintf(command, sizeof(command), "echo ENABLED=0 > config; exec %s off-at-first",
             run_program_path("control"));
    run_program(&with, &(struct run_request){.program = "/bin/sh",
                                             .arguments = (const char *[]){"-c", command, NULL},
                                             .environment = (const char *[]){
                                                 "LIBAGENT_CONFIG=config", "LIBAGENT_PERIOD=1s",
                                                 "LIBAGENT_PROCESSES=prog_*",
                                                 "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL}});
    run_expect_quiet_success(&with);
    ck_assert_int_eq(seen(&with, "heap", "profiles", "work_between"), 0);
    ck_assert_int_gt(seen(&with, "heap", "profiles", "work_after"), 0);
    run_free(&with);
}
END_TEST

/* The thread that looks at the file keeps no program that has ended, and libc writes what the
 * program has left to be written. 1: with a backend; 2: past libc, which ends no process then. */
START_TEST(test_a_program_that_is_off_ends)
{
    struct run with;
    run_program(&with,
                &(struct run_request){
                    .program = "control",
                    .arguments = (const char *[]){"leave", _i == 2 ? "past-libc" : "return", NULL},
                    .environment =
                        (const char *[]){"LIBAGENT_CONFIG=config", "LIBAGENT_PERIOD=1s",
                                         "LIBAGENT_LOG_FILE=log", _i == 1 ? A_BACKEND : NULL, NULL},
                    .seconds = 60});
    run_expect_quiet_success(&with);
    ck_assert_str_eq(with.out, "last\n");
    run_free(&with);
}
END_TEST

START_TEST(test_the_environments_off_is_final)
{
    struct run with;
    char command[2 * PATH_MAX];
    snprintf(command, sizeof(command), "echo ENABLED=1 > config; exec %s term alone",
             run_program_path("control"));
    run_program(&with, &(struct run_request){.program = "/bin/sh",
                                             .arguments = (const char *[]){"-c", command, NULL},
                                             .environment = (const char *[]){
                                                 "LIBAGENT_CONFIG=config", "LIBAGENT_ENABLED=0",
                                                 "LIBAGENT_TERM_FLUSH=1", NULL}});
    ck_assert_int_eq(WTERMSIG(with.status), SIGTERM);
    run_expect_no_file(&with);
    run_free(&with);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("control");
    TCase *signals = tcase_create("signals");
    tcase_set_timeout(signals, 120);
    tcase_add_loop_test(signals, test_a_signal_switches_off_and_on, 0, 2);
    tcase_add_loop_test(signals, test_a_schedulers_signal_switches_off_and_on, 0, 2);
    tcase_add_test(signals, test_a_signal_starts_what_is_to_be_started_by_hand);
    tcase_add_test(signals, test_a_signal_writes_what_there_is);
    tcase_add_test(signals, test_a_signal_that_the_program_ignores_is_refused);
    tcase_add_test(signals, test_the_programs_own_handlers_come_first);
    tcase_add_loop_test(signals, test_sigterm_writes_the_last_window, 0, 3);
    tcase_add_loop_test(signals, test_sigterm_ends_as_without_where_nothing_can_be_written, 0, 2);
    tcase_add_loop_test(signals, test_sigterm_waits_for_no_backend, 0, 3);
    tcase_add_loop_test(signals, test_sigterm_waits_a_second_for_a_disk_that_hangs, 0, 4);
    tcase_add_test(signals, test_sigterm_is_left_alone);
    tcase_add_test(signals, test_what_cannot_be_is_told_in_one_line);
    suite_add_tcase(suite, signals);
    TCase *file = tcase_create("file");
    tcase_set_timeout(file, 120);
    tcase_add_test(file, test_a_file_switches_and_changes);
    tcase_add_test(file, test_a_file_switches_an_idle_program_on);
    tcase_add_loop_test(file, test_a_program_that_is_off_ends, 0, 3);
    tcase_add_test(file, test_the_environments_off_is_final);
    suite_add_tcase(suite, file);
    return suite;
}
