/* What uploads do to the program: its own libcurl, its end, its children, its descriptors. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"
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
    run_program(&run, &(struct run_request){
                          .program = "/usr/bin/unshare",
                          .arguments = (const char *[]){"-m", "sh", "-ec", script, NULL},
                          .environment =
                              (const char *[]){
                                  receiver_text("LIBAGENT_UPLOAD_URL=parca+http://127.0.0.1:%d",
                                                receiver.port),
                                  "LIBAGENT_PERIOD=1s", "LIBAGENT_LOG=debug", NULL},
                          .without_agent = true,
                          .seconds = 60});
    run_expect_success(&run);
    const char *line = strstr(run.err, "profiles are not sent: there is no libcurl.so.4");
    ck_assert_msg(line != NULL, "%s", run.err);
    ck_assert_ptr_null(strstr(line + 1, "profiles are not sent"));
    ck_assert_ptr_nonnull(strstr(run.err, "cpu 0 for parca: dropped"));
    ck_assert_uint_ge(run_file_count(&run, ".cpu.pb.gz"), 2);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload_harm");
    TCase *http = receiver_case(suite, "http", RECEIVER_HTTP);
    tcase_add_test(http, test_main_leaves);
    tcase_add_test(http, test_no_descriptor_survives_exec);
    tcase_add_test(http, test_without_libcurl);
    tcase_add_test(http, test_children);
    tcase_add_test(receiver_case(suite, "tls", RECEIVER_TLS), test_own_libcurl_of_another_kind);
    return suite;
}
