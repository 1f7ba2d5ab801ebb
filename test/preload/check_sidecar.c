/* libagent-uploader: it sends what programs leave in a spool, in the form of each backend, and ends
 * when it is told; and a pod acted out by namespaces: the program without network and libcurl, the
 * sender beside it with a root that cannot be written, each another user. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

enum { TRY_NS = 10000000 };

static char spool[TEMP_PATH_SIZE + 16];

static const char *uploader_path(void)
{
    const char *path = getenv("LIBAGENT_UPLOADER");
    ck_assert_ptr_nonnull(path);
    return path;
}

static const char *upload_urls(void)
{
    int port = receiver.port;
    return receiver_text(
        "LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d,parca+http://127.0.0.1:%d,"
        "datadog+http://127.0.0.1:%d,http://127.0.0.1:%d/plain",
        port, port, port, port);
}

static void leave_profiles(const char *dialect)
{
    struct run run;
    run_program(&run,
                &(struct run_request){
                    .program = "recursion",
                    .arguments = (const char *[]){"malloc", "300", "main", NULL},
                    .environment = (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool),
                                                    receiver_text("LIBAGENT_DIALECT=%s", dialect),
                                                    "LIBAGENT_OUTPUT", "DD_ENV=pod",
                                                    "LIBAGENT_SERVICE=app", NULL},
                    .seconds = 60});
    run_expect_quiet_success(&run);
    run_free(&run);
}

static int count_spooled(void)
{
    int count = -1;
    FILE *pipe = popen(receiver_text("ls -A %s | wc -l", spool), "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static void start_uploader_to(struct run *run, const char *port, const char *urls)
{
    run_start(run, &(struct run_request){
                       .program = uploader_path(),
                       .arguments = (const char *[]){port, NULL},
                       .environment = (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool),
                                                       urls, "LIBAGENT_OUTPUT", NULL},
                       .without_agent = true,
                       .seconds = 90});
}

static void start_uploader(struct run *run, const char *port)
{
    start_uploader_to(run, port, upload_urls());
}

START_TEST(test_sends_each_dialect)
{
    static const char *const dialects[] = {"pyroscope", "parca", "datadog", "post"};
    struct run run;
    leave_profiles("pyroscope");
    /* Before it is there, and while. */
    start_uploader(&run, NULL);
    for (int i = 1; i < 4; i++)
        leave_profiles(dialects[i]);
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    receiver_wait(&receiver, "parca heap", 1);
    receiver_wait(&receiver, "datadog all", 1);
    receiver_wait(&receiver, "post heap", 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope cpu", "service_name=app "), 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "parca cpu", "env=pod"), 1);
    run_stop(&run, SIGTERM);
    run_expect_quiet_success(&run);
    run_free(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
    ck_assert_int_eq(count_spooled(), 0);
}
END_TEST

/* What is there when it is told to end is sent yet. */
START_TEST(test_sends_at_the_end)
{
    struct run run;
    leave_profiles("parca");
    start_uploader(&run, NULL);
    receiver_wait(&receiver, "parca heap", 1);
    leave_profiles("pyroscope");
    leave_profiles("datadog");
    run_stop(&run, SIGTERM);
    run_expect_quiet_success(&run);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 1);
    ck_assert_int_eq(receiver_count(&receiver, "datadog all"), 1);
    ck_assert_int_eq(count_spooled(), 0);
    run_free(&run);
}
END_TEST

START_TEST(test_wants_to_know_where)
{
    struct run run;
    run_program(&run,
                &(struct run_request){.program = uploader_path(),
                                      .environment = (const char *[]){"LIBAGENT_OUTPUT", NULL},
                                      .without_agent = true});
    ck_assert_int_eq(WEXITSTATUS(run.status), 2);
    ck_assert_ptr_nonnull(strstr(run.err, "LIBAGENT_SPOOL and LIBAGENT_UPLOAD_URL"));
    run_free(&run);
}
END_TEST

