/* Slices of time that a program captures: each is a file of its own, in which what the program did
 * in it is, and nothing else; and what all say together is what the window says. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

/* The program is single-threaded but for `waits`, and the frequency is set, so that nothing thins
 * the samples out: each slice has some 60, fewer where the processor is shared. */
static void run_and_send(struct run *run, const char *what, const char *url)
{
    run_program(run, &(struct run_request){
                         .program = "captures",
                         .arguments = (const char *[]){what, NULL},
                         .environment = (const char *[]){
                             "LIBAGENT_PROFILES=cpu,wall,alloc", "LIBAGENT_ALLOC_INTERVAL=1",
                             "LIBAGENT_FREQUENCY=200", "LIBAGENT_EXIT_TIMEOUT=30s", url, NULL}});
    run_expect_success(run);
}

static void run(struct run *run, const char *what)
{
    run_and_send(run, what, NULL);
}

/* The capture's file has so many allocations, all of these functions (NULL: one), each with 8; and
 * all its families have what the window has under its label. */
static void expect_slice(const struct run *run, int pid, const char *key, const char *name,
                         int number, const char *function, const char *other)
{
    static const char *const families[] = {"cpu", "heap", "wall"};
    for (size_t i = 0; i < 3; i++) {
        char file[64], number_key[64];
        struct profile slice, window;
        snprintf(file, sizeof(file), "%s@%s.%d", families[i], name, number);
        snprintf(number_key, sizeof(number_key), "%s_number", key);
        profile_load(&slice, run->profiles, file, pid);
        profile_load(&window, run->profiles, families[i], pid);
        ck_assert_msg(slice.file_count > 0, "no %s", file);
        for (int value = 0; value < 2; value++) {
            int64_t sum = profile_total(&slice, value);
            ck_assert_int_eq(sum,
                             profile_under_label(&window, value, NULL, number_key, NULL, number));
            ck_assert_int_eq(sum, profile_under_label(&slice, value, NULL, key, name, 0));
        }
        ck_assert_int_gt(profile_under(&slice, 1, function), 0);
        ck_assert_int_eq(profile_under(&slice, 1, "out"), 0);
        if (i == 1) {
            int64_t objects = profile_under(&slice, ALLOC_OBJECTS, function) +
                              (other ? profile_under(&slice, ALLOC_OBJECTS, other) : 0);
            ck_assert_int_eq(objects % 8, 0);
            ck_assert_int_ge(objects, other ? 16 : 8);
        }
        profile_free(&slice);
        profile_free(&window);
    }
}

static void expect_part(const struct run *run, int pid, const char *file, const char *part)
{
    struct profile profile;
    char comment[128];
    profile_load(&profile, run->profiles, file, pid);
    snprintf(comment, sizeof(comment), "libagent: capture: %s, %s", strchr(file, '@') + 1, part);
    ck_assert_msg(profile_has_comment(&profile, comment), "%s: not: %s", file, comment);
    profile_free(&profile);
}

START_TEST(test_a_thread_has_a_slice)
{
    struct run with;
    run(&with, "thread");
    ck_assert_int_eq(run_number(&with, "end-of-none"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "wrong-name"), -EINVAL);
    ck_assert_int_eq(run_number(&with, "no-name"), -EINVAL);
    ck_assert_int_eq(run_number(&with, "empty-name"), -EINVAL);
    ck_assert_int_eq(run_number(&with, "long-name"), -E2BIG);
    ck_assert_int_eq(run_number(&with, "begin"), 0);
    ck_assert_int_eq(run_number(&with, "nested"), -EBUSY);
    ck_assert_int_eq(run_number(&with, "end"), 0);
    ck_assert_int_eq(run_number(&with, "flush"), 0);
    ck_assert_int_eq(run_number(&with, "again"), 0);
    ck_assert_int_eq(run_number(&with, "end-again"), 0);
    expect_slice(&with, with.pid, "capture", "order", 1, "in", NULL);
    expect_slice(&with, with.pid, "capture", "order", 2, "in", NULL);
    expect_part(&with, with.pid, "cpu@order.1", "whole");
    expect_part(&with, with.pid, "wall@order.2", "whole");
    ck_assert_uint_eq(run_file_count(&with, ".cpu@order.1.pb.gz"), 1);
    ck_assert_uint_eq(run_file_count(&with, ".cpu@order.2.pb.gz"), 1);
    ck_assert_uint_eq(run_file_count(&with, ".cpu.pb.gz"), 2);
    run_free(&with);
}
END_TEST

