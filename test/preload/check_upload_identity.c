/* As whom profiles are sent: credentials that change, and differ by destination; the container. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/pace.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* A token that is rotated is used by the next upload. */
START_TEST(test_file_is_read_again)
{
    struct run run;
    const char *path = receiver_text("%s/auth", receiver.folder);
    const char *other = receiver_text("%s/auth.new", receiver.folder);
    write_file(path, "PYROSCOPE_AUTH_TOKEN=hush-first\n");
    pace_start(&run, (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://"
                                                    "127.0.0.1:%d",
                                                    receiver.port),
                                      receiver_text("LIBAGENT_AUTH_FILE=%s", path),
                                      "PYROSCOPE_AUTH_TOKEN=hush-old", "LIBAGENT_LOG=debug",
                                      "LIBAGENT_PROFILES=cpu", NULL});
    receiver_wait(&receiver, "pyroscope cpu", 1);
    write_file(other, "PYROSCOPE_AUTH_TOKEN=hush-second\n");
    ck_assert_int_eq(rename(other, path), 0);
    /* One may have been under way. */
    receiver_wait(&receiver, "pyroscope cpu", receiver_count(&receiver, "pyroscope cpu") + 2);
    pace_end(&run);
    run_wait(&run);
    run_expect_success(&run);
    ck_assert_ptr_null(strstr(run.err, "hush"));
    const char *look =
        receiver_text("zcat %s/*.gz %s/*.gz | grep -q hush", run.profiles, receiver.folder);
    ck_assert_int_eq(WEXITSTATUS(system(look)), 1); /* there are such files, and it is in none */
    receiver_read(&receiver);
    int all = receiver_count(&receiver, "pyroscope cpu");
    int first =
        receiver_count_with(&receiver, "pyroscope cpu", "Authorization=Bearer%20hush-first ");
    int second =
        receiver_count_with(&receiver, "pyroscope cpu", "Authorization=Bearer%20hush-second ");
    ck_assert_msg(first >= 1 && second >= 1 && first + second == all, "%s", receiver.log);
    run_free(&run);
}
END_TEST

START_TEST(test_two_of_a_kind)
{
    struct run run;
    int port = receiver.port;
    const char *path = receiver_text("%s/auth", receiver.folder);
    write_file(path, receiver_text("PYROSCOPE_AUTH_TOKEN=all\nPYROSCOPE_TENANT_ID=t1\n"
                                   "[127.0.0.1:%d/=pass]\nPYROSCOPE_BASIC_AUTH_USER=u\n"
                                   "PYROSCOPE_BASIC_AUTH_PASSWORD=p\n"
                                   "[127.0.0.1:1]\nPYROSCOPE_AUTH_TOKEN=other\n",
                                   port));
    run_program(&run, &(struct run_request){
                          .program = "recursion",
                          .arguments = (const char *[]){"malloc", "300", "main", NULL},
                          .environment =
                              (const char *[]){
                                  receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,"
                                                "pyroscope+http://127.0.0.1:%d/=pass",
                                                port, port),
                                  receiver_text("LIBAGENT_AUTH_FILE=%s", path),
                                  "LIBAGENT_PROFILES=cpu", "LIBAGENT_HELP=1", NULL},
                          .seconds = 60});
    run_expect_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 2);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu",
                                         " Authorization=Bearer%20all X-Scope-OrgID=t1 path=/push"),
                     1);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu",
                                         " Authorization=Basic%20dTpw path=/=pass/push"),
                     1);
    ck_assert_ptr_nonnull(strstr(run.err, "with token (hidden), tenant (hidden)"));
    ck_assert_ptr_nonnull(strstr(run.err, "with user (hidden), password (hidden)"));
    run_free(&run);
}
END_TEST

/* One line that says what is wrong with it, and nothing of what stands in it; what is right of it,
 * or what else there is, is sent along. */
