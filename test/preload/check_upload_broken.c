/* Backends that do their worst, on real sockets: what becomes of the profiles, and what it costs
 * the program: its end, its CPU time, its memory. The programs of a test run at the same time,
 * until the receiver has seen what each is about. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/pace.h"
#include "test/preload/profile_expect.h"
#include "test/preload/profile_reader.h"
#include "test/preload/receiver.h"
#include "test/preload/run_program.h"

static void start(struct run *run, const char *service, const char *url, const char *exit_timeout)
{
    pace_start(run,
               (const char *[]){receiver_text("LIBAGENT_UPLOAD_URL=%s", url),
                                receiver_text("LIBAGENT_SERVICE=%s", service),
                                "LIBAGENT_PROFILES=cpu", "LIBAGENT_LOG=debug",
                                receiver_text("LIBAGENT_EXIT_TIMEOUT=%s", exit_timeout), NULL});
}

static int count_in(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* Each window came to one end. */
static void expect_counted(const struct run *run, const char *name)
{
    int ends = 0;
    for (const char *at = run->err; (at = strstr(at, " for pyroscope at 127.0.0.1:")); at++) {
        char word[16] = "";
        ends += sscanf(at, " for pyroscope at 127.0.0.1:%*d: %15[a-z]\n", word) == 1 &&
                (strcmp(word, "sent") == 0 || strcmp(word, "dropped") == 0 ||
                 strcmp(word, "unknown") == 0);
    }
    ck_assert_msg(ends == (int)run_file_count(run, ".cpu.pb.gz"), "%s: %d ends of %zu\n%s", name,
                  ends, run_file_count(run, ".cpu.pb.gz"), run->err);
}

/* ---- what was not taken is tried again until it arrives, each window once ---- */