/* A thread that waits is in the process's slice for as long as that was, to the nanosecond: its
 * time is cut where the slice begins and ends. */
START_TEST(test_the_process_has_a_slice)
{
    struct run with;
    struct profile profile;
    run(&with, "process");
    ck_assert_int_eq(run_number(&with, "begin"), 0);
    ck_assert_int_eq(run_number(&with, "nested"), -EBUSY);
    ck_assert_int_eq(run_number(&with, "begin-one"), 0);
    ck_assert_int_eq(run_number(&with, "end-one"), 0);
    ck_assert_int_eq(run_number(&with, "end"), 0);
    ck_assert_int_eq(run_number(&with, "end-again"), -EALREADY);
    expect_slice(&with, with.pid, "process_capture", "all", 1, "in", "both");
    expect_slice(&with, with.pid, "capture", "one", 2, "both", NULL);
    profile_load(&profile, with.profiles, "wall@all.1", with.pid);
    int64_t waited = profile_under(&profile, WALL_NS, "waits");
    ck_assert_int_ge(waited, run_number(&with, "least"));
    ck_assert_int_le(waited, run_number(&with, "most"));
    profile_free(&profile);
    run_free(&with);
}
END_TEST

START_TEST(test_threads_end_the_process_s_alone)
{
    struct run with;
    run(&with, "elsewhere");
    ck_assert_int_eq(run_number(&with, "end-elsewhere"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "end-process-elsewhere"), 0);
    ck_assert_int_eq(run_number(&with, "begin-elsewhere"), 0);
    ck_assert_int_eq(run_number(&with, "end"), 0);
    expect_slice(&with, with.pid, "capture", "mine", 1, "in", NULL);
    expect_slice(&with, with.pid, "process_capture", "all", 2, "in", NULL);
    expect_part(&with, with.pid, "cpu@left.3", "whole");
    run_free(&with);
}
END_TEST

START_TEST(test_a_fork_child_is_in_none)
{
    struct run with;
    struct profile profile;
    run(&with, "fork");
    int child = (int)run_number(&with, "child");
    ck_assert_int_eq(run_number(&with, "child-end"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "child-end-process"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "end"), 0);
    ck_assert_int_eq(run_number(&with, "end-process"), 0);
    expect_slice(&with, with.pid, "capture", "mine", 1, "in", NULL);
    expect_slice(&with, with.pid, "process_capture", "all", 2, "in", NULL);
    profile_load(&profile, with.profiles, "heap", child);
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "out"), 0);
    profile_free(&profile);
    profile_load(&profile, with.profiles, "cpu@mine.1", child);
    ck_assert_uint_eq(profile.file_count, 0);
    profile_free(&profile);
    profile_load(&profile, with.profiles, "cpu@all.2", child);
    ck_assert_uint_eq(profile.file_count, 0);
    profile_free(&profile);
    run_free(&with);
}
END_TEST

START_TEST(test_a_stop_ends_them)
{
    struct run with;
    run(&with, "restart");
    ck_assert_int_eq(run_number(&with, "stop"), 0);
    ck_assert_int_eq(run_number(&with, "off"), -ENOTCONN);
    ck_assert_int_eq(run_number(&with, "start"), 0);
    ck_assert_int_eq(run_number(&with, "end"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "end-process"), -EALREADY);
    ck_assert_int_eq(run_number(&with, "begin"), 0);
    expect_slice(&with, with.pid, "capture", "mine", 1, "in", NULL);
    expect_slice(&with, with.pid, "process_capture", "all", 2, "in", NULL);
    /* One that was open at the exit has its file all the same. */
    expect_slice(&with, with.pid, "capture", "last", 3, "in", NULL);
    expect_part(&with, with.pid, "cpu@last.3", "the first part");
    run_free(&with);
}
END_TEST

/* ---- everything at once ---- */

