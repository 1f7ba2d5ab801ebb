/* What uploads do to the program: its own libcurl, its end, its children, its descriptors. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/pace.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

/* The same with uploads each second, and without the agent. */
static void run_both(struct run *with, struct run *without, const char *program,
                     const char *const *arguments, const char *scheme)
{
    const char *const environment[] = {
        receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+%s://127.0.0.1:%d", scheme, receiver.port),
        receiver_text("LIBAGENT_CA_FILE=%s/ca.pem", receiver.folder), "LIBAGENT_PERIOD=1s",
        /* On a busy machine: what is tested is what happens, not how fast. */
        "LIBAGENT_EXIT_TIMEOUT=20s", NULL};
    struct run_request request = {
        .program = program, .arguments = arguments, .environment = environment, .seconds = 60};
    run_start(with, &request);
    request.without_agent = true;
    run_start(without, &request);
    run_wait(without);
    run_wait(with);
    run_expect_same(with, without);
    run_expect_quiet_success(with);
    receiver_read(&receiver);
}

static void free_both(struct run *with, struct run *without)
{
    run_free(with);
    run_free(without);
}

START_TEST(test_own_libcurl_of_another_kind)
{
    struct run with, without;
    const char *url = receiver_text("https://127.0.0.1:%d/=200", receiver.port);
    const char *ca = receiver_text("%s/ca.pem", receiver.folder);
    run_both(&with, &without, "own_curl", (const char *[]){url, ca, "3", NULL}, "https");
    ck_assert_str_eq(with.out, "good\n");
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 2);
    free_both(&with, &without);
}
END_TEST

/* No child is born while the agent's end is on its way into exit's list, whose lock would stay. */
START_TEST(test_children_and_the_list_of_exit)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "exit_list",
                          .environment = (const char *[]){
                              receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d",
                                            receiver.port),
                              "LIBAGENT_ALLOC_INTERVAL=16KiB", NULL}});
    run_expect_quiet_success(&run);
    ck_assert_int_ge(run_number(&run, "registered"), 3);
    ck_assert_int_eq(run_number(&run, "born-in-list"), 0);
    run_free(&run);
}
END_TEST

/* exit ends the OpenSSL that libcurl is to use before it calls what was registered earlier, as all
 * was that came before the program first used it. */
START_TEST(test_own_openssl)
{
    struct run with, without;
    run_both(&with, &without, "own_openssl", NULL, "https");
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 1);
    free_both(&with, &without);
}
END_TEST

/* The program ended it by itself: libcurl, which is set up no sooner than for the last window,
 * would crash. */
START_TEST(test_own_openssl_is_ended)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "own_openssl",
                          .arguments = (const char *[]){"ends", NULL},
                          .environment = (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL="
                                                                        "pyroscope+http://"
                                                                        "127.0.0.1:%d",
                                                                        receiver.port),
                                                          NULL},
                          .seconds = 60});
    run_expect_success(&run);
    ck_assert_str_eq(run.out, "done\n");
    ck_assert_msg(strstr(run.err, "the program has ended OpenSSL") != NULL, "%s", run.err);
    ck_assert_msg(strstr(run.err, "are lost: ") != NULL, "%s", run.err);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 0);
    run_free(&run);
}
END_TEST

/* libc ends the process with its last thread; ours are libc's here, and go when nothing is left. */
START_TEST(test_main_leaves)
{
    struct run with, without;
    run_both(&with, &without, "main_leaves", (const char *[]){"2500", NULL}, "http");
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 2);
    free_both(&with, &without);
}
END_TEST

START_TEST(test_no_descriptor_survives_exec)
{
    struct run with, without;
    static const char script[] = "i=0; while [ $i -lt 900000 ]; do i=$((i+1)); done; "
                                 "exec ls /proc/self/fd";
    run_both(&with, &without, "/bin/sh", (const char *[]){"-c", script, NULL}, "http");
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 1);
    free_both(&with, &without);
}
END_TEST