/* The one line is of what is wrong. */
START_TEST(test_tells_what_keeps_it_from_starting)
{
    static const char *const wrong[] = {"LIBAGENT_SPOOL_LIMIT=x", "LIBAGENT_EXIT_TIMEOUT=x", NULL};
    const char *option = wrong[_i];
    /* The receiver's is taken. */
    const char *port = option ? NULL : receiver_text("%d", receiver.port);
    const char *line =
        option ? receiver_text("libagent: error: %s is not understood: ", option)
               : receiver_text("libagent: error: libagent-uploader cannot listen on port %d: "
                               "address already in use (errno 98)\n",
                               receiver.port);
    struct run run;
    ck_assert_int_eq(mkdir(spool, 0700), 0);
    run_program(&run,
                &(struct run_request){
                    .program = uploader_path(),
                    .arguments = (const char *[]){port, NULL},
                    .environment = (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool),
                                                    upload_urls(), "LIBAGENT_OUTPUT", option, NULL},
                    .without_agent = true});
    ck_assert_int_eq(WEXITSTATUS(run.status), 2);
    ck_assert_msg(strncmp(run.err, line, strlen(line)) == 0, "%s", run.err);
    ck_assert_msg(strchr(run.err, '\n') == run.err + strlen(run.err) - 1, "%s", run.err);
    run_free(&run);
}
END_TEST

/* What it answers to a GET of the path, with the status behind it; "": nobody listens. */
static const char *ask(const char *port, const char *path)
{
    static char text[4096];
    FILE *pipe = popen(
        receiver_text("curl -s -w '%%{http_code}' http://127.0.0.1:%s%s 2> /dev/null", port, path),
        "r");
    ck_assert_ptr_nonnull(pipe);
    size_t length = fread(text, 1, sizeof(text) - 1, pipe);
    text[length] = 0;
    return pclose(pipe) == 0 ? text : "";
}

/* Nobody else's, it is to be hoped: programs take their ports from 32768 on. */
static const char *own_port(void)
{
    static char port[8];
    snprintf(port, sizeof(port), "%d", 20000 + (int)getpid() % 10000);
    return port;
}

static void wait_for_answer(const char *port, const char *path, const char *words)
{
    enum { TRIES = 3000 };
    for (int i = 0; !strstr(ask(port, path), words); i++) {
        ck_assert_msg(i < TRIES, "%s", ask(port, path));
        nanosleep(&(struct timespec){0, TRY_NS}, NULL);
    }
}

START_TEST(test_metrics)
{
    struct run run;
    const char *port = own_port();
    leave_profiles("pyroscope");
    start_uploader(&run, port);
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    wait_for_answer(port, "/metrics", "libagent_uploader_sent_total 2\n");
    static const char *const names[] = {"sent", "dropped", "unknown", "repeated"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_ptr_nonnull(strstr(ask(port, "/metrics"),
                                     receiver_text("# TYPE libagent_uploader_%s_total counter\n"
                                                   "libagent_uploader_%s_total %d\n",
                                                   names[i], names[i], i == 0 ? 2 : 0)));
    ck_assert_str_eq(ask(port, "/healthz"), "ok\n200");
    ck_assert_ptr_nonnull(strstr(ask(port, "/nothing"), "404"));
    run_stop(&run, SIGTERM);
    run_expect_quiet_success(&run);
    ck_assert_str_eq(ask(port, "/healthz"), "");
    run_free(&run);
}
END_TEST

static void expect_one_line(const struct run *run, const char *words)
{
    run_expect_success(run);
    ck_assert_msg(strstr(run->err, words) != NULL, "%s", run->err);
    ck_assert_msg(strchr(run->err, '\n') == run->err + strlen(run->err) - 1, "%s", run->err);
}

/* It is told while it is so, and what comes then is sent. */
START_TEST(test_tells_that_the_folder_is_not_there)
{
    struct run run;
    const char *port = own_port();
    start_uploader(&run, port);
    wait_for_answer(port, "/healthz", "503");
    leave_profiles("pyroscope");
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    wait_for_answer(port, "/healthz", "ok\n200");
    run_stop(&run, SIGTERM);
    expect_one_line(&run, "(LIBAGENT_SPOOL) cannot be used: no such file or directory (errno 2)");
    run_free(&run);
}
END_TEST

static void start_as(struct run *run, const char *user, const char *port)
{
    run_start(run, &(struct run_request){
                       .program = "/usr/bin/setpriv",
                       .arguments = (const char *[]){receiver_text("--reuid=%s", user),
                                                     receiver_text("--regid=%s", user),
                                                     "--clear-groups", uploader_path(), port, NULL},
                       .environment = (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool),
                                                       upload_urls(), "LIBAGENT_OUTPUT", NULL},
                       .without_agent = true,
                       .seconds = 90});
}

