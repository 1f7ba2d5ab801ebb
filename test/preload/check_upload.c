/* Uploads by whole programs, to a receiver that holds each request against the backends' rules. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/pace.h"
#include "test/preload/profile_expect.h"
#include "test/preload/profile_reader.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

/* Half a second of CPU time and some megabytes of allocations; then the end. */
static void recurse(struct run *run, const char *ms, const char *const *environment)
{
    run_program(run,
                &(struct run_request){.program = "recursion",
                                      .arguments = (const char *[]){"malloc", ms, "main", NULL},
                                      .environment = environment,
                                      .seconds = 60});
}

/* Until the receiver has so many such lines. The last window may be too short for a sample. */
static void pace(struct run *run, const char *words, int lines, const char *const *environment)
{
    pace_start(run, environment);
    receiver_wait(&receiver, words, lines);
    pace_end(run);
    run_wait(run);
}

static int files_in(const char *folder, const char *suffix)
{
    char command[256];
    snprintf(command, sizeof(command), "ls -A %s | grep -c '%s$'", folder, suffix);
    FILE *pipe = popen(command, "r");
    int count = -1;
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

/* ---- to each backend ---- */

START_TEST(test_all_backends)
{
    struct run run;
    int port = receiver.port;
    pace(&run, "post heap", 2,
         (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,"
                                        "parca+http://127.0.0.1:%d, datadog+http://127.0.0.1:%d,"
                                        "http://127.0.0.1:%d/plain",
                                        port, port, port, port),
                          "LIBAGENT_TAGS=team:a b,build-no:7", "DD_ENV=prod",
                          "OTEL_RESOURCE_ATTRIBUTES=service.version=1%2E2,env=other",
                          "POD_NAME=p-0", "PYROSCOPE_BASIC_AUTH_USER=me",
                          "PYROSCOPE_BASIC_AUTH_PASSWORD=my secret", "PYROSCOPE_TENANT_ID=t1",
                          "PARCA_BEARER_TOKEN=token", "DD_API_KEY=key", "LIBAGENT_SERVICE=shop",
                          NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    static const char *const kinds[] = {"pyroscope cpu", "pyroscope heap", "parca cpu",
                                        "parca heap",    "post cpu",       "post heap",
                                        "datadog all"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(receiver_count(&receiver, kinds[i]) >= 2, "%s:\n%s", kinds[i], receiver.log);
    /* Each with its labels, and its own credentials alone. */
    ck_assert_int_eq(
        receiver_count(&receiver, "pyroscope cpu"),
        receiver_count_with(&receiver, "pyroscope cpu", "service_name=shop __delta__=false host="));
    ck_assert_int_ge(receiver_count_with(&receiver, "pyroscope heap",
                                         "team=a%20b build_no=7 version=1.2 env=other pod_name=p-0 "
                                         "Authorization=Basic%20bWU6bXkgc2VjcmV0 X-Scope-OrgID=t1"),
                     2);
    ck_assert_int_ge(receiver_count_with(&receiver, "parca cpu", "Authorization=Bearer%20token"),
                     2);
    ck_assert_int_ge(receiver_count_with(&receiver, "datadog all", "key=None"), 2);
    ck_assert_int_ge(receiver_count_with(&receiver, "datadog all", "service=shop team=a%20b"), 2);
    ck_assert_int_eq(receiver_count_with(&receiver, "post cpu", "Authorization"), 0);
    run_free(&run);
}
END_TEST

/* Each of two of a kind gets all profiles; what one does not take waits in the spool for that one.
 */
START_TEST(test_two_of_a_kind)
{
    struct run run;
    const char *spool = receiver_text("LIBAGENT_SPOOL=%s/spool", receiver.folder);
    int port = receiver.port;
    pace(&run, "fault 200", 2,
         (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,"
                                        "pyroscope+http://127.0.0.1:%d/=503,"
                                        "pyroscope+http://127.0.0.1:%d/=200",
                                        port, port, port),
                          spool, "LIBAGENT_PROFILES=cpu", NULL});
    run_expect_success(&run);
    const char *line =
        receiver_text("a profile was not taken by pyroscope at 127.0.0.1:%d: ", port);
    ck_assert_msg(strstr(run.err, line) != NULL, "%s", run.err);
    receiver_read(&receiver);
    int made = (int)run_file_count(&run, ".pb.gz");
    ck_assert_int_ge(made, 2);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), made);
    ck_assert_int_eq(receiver_count(&receiver, "fault 200"), made);
    ck_assert_int_eq(files_in(strchr(spool, '=') + 1, ".2.pyroscope.spool"), made);
    ck_assert_int_eq(files_in(strchr(spool, '=') + 1, ""), made);
    run_free(&run);
}
END_TEST