START_TEST(test_arrives_after_failures)
{
    static const char *const faults[] = {"503x2", "429after1", "500x1", "408x1"};
    enum { COUNT = sizeof(faults) / sizeof(faults[0]) };
    struct run runs[COUNT];
    int made = 0;
    int64_t in_files = 0;
    struct profile profile;
    for (int i = 0; i < COUNT; i++)
        start(&runs[i], faults[i],
              receiver_text("pyroscope+http://127.0.0.1:%d/=%s", receiver.port, faults[i]), "20s");
    for (int i = 0; i < COUNT; i++) {
        receiver_wait_with(&receiver, "pyroscope cpu", receiver_text("service_name=%s", faults[i]),
                           1);
        pace_end(&runs[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        run_wait(&runs[i]);
        run_expect_success(&runs[i]);
        expect_counted(&runs[i], faults[i]);
        profile_load(&profile, runs[i].profiles, "cpu", runs[i].pid);
        in_files += profile_total(&profile, CPU_NS);
        made += (int)profile.file_count;
        ck_assert(profile_has_comment(&profile, "tries to send a profile that failed"));
        profile_free(&profile);
        run_free(&runs[i]);
    }
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_expect_each_once(&receiver, "pyroscope cpu"), made);
    ck_assert_int_eq(receiver_sum(&receiver, "pyroscope cpu", "cpu"), in_files);
}
END_TEST

/* ---- the worst ---- */

enum { ANY = -1, EACH_ONCE = -2 };

static const struct worst {
    const char *fault, *said;
    int requests;
    /* The line of the receiver that tells that it is under way; NULL: the first request. */
    const char *seen;
} worst[] = {
    {"200", NULL, EACH_ONCE, NULL},
    {"400", "it does not take the profile (status 400: because of the test)", EACH_ONCE, NULL},
    {"401", "it refuses the credentials", 1, NULL},
    {"403", "it refuses the credentials", 1, NULL},
    {"404", "it does not know the address", 1, NULL},
    {"413", "too large", EACH_ONCE, NULL},
    /* No request has a Content-Encoding that could be left out. */
    {"415", "it does not take the profile (status 415: because of the test)", EACH_ONCE, NULL},
    {"422", "it does not take the profile (status 422: because of the test)", EACH_ONCE, NULL},
    {"302", "it redirects", 1, NULL},
    {"503", "the server is not available", ANY, NULL},
    {"stall", "it may have arrived", EACH_ONCE, NULL},
    {"reset", "it may have arrived", EACH_ONCE, NULL},
    {"garbage", "it may have arrived", EACH_ONCE, NULL},
    {"slow", "it may have arrived", EACH_ONCE, NULL},
    {"endless", "it may have arrived", EACH_ONCE, "gone endless"},
    {"headers", "it may have arrived", EACH_ONCE, "gone headers"},
    {"half", NULL, ANY, NULL},
    {"deaf", "it may have arrived", ANY, NULL},
};

enum { WORST = sizeof(worst) / sizeof(worst[0]), NOBODY = WORST, SILENCE, ALL_WORST };

/* A port that takes no connection and refuses none: its queue is full. */
static int make_silence(int links[4])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    links[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(links[0], (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(links[0], 0), 0);
    ck_assert_int_eq(getsockname(links[0], (struct sockaddr *)&address, &size), 0);
    for (int i = 1; i < 4; i++) {
        links[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(links[i], (struct sockaddr *)&address, size);
    }
    return ntohs(address.sin_port);
}

static const char *url_of(int index, int silence)
{
    if (index == NOBODY)
        return "pyroscope+http://127.0.0.1:1";
    if (index == SILENCE)
        return receiver_text("pyroscope+http://127.0.0.1:%d", silence);
    return receiver_text("pyroscope+http://127.0.0.1:%d/=%s", receiver.port, worst[index].fault);
}

static void expect_requests(const struct worst *worst, const struct run *run)
{
    const char *words = receiver_text("fault %s", worst->fault);
    if (worst->requests == ANY)
        ck_assert_int_ge(receiver_count(&receiver, words), 1);
    else if (worst->requests == EACH_ONCE)
        ck_assert_int_le(receiver_expect_each_once(&receiver, words),
                         (int)run_file_count(run, ".cpu.pb.gz"));
    else
        ck_assert_int_eq(receiver_count(&receiver, words), worst->requests);
    if (worst->said)
        ck_assert_msg(count_in(run->err, worst->said) == 1, "%s:\n%s", worst->fault, run->err);
}

/* What it costs, beside a server that takes all (0.03 s of CPU time, of which most is libcurl's
 * start). Without the limits a try lasts 10 s, and an endless answer is read all the while. */
static void expect_harmless(const struct run *run, const struct run *healthy, const char *name)
{
    enum { EXIT_S = 6, MORE_KIB = 16384 }; /* of which 0.5 are the option's */
    double exit_s = (double)(int64_t)(run->end_ns - (uint64_t)run_number(run, "end_ns")) / 1e9;
    double agent_s = run->cpu_seconds - (double)run_number(run, "work_ns") / 1e9;
    double healthy_s = healthy->cpu_seconds - (double)run_number(healthy, "work_ns") / 1e9;
    ck_assert_msg(exit_s < EXIT_S, "%s: exit took %.2f s", name, exit_s);
    ck_assert_msg(agent_s < 2 * healthy_s + 0.15, "%s: %.3f s of CPU time, with a healthy one %.3f",
                  name, agent_s, healthy_s);
    ck_assert_msg(run->resident_kib < healthy->resident_kib + MORE_KIB,
                  "%s: %ld KiB, with a healthy one %ld", name, run->resident_kib,
                  healthy->resident_kib);
}

START_TEST(test_the_worst)
{
    static struct run runs[ALL_WORST];
    int links[4], silence = make_silence(links);
    for (int i = 0; i < ALL_WORST; i++)
        start(&runs[i], "app", url_of(i, silence), "500ms");
    for (int i = 0; i < WORST; i++)
        receiver_wait(&receiver,
                      worst[i].seen ? worst[i].seen : receiver_text("fault %s", worst[i].fault), 1);
    for (int i = 0; i < ALL_WORST; i++)
        pace_end(&runs[i]);
    for (int i = 0; i < ALL_WORST; i++)
        run_wait(&runs[i]);
    receiver_read(&receiver);
    ck_assert_int_eq(receiver_count(&receiver, "pyroscope cpu"), 0);
    for (int i = 0; i < ALL_WORST; i++) {
        const char *name = i < WORST ? worst[i].fault : url_of(i, silence);
        run_expect_success(&runs[i]);
        expect_counted(&runs[i], name);
        expect_harmless(&runs[i], &runs[0], name);
        if (i < WORST)
            expect_requests(&worst[i], &runs[i]);
        else
            ck_assert_int_eq(count_in(runs[i].err, ": unknown\n"), 0);
    }
    for (int i = 0; i < ALL_WORST; i++)
        run_free(&runs[i]);
    for (int i = 0; i < 4; i++)
        close(links[i]);
}
END_TEST

/* Nobody listens: the program's output and status, and its files, are what they are without. */
START_TEST(test_nobody_there)
{
    struct run run;
    run_program(
        &run,
        &(struct run_request){
            .program = "recursion",
            .arguments = (const char *[]){"malloc", "300", "main", NULL},
            .environment = (const char *[]){"LIBAGENT_UPLOAD_URL=parca+http://127.0.0.1:1", NULL},
            .seconds = 60});
    run_expect_success(&run);
    ck_assert_str_eq(run.out, "");
    ck_assert_ptr_nonnull(strstr(run.err, "it is tried again"));
    ck_assert_uint_eq(run_file_count(&run, ".pb.gz"), 2);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload_broken");
    TCase *http = receiver_case(suite, "http", RECEIVER_HTTP);
    tcase_add_test(http, test_arrives_after_failures);
    tcase_add_test(http, test_the_worst);
    tcase_add_test(http, test_nobody_there);
    return suite;
}