/* A folder of all without a group: what it may not read stays for who may; what it may is sent. */
START_TEST(test_tells_what_it_may_not_read)
{
    struct run run;
    const char *port = own_port();
    if (geteuid() != 0)
        return; /* another user is to leave them */
    ck_assert_int_eq(chmod(receiver.folder, 0711), 0);
    ck_assert_int_eq(mkdir(spool, 0777), 0);
    ck_assert_int_eq(chmod(spool, 0777), 0);
    leave_profiles("pyroscope");
    start_as(&run, "65534", port);
    wait_for_answer(port, "/metrics", "libagent_uploader_untaken 2\n");
    ck_assert_str_eq(ask(port, "/healthz"),
                     "LIBAGENT_SPOOL has profiles that cannot be read: see the log\n503");
    ck_assert_int_eq(chown(spool, 0, 65534), 0);
    ck_assert_int_eq(chmod(spool, 02777), 0);
    leave_profiles("parca");
    receiver_wait(&receiver, "parca cpu", 1);
    receiver_wait(&receiver, "parca heap", 1);
    wait_for_answer(port, "/healthz", "ok\n200");
    ck_assert_ptr_nonnull(strstr(ask(port, "/metrics"), "libagent_uploader_untaken 2\n"));
    run_stop(&run, SIGTERM);
    expect_one_line(&run, ".pyroscope.spool (LIBAGENT_SPOOL) cannot be taken: permission denied "
                          "(errno 13); it stays there and is tried again; who sends needs the user "
                          "of the program that left it");
    ck_assert_int_eq(count_spooled(), 2);
    run_free(&run);
    start_uploader(&run, port);
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    wait_for_answer(port, "/healthz", "ok\n200");
    ck_assert_ptr_nonnull(strstr(ask(port, "/metrics"), "libagent_uploader_untaken 0\n"));
    run_stop(&run, SIGTERM);
    run_expect_quiet_success(&run);
    run_free(&run);
}
END_TEST

/* Nobody would send them, and nobody else says so. */
START_TEST(test_tells_what_is_for_none_of_its_backends)
{
    struct run run;
    const char *port = own_port();
    leave_profiles("datadog");
    leave_profiles("pyroscope");
    start_uploader_to(
        &run, port,
        receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://127.0.0.1:%d", receiver.port));
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    wait_for_answer(port, "/metrics", "libagent_uploader_for_others 1\n");
    ck_assert_str_eq(ask(port, "/healthz"), "ok\n200");
    run_stop(&run, SIGTERM);
    expect_one_line(&run, "has profiles for a datadog that LIBAGENT_UPLOAD_URL does not name");
    ck_assert_int_eq(count_spooled(), 1);
    run_free(&run);
}
END_TEST

/* A backend that has taken one and says nothing: within its time it ends with 0, that one is never
 * sent again, and the other stays for the next. */
START_TEST(test_ends_while_it_is_stalled)
{
    struct run run;
    struct timespec before;
    leave_profiles("pyroscope");
    run_start(
        &run,
        &(struct run_request){
            .program = uploader_path(),
            .environment = (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool),
                                            receiver_text("LIBAGENT_UPLOAD_URL=pyroscope+http://"
                                                          "127.0.0.1:%d/=stall",
                                                          receiver.port),
                                            "LIBAGENT_EXIT_TIMEOUT=500ms", "LIBAGENT_OUTPUT", NULL},
            .without_agent = true,
            .seconds = 90});
    receiver_wait(&receiver, "fault stall", 1);
    clock_gettime(CLOCK_MONOTONIC, &before);
    run_stop(&run, SIGTERM);
    run_expect_success(&run);
    /* A try lasts 10 s otherwise. */
    ck_assert_int_lt((int64_t)(run.end_ns / 1000000000u) - before.tv_sec, 7);
    ck_assert_ptr_nonnull(strstr(run.err, "it may have arrived"));
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "fault stall"), 1);
    ck_assert_int_eq(count_spooled(), 1);
    run_free(&run);
}
END_TEST