/* What arrives is what a file would hold: the same sums, by the same reader. */
START_TEST(test_what_arrives_is_true)
{
    struct run run;
    pace(&run, "parca cpu", 2,
         (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,"
                                        "parca+http://127.0.0.1:%d",
                                        receiver.port, receiver.port),
                          NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_ge(receiver_count(&receiver, "pyroscope cpu"), 2);
    struct profile profile;
    profile_load(&profile, run.profiles, "cpu", run.pid);
    int64_t in_files = profile_total(&profile, CPU_NS);
    /* What is for a backend alone is no file that failed. */
    ck_assert(!profile_has_comment(&profile, "windows that could not be written"));
    profile_free(&profile);
    for (int kind = RECEIVED_BY_PYROSCOPE; kind <= RECEIVED_BY_PARCA; kind++) {
        profile_load(&profile, receiver.folder, "cpu", kind);
        ck_assert_int_eq(profile_total(&profile, CPU_NS), in_files);
        profile_free(&profile);
    }
    run_free(&run);
}
END_TEST

/* What is live is a profile of its own there, with nothing in it of what was allocated. */
START_TEST(test_live_heap_for_parca)
{
    enum { LEFT = 60, MADE = 100, SIZE = 1000 };
    struct run run;
    struct profile profile;
    run_program(
        &run, &(struct run_request){
                  .program = "live_heap",
                  .arguments = (const char *[]){"plain", NULL},
                  .environment = (const char *[]){
                      receiver_text("LIBAGENT_UPLOAD_URL=parca+http://127.0.0.1:%d", receiver.port),
                      "LIBAGENT_ALLOC_INTERVAL=1", "LIBAGENT_OUTPUT", NULL}});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "parca heap"), 1);
    ck_assert_int_eq(receiver_count(&receiver, "parca_live heap"), 1);
    profile_load(&profile, receiver.folder, "heap", RECEIVED_LIVE_BY_PARCA);
    ck_assert_int_eq(profile_self(&profile, LIVE_BYTES, "site_kept"), LEFT * SIZE);
    ck_assert_int_eq(profile_total(&profile, ALLOC_BYTES), 0);
    profile_free(&profile);
    profile_load(&profile, receiver.folder, "heap", RECEIVED_BY_PARCA);
    ck_assert_int_eq(profile_self(&profile, ALLOC_BYTES, "site_kept"), MADE * SIZE);
    ck_assert_int_eq(profile_total(&profile, LIVE_BYTES), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_without_output_no_file)
{
    struct run run;
    recurse(&run, "300",
            (const char *[]){
                receiver_text("PYROSCOPE_SERVER_ADDRESS=http://127.0.0.1:%d", receiver.port),
                "LIBAGENT_OUTPUT", NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu", "service_name=prog_recursion"),
                     1);
    ck_assert_int_ne(access(receiver_text("%s/libagent-%d", run.folder, (int)getuid()), F_OK), 0);
    run_free(&run);
}
END_TEST

START_TEST(test_file_url)
{
    struct run run;
    recurse(&run, "300",
            (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=file://%s", receiver.folder),
                             "LIBAGENT_OUTPUT", NULL});
    run_expect_quiet_success(&run);
    struct profile profile;
    profile_load(&profile, receiver.folder, "cpu", run.pid);
    ck_assert_uint_eq(profile.file_count, 1);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Which of two folders counts is told; the same one twice is no news. */
START_TEST(test_file_url_beside_output)
{
    struct run run;
    const char *own = receiver_text("%s/own", receiver.folder);
    for (int is_same = 0; is_same < 2; is_same++) {
        const char *other = is_same ? own : receiver_text("%s/other", receiver.folder);
        recurse(&run, "300",
                (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=file://%s", other),
                                 receiver_text("LIBAGENT_OUTPUT=%s", own), "LIBAGENT_PROFILES=cpu",
                                 NULL});
        run_expect_success(&run);
        const char *line = receiver_text("libagent: warn: LIBAGENT_OUTPUT=%s is the one folder of "
                                         "files: nothing is written into file://%s of "
                                         "LIBAGENT_UPLOAD_URL\n",
                                         own, other);
        ck_assert_str_eq(run.err, is_same ? "" : line);
        ck_assert_int_eq(files_in(own, ".pb.gz"), 1 + is_same);
        ck_assert_int_ne(access(receiver_text("%s/other", receiver.folder), F_OK), 0);
        run_free(&run);
    }
}
END_TEST

/* The variables of Datadog's own libraries; its agent by a unix socket. */
START_TEST(test_datadog_socket)
{
    struct run run;
    recurse(&run, "300",
            (const char *[]){receiver_text("DD_TRACE_AGENT_URL=unix://%s", receiver.socket),
                             "DD_PROFILING_ENABLED=true", "DD_SERVICE=shop", "DD_VERSION=3",
                             "LIBAGENT_OUTPUT", NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count_with(&receiver, "datadog all", "service=shop version=3"), 1);
    run_free(&run);
}
END_TEST

/* The intake wants the key, which the file gives, and another path. */
START_TEST(test_datadog_key_of_file)
{
    struct run run;
    const char *path = receiver_text("%s/auth", receiver.folder);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("# ours\nDD_API_KEY=abc123\r\nPARCA_BEARER_TOKEN=no\n", file);
    fclose(file);
    recurse(&run, "300",
            (const char *[]){
                receiver_text("LIBAGENT_UPLOAD_URL=datadog+http://127.0.0.1:%d/api/v2/profile",
                              receiver.port),
                receiver_text("LIBAGENT_AUTH_FILE=%s", path), "DD_API_KEY=old",
                "LIBAGENT_LOG=debug", "LIBAGENT_HELP=1", NULL});
    run_expect_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count_with(&receiver, "datadog all", "key=abc123"), 1);
    ck_assert_ptr_nonnull(strstr(run.err, "API key (hidden)"));
    ck_assert_ptr_null(strstr(run.err, "abc123"));
    run_free(&run);
}
END_TEST

/* A certificate that our file vouches for; without it nothing is sent. */
START_TEST(test_tls)
{
    struct run run;
    const char *url =
        receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+https://127.0.0.1:%d", receiver.port);
    recurse(
        &run, "300",
        (const char *[]){url, receiver_text("LIBAGENT_CA_FILE=%s/ca.pem", receiver.folder), NULL});
    run_expect_quiet_success(&run);
    run_free(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
    recurse(&run, "300", (const char *[]){url, NULL});
    run_expect_success(&run);
    ck_assert_ptr_nonnull(strstr(run.err, "a profile was not taken by pyroscope at 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(run.err, "could not be sent before the end and are lost: 2; "));
    run_free(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
}
END_TEST

/* Which file is wrong, and why, in one line for both profiles; libcurl tells neither. */
START_TEST(test_tls_with_a_file_that_is_none)
{
    static const struct {
        const char *file, *told;
    } cases[] = {
        {"/etc/absent.pem", "cannot be read: no such file or directory (errno 2)"},
        {"/etc", "cannot be read: no regular file (errno 21)"},
        {"/etc/passwd", "no certificate is in it"},
    };
    struct run run;
    const char *option = receiver_text("LIBAGENT_CA_FILE=%s", cases[_i].file);
    recurse(&run, "300",
            (const char *[]){
                receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+https://127.0.0.1:%d", receiver.port),
                option, NULL});
    run_expect_success(&run);
    const char *line = strstr(run.err, receiver_text("%s: %s; accepted is a file of certificates "
                                                     "(PEM)\n",
                                                     option, cases[_i].told));
    ck_assert_msg(line != NULL, "%s", run.err);
    ck_assert_ptr_null(strstr(line + 1, "LIBAGENT_CA_FILE"));
    run_free(&run);
}
END_TEST

/* ---- the spool, and what is said ---- */

/* What could not be sent is kept, and sent by the next process, once. */
START_TEST(test_spool)
{
    enum { EACH = 2 }; /* of cpu and heap */
    struct run run;
    const char *spool = receiver_text("LIBAGENT_SPOOL=%s/spool", receiver.folder);
    const char *folder = strchr(spool, '=') + 1;
    for (int i = 0; i < EACH; i++) {
        recurse(&run, "300",
                (const char *[]){"LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:1", spool,
                                 "LIBAGENT_SERVICE=first", "DD_ENV=e", NULL});
        run_expect_success(&run);
        ck_assert_int_eq(files_in(folder, ".pyroscope.spool"), 2 * (i + 1));
        ck_assert_int_eq(files_in(folder, ""), 2 * (i + 1));
        run_free(&run);
    }
    pace(&run, "pyroscope heap", EACH + 1,
         (const char *[]){
             receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d", receiver.port),
             spool, "LIBAGENT_SERVICE=second", NULL});
    run_expect_quiet_success(&run);
    run_free(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(files_in(folder, ""), 0);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu", "service_name=first"), EACH);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope heap", "service_name=first"), EACH);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu", "env=e"), EACH);
    receiver_expect_each_once(&receiver, "pyroscope cpu");
    receiver_expect_each_once(&receiver, "pyroscope heap");
}
END_TEST

/* With a spool alone nothing is sent, and no thread is libc's; each profile is in it. */
START_TEST(test_spool_alone)
{
    static const char *const kinds[] = {"pyroscope", "parca", "datadog", "post"};
    struct run run;
    for (int i = 0; i < 4; i++) {
        const char *folder = receiver_text("%s/%s", receiver.folder, kinds[i]);
        recurse(&run, "300",
                (const char *[]){
                    receiver_text("LIBAGENT_SPOOL=%s", folder),
                    receiver_text("LIBAGENT_DIALECT=%s", kinds[i]), "LIBAGENT_OUTPUT",
                    /* What is live has a profile of its own for Parca, where a sample is left. */
                    "LIBAGENT_PROFILES=cpu,alloc", NULL});
        run_expect_quiet_success(&run);
        ck_assert_int_eq(files_in(folder, ".spool"), strcmp(kinds[i], "datadog") == 0 ? 1 : 2);
        run_free(&run);
    }
}
END_TEST

/* One line at the first, one with the sum at the end, whether it was to be sent before or not. */
START_TEST(test_spool_that_takes_nothing)
{
    static const char *const urls[] = {"LIBAGENT_UPLOAD_URL",
                                       "LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:1"};
    struct run run;
    recurse(&run, "300",
            (const char *[]){"LIBAGENT_SPOOL=/proc/no/spool", urls[_i], "LIBAGENT_OUTPUT",
                             "LIBAGENT_PROFILES=cpu,alloc", NULL});
    run_expect_success(&run);
    const char *first = strstr(run.err, "a profile cannot be kept in /proc/no/spool "
                                        "(LIBAGENT_SPOOL): no such file or directory");
    ck_assert_msg(first != NULL, "%s", run.err);
    ck_assert_ptr_null(strstr(first + 1, "a profile cannot be kept"));
    ck_assert_msg(strstr(first, "profiles that could not be kept in /proc/no/spool "
                                "(LIBAGENT_SPOOL) and are lost: 2\n"),
                  "%s", run.err);
    ck_assert_ptr_null(strstr(run.err, "could not be sent before the end"));
    run_free(&run);
}
END_TEST

START_TEST(test_wrong_url_sends_nothing)
{
    struct run run;
    recurse(&run, "300",
            (const char *[]){
                receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://me:secret@127.0.0.1:%d",
                              receiver.port),
                NULL});
    run_expect_success(&run);
    ck_assert_ptr_nonnull(strstr(run.err, "LIBAGENT_UPLOAD_URL's 1. is not understood"));
    ck_assert_ptr_null(strstr(run.err, "secret"));
    ck_assert_uint_eq(run_file_count(&run, ".pb.gz"), 2);
    receiver_read(&receiver);
    ck_assert_str_eq(receiver.log, "");
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload");
    TCase *http = receiver_case(suite, "http", RECEIVER_HTTP);
    tcase_add_test(http, test_all_backends);
    tcase_add_test(http, test_two_of_a_kind);
    tcase_add_test(http, test_what_arrives_is_true);
    tcase_add_test(http, test_live_heap_for_parca);
    tcase_add_test(http, test_without_output_no_file);
    tcase_add_test(http, test_file_url);
    tcase_add_test(http, test_file_url_beside_output);
    tcase_add_test(http, test_datadog_key_of_file);
    tcase_add_test(http, test_spool);
    tcase_add_test(http, test_spool_alone);
    tcase_add_loop_test(http, test_spool_that_takes_nothing, 0, 2);
    tcase_add_test(http, test_wrong_url_sends_nothing);
    tcase_add_test(receiver_case(suite, "unix", RECEIVER_UNIX), test_datadog_socket);
    TCase *tls = receiver_case(suite, "tls", RECEIVER_TLS);
    tcase_add_test(tls, test_tls);
    tcase_add_loop_test(tls, test_tls_with_a_file_that_is_none, 0, 3);
    return suite;
}