/* setenv, putenv, and a table of the program's own: it moves while libcurl, in a thread of ours,
 * walks along it. A table that is left behind has room beside it for twice as many. */
START_TEST(test_environment_moves)
{
    struct run run;
    const char *way = receiver_text("%d", _i);
    run_program(&run, &(struct run_request){
                          .program = "environment",
                          .arguments = (const char *[]){way, NULL},
                          .environment =
                              (const char *[]){
                                  receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d",
                                                receiver.port),
                                  "LIBAGENT_PERIOD=1s", NULL},
                          .seconds = 60});
    run_expect_quiet_success(&run);
    ck_assert_int_eq(run_number(&run, "whole"), 1);
    ck_assert_int_eq(run_number(&run, "names"), 400);
    ck_assert_int_ge(run_number(&run, "moves"), 2);
    ck_assert_int_le(run_number(&run, "moves"), 8);
    run_free(&run);
}
END_TEST

/* A server that has taken all and says nothing: an upload is under way until the end. */
static void start_stalled(struct run *run, const char *program, const char *const *arguments,
                          const char *scheme)
{
    run_start(run,
              &(struct run_request){
                  .program = program,
                  .arguments = arguments,
                  .environment =
                      (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+%s://"
                                                     "127.0.0.1:%d/=stall",
                                                     scheme, receiver.port),
                                       receiver_text("LIBAGENT_CA_FILE=%s/ca.pem", receiver.folder),
                                       "LIBAGENT_PERIOD=1s", "LIBAGENT_FREQUENCY=500",
                                       "LIBAGENT_LOG=error", "LIBAGENT_EXIT_TIMEOUT=300ms", NULL},
                  .beside = strcmp(scheme, "https") == 0 ? run_program_path("exit_order") : NULL,
                  .seconds = 60});
    receiver_wait(&receiver, "fault stall", 1);
    pace_end(run);
    run_wait(run);
    run_expect_success(run);
}

/* Nothing of the program's is held open meanwhile, and it has nothing of the agent's. */
START_TEST(test_descriptors_while_it_sends)
{
    struct run run;
    start_stalled(&run, "upload_pipe", NULL, "http");
    ck_assert_str_eq(run.out, "new 0\nsender has some\nsenders 1\nshared 0\nend of the pipe\n");
    run_free(&run);
}
END_TEST

START_TEST(test_exec_while_it_sends)
{
    struct run with, without;
    static const char script[] = "while [ ! -e end ]; do :; done; exec ls /proc/self/fd";
    static const char *const arguments[] = {"-c", script, NULL};
    start_stalled(&with, "/bin/sh", arguments, "http");
    run_start(&without, &(struct run_request){
                            .program = "/bin/sh", .arguments = arguments, .without_agent = true});
    pace_end(&without);
    run_wait(&without);
    ck_assert_str_eq(with.out, without.out);
    free_both(&with, &without);
}
END_TEST

/* The last of its lines in the file `order` of the run's folder, from 1; 0: it has none. */
static int last_in_order(const struct run *run, const char *object)
{
    FILE *file = fopen(receiver_text("%s/order", run->folder), "r");
    ck_assert_ptr_nonnull(file);
    char line[PATH_MAX];
    int last = 0;
    for (int number = 1; fgets(line, sizeof(line), file); number++)
        if (strstr(line, object))
            last = number;
    fclose(file);
    return last;
}

/* exit calls what was registered last first: the agent ends before the libraries of the upload that
 * its thread is in, at that very moment; of the TLS library nothing is left to exit. */
START_TEST(test_ends_before_the_upload_libraries)
{
    struct run run;
    start_stalled(&run, "paces", NULL, "https");
    int agent = last_in_order(&run, "/libagent.so");
    ck_assert_int_gt(agent, last_in_order(&run, "/libcurl.so"));
    ck_assert_int_eq(last_in_order(&run, "/libcrypto.so"), 0);
    ck_assert_int_eq(last_in_order(&run, "/libssl.so"), 0);
    run_free(&run);
}
END_TEST