/* ---- the pod ---- */

enum { POD_GROUP = 42000, APP_USER = 42001, SENDER_USER = 42002 };

static void start_in_pod(struct run *run, const char *namespaces, const char *script,
                         const char *const *environment)
{
    run_start(run, &(struct run_request){
                       .program = "/usr/bin/unshare",
                       .arguments = (const char *[]){namespaces, "sh", "-ec", script, NULL},
                       .environment = environment,
                       .without_agent = true,
                       .seconds = 90});
}

START_TEST(test_pod)
{
    struct run app, sender;
    if (geteuid() != 0)
        return; /* namespaces of mounts are root's */
    ck_assert_int_eq(chown(receiver.folder, APP_USER, POD_GROUP), 0);
    ck_assert_int_eq(chmod(receiver.folder, 0711), 0);
    ck_assert_int_eq(mkdir(spool, 0770), 0);
    ck_assert_int_eq(chown(spool, 0, POD_GROUP), 0);
    ck_assert_int_eq(chmod(spool, 02770), 0);
    /* The app's root has no libcurl, no network, and is another user's. */
    start_in_pod(
        &app, "-mn",
        receiver_text(
            "for f in /usr/lib/*/libcurl*.so.*; do mount --bind /dev/null $f; done; "
            "exec setpriv --reuid=%d --regid=%d --groups=%d env LD_PRELOAD=%s %s malloc 300 main",
            APP_USER, APP_USER, POD_GROUP, run_agent_path(), run_program_path("recursion")),
        (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool), "LIBAGENT_DIALECT=pyroscope",
                         "LIBAGENT_OUTPUT", "POD_NAME=p-1", "LIBAGENT_SERVICE=app",
                         "LIBAGENT_PROCESSES=prog_*", NULL});
    run_wait(&app);
    run_expect_quiet_success(&app);
    ck_assert_int_eq(count_spooled(), 2);
    /* The sender's root cannot be written but for the spool. */
    start_in_pod(&sender, "-m",
                 receiver_text("mount --bind %s %s; mount -o remount,ro,bind /; "
                               "exec setpriv --reuid=%d --regid=%d --groups=%d --no-new-privs %s",
                               spool, spool, SENDER_USER, SENDER_USER, POD_GROUP, uploader_path()),
                 (const char *[]){receiver_text("LIBAGENT_SPOOL=%s", spool), "LIBAGENT_OUTPUT",
                                  upload_urls(), NULL});
    receiver_wait(&receiver, "pyroscope cpu", 1);
    receiver_wait(&receiver, "pyroscope heap", 1);
    ck_assert_int_eq(receiver_count_with(&receiver, "pyroscope", "pod_name=p-1"), 2);
    run_stop(&sender, SIGTERM);
    run_expect_quiet_success(&sender);
    ck_assert_int_eq(count_spooled(), 0);
    run_free(&app);
    run_free(&sender);
}
END_TEST

static void name_spool(void)
{
    snprintf(spool, sizeof(spool), "%s/spool", receiver.folder);
}

Suite *suite(void)
{
    Suite *suite = suite_create("sidecar");
    TCase *all = receiver_case(suite, "all", RECEIVER_HTTP);
    tcase_add_checked_fixture(all, name_spool, NULL);
    tcase_add_test(all, test_sends_each_dialect);
    tcase_add_test(all, test_sends_at_the_end);
    tcase_add_test(all, test_wants_to_know_where);
    tcase_add_loop_test(all, test_tells_what_keeps_it_from_starting, 0, 3);
    tcase_add_test(all, test_metrics);
    tcase_add_test(all, test_tells_that_the_folder_is_not_there);
    tcase_add_test(all, test_tells_what_it_may_not_read);
    tcase_add_test(all, test_tells_what_is_for_none_of_its_backends);
    tcase_add_test(all, test_ends_while_it_is_stalled);
    tcase_add_test(all, test_pod);
    return suite;
}