/* All in files of captures, of which there are so many; and what the window says is in them. */
static void expect_all_slices(const struct run *run, const struct profile *window)
{
    enum { NUMBERS = 1000 };
    static const char *const names[] = {"a", "b", "c", "d", "all"};
    static const char *const keys[] = {"capture_number", "process_capture_number"};
    int64_t slices = 0;
    for (int number = 1; number < NUMBERS; number++) {
        int64_t labelled = profile_under_label(window, ALLOC_OBJECTS, NULL, keys[0], NULL, number) +
                           profile_under_label(window, ALLOC_OBJECTS, NULL, keys[1], NULL, number);
        int64_t copied = 0;
        for (size_t i = 0; labelled && i < sizeof(names) / sizeof(names[0]); i++) {
            struct profile slice;
            profile_load(&slice, run->profiles, receiver_text("heap@%s.%d", names[i], number),
                         run->pid);
            copied += profile_total(&slice, ALLOC_OBJECTS);
            profile_free(&slice);
        }
        ck_assert_int_eq(copied, labelled);
        slices += labelled != 0;
    }
    ck_assert_int_gt(slices, 0);
}

/* Each allocation is sampled, and has the label that it was made under, and no other, while four
 * threads set and clear labels and capture, windows end, and children are born. */
START_TEST(test_a_storm_of_labels)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct run with;
    struct profile window;
    run_program(&with,
                &(struct run_request){.program = "captures",
                                      .arguments = (const char *[]){"storm", NULL},
                                      .environment = (const char *[]){"LIBAGENT_PROFILES=alloc",
                                                                      "LIBAGENT_ALLOC_INTERVAL=1",
                                                                      "LIBAGENT_LOG=error", NULL}});
    run_expect_quiet_success(&with);
    int64_t rounds = run_number(&with, "rounds");
    ck_assert_ptr_eq(strstr(with.out, "rounds"), with.out); /* no call went wrong */
    profile_load(&window, with.profiles, "heap", with.pid);
    ck_assert_uint_gt(window.file_count, 1);
    ck_assert_int_eq(profile_under(&window, ALLOC_OBJECTS, "labelled"), 4 * rounds);
    ck_assert_int_eq(profile_under(&window, ALLOC_OBJECTS, "unlabelled"), 4 * rounds);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(
            profile_under_label(&window, ALLOC_OBJECTS, "labelled", "work", names[i], 0), rounds);
        ck_assert_int_eq(
            profile_under_label(&window, ALLOC_OBJECTS, "unlabelled", "work", names[i], 0), 0);
    }
    for (int64_t i = 0; i < 50; i++)
        ck_assert_int_eq(profile_under_label(&window, ALLOC_OBJECTS, NULL, "round", NULL, i),
                         8 * rounds / 50);
    expect_all_slices(&with, &window);
    profile_free(&window);
    run_free(&with);
}
END_TEST

/* A backend adds up all profiles that it gets: the slice is in them once, under its label where the
 * backend has labels of texts. */
START_TEST(test_no_backend_gets_a_copy)
{
    struct run with;
    struct profile profile;
    int port = receiver.port;
    run_and_send(&with, "thread",
                 receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,"
                               "parca+http://127.0.0.1:%d,http://127.0.0.1:%d/plain",
                               port, port, port));
    receiver_read(&receiver);
    static const char *const kinds[] = {"pyroscope cpu", "parca cpu", "post cpu"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(receiver_count(&receiver, kinds[i]) == 2, "%s:\n%s", kinds[i], receiver.log);
    profile_load(&profile, receiver.folder, "cpu", RECEIVED_BY_PARCA);
    ck_assert_int_eq(profile_under_label(&profile, CPU_NS, "in", "capture", "order", 0),
                     profile_under(&profile, CPU_NS, "in"));
    profile_free(&profile);
    profile_load(&profile, receiver.folder, "cpu", RECEIVED_BY_PYROSCOPE);
    ck_assert_int_gt(profile_under(&profile, CPU_NS, "in"), 0);
    ck_assert_int_eq(profile_under_label(&profile, CPU_NS, NULL, "capture", "order", 0), 0);
    profile_free(&profile);
    expect_slice(&with, with.pid, "capture", "order", 1, "in", NULL);
    run_free(&with);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("capture_files");
    TCase *captures = tcase_create("captures");
    tcase_set_timeout(captures, 240);
    tcase_add_test(captures, test_a_thread_has_a_slice);
    tcase_add_test(captures, test_the_process_has_a_slice);
    tcase_add_test(captures, test_threads_end_the_process_s_alone);
    tcase_add_test(captures, test_a_fork_child_is_in_none);
    tcase_add_test(captures, test_a_stop_ends_them);
    tcase_add_test(captures, test_a_storm_of_labels);
    suite_add_tcase(suite, captures);
    TCase *backends = receiver_case(suite, "backends", RECEIVER_HTTP);
    tcase_add_test(backends, test_no_backend_gets_a_copy);
    return suite;
}