/* Children that are forked while uploads are under way end, and upload themselves. */
START_TEST(test_children)
{
    struct run with, without;
    static const char script[] = "import os, time\n"
                                 "def burn(s):\n"
                                 "    end = time.process_time() + s\n"
                                 "    while time.process_time() < end: sum(bytearray(100000))\n"
                                 "burn(1.2)\n"
                                 "for i in range(30):\n"
                                 "    pid = os.fork()\n"
                                 "    if pid == 0:\n"
                                 "        burn(0.05)\n"
                                 "        raise SystemExit(i)\n"
                                 "    burn(0.02)\n"
                                 "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    run_both(&with, &without, "/usr/bin/python3", (const char *[]){"-c", script, NULL}, "http");
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 20);
    free_both(&with, &without);
}
END_TEST

/* Where no other is: a file beside libagent.so is used. */
START_TEST(test_libcurl_beside)
{
    struct run run;
    if (geteuid() != 0)
        return; /* namespaces of mounts are root's */
    const char *folder = receiver_text("%s/beside", receiver.folder);
    const char *script =
        receiver_text("mkdir %s; cp -L /usr/lib/$(uname -m)-linux-gnu/libcurl.so.4 %s %s; "
                      "for f in /usr/lib/*/libcurl*.so.*; do mount --bind /dev/null $f; done; "
                      "exec env LD_PRELOAD=%s/libagent.so %s malloc 300 main",
                      folder, run_agent_path(), folder, folder, run_program_path("recursion"));
    run_in_own_mounts(
        &run, script,
        (const char *[]){
            receiver_text("LIBAGENT_UPLOAD_URL=parca+http://127.0.0.1:%d", receiver.port), NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "parca cpu"), 1);
    run_free(&run);
}
END_TEST

/* One line; what would have been sent is counted, files go on, the program is as it is. */
START_TEST(test_without_libcurl)
{
    struct run run;
    if (geteuid() != 0)
        return; /* namespaces of mounts are root's */
    const char *script =
        receiver_text("for f in /usr/lib/*/libcurl*.so.*; do mount --bind /dev/null $f; done; "
                      "exec env LD_PRELOAD=%s %s malloc 1500 main",
                      run_agent_path(), run_program_path("recursion"));
    run_in_own_mounts(
        &run, script,
        (const char *[]){
            receiver_text("LIBAGENT_UPLOAD_URL=parca+http://127.0.0.1:%d", receiver.port),
            "LIBAGENT_PERIOD=1s", "LIBAGENT_LOG=debug", NULL});
    run_expect_success(&run);
    const char *line = strstr(run.err, "profiles are not sent: there is no libcurl.so.4");
    ck_assert_msg(line != NULL, "%s", run.err);
    ck_assert_ptr_null(strstr(line + 1, "profiles are not sent"));
    ck_assert_ptr_nonnull(
        strstr(run.err, receiver_text("cpu 0 for parca at 127.0.0.1:%d: dropped", receiver.port)));
    ck_assert_uint_ge(run_file_count(&run, ".cpu.pb.gz"), 2);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload_harm");
    TCase *http = receiver_case(suite, "http", RECEIVER_HTTP);
    tcase_add_test(http, test_own_openssl_is_ended);
    tcase_add_test(http, test_main_leaves);
    tcase_add_test(http, test_no_descriptor_survives_exec);
    tcase_add_test(http, test_descriptors_while_it_sends);
    tcase_add_test(http, test_exec_while_it_sends);
    tcase_add_test(http, test_libcurl_beside);
    tcase_add_test(http, test_without_libcurl);
    tcase_add_test(http, test_children);
    tcase_add_test(http, test_children_and_the_list_of_exit);
    tcase_add_loop_test(http, test_environment_moves, 0, 3);
    TCase *tls = receiver_case(suite, "tls", RECEIVER_TLS);
    tcase_add_test(tls, test_own_openssl);
    tcase_add_test(tls, test_own_libcurl_of_another_kind);
    tcase_add_test(tls, test_ends_before_the_upload_libraries);
    return suite;
}