START_TEST(test_file_that_is_none)
{
    static const struct {
        const char *text, *told, *header;
    } cases[] = {
        {NULL, "cannot be read: no such file or directory (errno 2)", "Bearer%20old "},
        {"PYROSCOPE_AUTH_TOKEN=new\nPYROSCOPE_AUTH_TOKN=hush\n",
         "line 2 is not understood and left out", "Bearer%20new "},
        {"hush", "line 1 is not understood and left out", "Bearer%20old "},
        {"#\nhush\nPYROSCOPE_AUTH_TOKEN=new\nhush=1\n[\n",
         "lines that are not understood and left out: 3, the first is 2", "Bearer%20new "},
    };
    struct run run;
    const char *path = receiver_text("%s/%d/auth", receiver.folder, _i);
    if (cases[_i].text) {
        ck_assert_int_eq(mkdir(receiver_text("%s/%d", receiver.folder, _i), 0700), 0);
        write_file(path, cases[_i].text);
    }
    run_program(&run, &(struct run_request){
                          .program = "recursion",
                          .arguments = (const char *[]){"malloc", "300", "main", NULL},
                          .environment =
                              (const char *[]){
                                  receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d",
                                                receiver.port),
                                  receiver_text("LIBAGENT_AUTH_FILE=%s", path),
                                  "PYROSCOPE_AUTH_TOKEN=old", "LIBAGENT_PROFILES=cpu,alloc", NULL},
                          .seconds = 60});
    run_expect_success(&run);
    const char *line = strstr(
        run.err, receiver_text("LIBAGENT_AUTH_FILE=%s: %s; accepted is ", path, cases[_i].told));
    ck_assert_msg(line && strstr(line, "UPLOAD_AUTH_TOKEN\n"), "%s", run.err);
    ck_assert_ptr_null(strstr(line + 1, "LIBAGENT_AUTH_FILE"));
    ck_assert_ptr_null(strstr(run.err, "hush"));
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu", cases[_i].header), 1);
    run_free(&run);
}
END_TEST

/* Only where the environment says so, as curl itself. */
START_TEST(test_proxy_of_the_environment)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = "recursion",
                          .arguments = (const char *[]){"malloc", "300", "main", NULL},
                          .environment =
                              (const char *[]){
                                  "LIBAGENT_UPLOAD_URL=pyroscope+http://nowhere.invalid:4040",
                                  receiver_text("http_proxy=http://127.0.0.1:%d", receiver.port),
                                  "no_proxy", "LIBAGENT_PROFILES=cpu", NULL},
                          .seconds = 60});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu",
                                         " path=http://nowhere.invalid:4040/push.v1"),
                     1);
    run_free(&run);
}
END_TEST

/* As in a container: the kernel's text is another. */
START_TEST(test_container)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct run run;
    if (geteuid() != 0)
        return; /* namespaces of mounts are root's */
    const char *path = receiver_text("%s/cgroup", receiver.folder);
    write_file(path, receiver_text("0::/kubepods.slice/cri-containerd-%s.scope\n", id));
    const char *script = receiver_text("mount --bind %s /proc/$$/cgroup; "
                                       "exec env LD_PRELOAD=%s %s malloc 300 main",
                                       path, run_agent_path(), run_program_path("recursion"));
    run_in_own_mounts(
        &run, script,
        (const char *[]){
            receiver_text("LIBAGENT_UPLOAD_URL=datadog+http://127.0.0.1:%d", receiver.port), NULL});
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "datadog all"), 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "datadog all",
                                         receiver_text(" container=%s entity=ci-%s ", id, id)),
                     1);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload_identity");
    TCase *http = receiver_case(suite, "http", RECEIVER_HTTP);
    tcase_add_test(http, test_file_is_read_again);
    tcase_add_loop_test(http, test_file_that_is_none, 0, 4);
    tcase_add_test(http, test_two_of_a_kind);
    tcase_add_test(http, test_proxy_of_the_environment);
    tcase_add_test(http, test_container);
    return suite;
}
