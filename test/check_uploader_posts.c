/* The uploader's run loop while a post lasts: what comes meanwhile goes its way. The server is a
 * socket that listens: the kernel takes the connection and what the socket has room for, and the
 * post lasts until the test reads and answers, within the 10 s that a post may take. */
#include "test/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "test/next_libc.h"
#include "test/run_loop_watch.h"
#include "test/temp_folder.h"
#include "uploader/sender.h"

enum {
    MIB = 1 << 20,
    SMALL = 1000,
    LARGE = 6 * MIB, /* more than sockets have room for */
    HEAD = 4096,
    STEPS = 4000,
    STEP_NS = 5000000,
};

static int listener;
static char url[64], urls[160], spool[96];
static pthread_t loop;

static void *run(void *unused)
{
    (void)unused;
    uploader_run(true);
    return NULL;
}

static void start_uploader_with(const char *spool_folder, uint64_t exit_timeout_ns)
{
    const struct uploader_config config = {
        .folder = watch_output,
        .output_limit = 1 << 30,
        .compression = COMPRESSION_NONE,
        .program = "app",
        .pid = 77,
        .routes = {.upload = {.url = urls,
                              .spool = {spool_folder, 1 << 30},
                              .exit_timeout_ns = exit_timeout_ns,
                              .period_ns = 1},
                   .environment = (char *[]){NULL}},
    };
    make_output_possible();
    ck_assert_int_eq(uploader_start(&config), 0);
}

static void start_loop(void)
{
    ck_assert_int_eq(pthread_create(&loop, NULL, run, NULL), 0);
}

static void end(void)
{
    uploader_finish();
    ck_assert_int_eq(pthread_join(loop, NULL), 0);
}

static void submit(uint32_t sequence, size_t size)
{
    struct blob_header header = {.dialect = "pprof",
                                 .family = "cpu",
                                 .sequence = sequence,
                                 .end_unix_ns = clock_realtime_ns()};
    struct buffer body = {0};
    char *room = buffer_room(&body, size);
    ck_assert_ptr_nonnull(room);
    memset(room, 'a' + (int)(sequence % 26), size);
    body.size = size;
    ck_assert_int_eq(uploader_submit(&header, &body), 0);
}

static void wait_for_files(int count)
{
    for (int i = 0; count_files(watch_output) < count; i++) {
        ck_assert_int_lt(i, STEPS);
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
    }
}

/* A post of `size` that nobody has answered, and `more` small ones behind it. The connection. */
static int begin_post(size_t size, uint32_t more)
{
    submit(0, size);
    int link = accept(listener, NULL, NULL);
    ck_assert_int_ge(link, 0);
    for (uint32_t i = 1; i <= more; i++)
        submit(i, SMALL);
    wait_for_files((int)more + 1);
    return link;
}

static void wait_for_stat(enum stat_id stat, uint64_t count)
{
    for (int i = 0; stats_get(stat) < count; i++) {
        ck_assert_int_lt(i, STEPS);
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
    }
}

/* The queue holds as many as UPLOADER_QUEUE_LENGTH: none is lost, and files do not wait. */
START_TEST(files_are_written_meanwhile)
{
    start_uploader_with(NULL, 1);
    start_loop();
    submit(0, SMALL);
    int link = accept(listener, NULL, NULL);
    ck_assert_int_ge(link, 0);
    const uint32_t half = UPLOADER_QUEUE_LENGTH / 2;
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < half; i++)
            submit(1 + round * half + i, SMALL);
        wait_for_files((int)(1 + (round + 1) * half));
    }
    /* It is the same post. */
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SENT) + stats_get(STAT_UPLOADS_UNKNOWN), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    close(link);
    end();
}
END_TEST

/* Of a body all bytes are `byte`. */
static void take_request(int link, char head[HEAD], size_t size, char byte)
{
    static char text[MIB];
    size_t length = 0;
    while (length < 4 || memcmp(head + length - 4, "\r\n\r\n", 4) != 0) {
        ck_assert_uint_lt(length, HEAD);
        ck_assert_int_eq(recv(link, head + length++, 1, 0), 1);
    }
    size_t wrong = 0;
    for (ssize_t got; size > 0; size -= (size_t)got) {
        got = recv(link, text, size < sizeof(text) ? size : sizeof(text), 0);
        ck_assert_int_gt(got, 0);
        for (ssize_t i = 0; i < got; i++)
            wrong += text[i] != byte;
    }
    ck_assert_uint_eq(wrong, 0);
}

static void answer(int link, const char *status)
{
    char text[128];
    int size = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status);
    ck_assert_int_eq(send(link, text, (size_t)size, MSG_NOSIGNAL), size);
}

/* The oldest that libcurl does not have goes; the one that it has arrives whole. */
START_TEST(what_has_no_room_goes_to_the_spool_meanwhile)
{
    enum { MORE = SENDER_QUEUE_LENGTH + 3 };
    char head[HEAD];
    start_uploader_with(spool, 1);
    start_loop();
    int link = begin_post(LARGE, MORE);
    ck_assert_int_eq(count_files(spool), 1 + MORE - SENDER_QUEUE_LENGTH);
    /* No room beside the large one: those before it went, and it goes, too. */
    submit(1 + MORE, 3 * MIB);
    wait_for_files(2 + MORE);
    ck_assert_int_eq(count_files(spool), 1 + MORE);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SENT) + stats_get(STAT_UPLOADS_UNKNOWN), 0);
    take_request(link, head, LARGE, 'a');
    answer(link, "200 OK");
    wait_for_stat(STAT_UPLOADS_SENT, 1);
    end();
    close(link);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SENT), 1);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), 0);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SPOOLED), 1 + MORE);
}
END_TEST

/* Nobody answers, and the end that comes in the middle of a post has a second where a minute would
 * be allowed: what waits goes to the spool within it, and else is told of; of the post nobody
 * knows. Before that, all of it is among what an end that does not wait so long has to tell. */
START_TEST(end_leaves_time_to_keep_what_waits)
{
    enum { MORE = 4 };
    char left[128];
    start_uploader_with(_i ? spool : NULL, 60 * NS_PER_SEC);
    start_loop();
    int link = begin_post(SMALL, MORE);
    ck_assert_uint_eq(uploader_left(), 0);
    routes_left(left, sizeof(left));
    ck_assert_str_eq(left, ", and for backends, once for each: 4; sent without an answer: 1");
    routes_end_by(clock_monotonic_ns() + NS_PER_SEC);
    uploader_finish();
    ck_assert_int_eq(uploader_wait_done(clock_monotonic_ns() + 30 * NS_PER_SEC), 0);
    ck_assert_int_eq(pthread_join(loop, NULL), 0);
    close(link);
    routes_left(left, sizeof(left));
    ck_assert_str_eq(left, "");
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_UNKNOWN), 1);
    if (_i)
        ck_assert_int_eq(count_files(spool), MORE);
    ck_assert_uint_eq(stats_get(_i ? STAT_UPLOADS_SPOOLED : STAT_UPLOADS_DROPPED), MORE);
    ck_assert_int_eq(count_in_log(_i ? "warn: profiles that were sent without an answer: 1"
                                     : "are lost: 4; sent without an answer: 1"),
                     1);
}
END_TEST

/* ---- several destinations ---- */

static char order[64]; /* of the requests: G to /good, B to /bad */

static void *serve(void *unused)
{
    char head[HEAD];
    for (int link; (link = accept(listener, NULL, NULL)) >= 0; close(link)) {
        take_request(link, head, SMALL, 'a');
        bool is_good = strncmp(head, "POST /good ", 11) == 0;
        strcat(order, is_good ? "G" : "B");
        answer(link, is_good ? "200 OK" : "400 No");
    }
    return unused;
}

/* Who failed last may take 10 s for each, or all the time that there is at the end. */
START_TEST(those_that_answer_come_first)
{
    pthread_t server;
    snprintf(urls, sizeof(urls), "%s/bad,%s/good", url, url);
    start_uploader_with(NULL, 20 * NS_PER_SEC);
    for (uint32_t i = 0; i < 4; i++)
        submit(26 * i, SMALL);
    ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
    start_loop();
    wait_for_stat(STAT_UPLOADS_SENT, 4);
    wait_for_stat(STAT_UPLOADS_DROPPED, 4);
    end();
    uploader_resume();
    submit(0, SMALL);
    submit(26, SMALL);
    ck_assert_int_eq(uploader_drain(0, true), 0);
    ck_assert_int_eq(shutdown(listener, SHUT_RDWR), 0);
    ck_assert_int_eq(pthread_join(server, NULL), 0);
    ck_assert_str_eq(order, "BGGGGBBBGGBB");
}
END_TEST

static void setup(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int room = 65536;
    next_from_libc();
    watch_setup();
    snprintf(spool, sizeof(spool), "%s/spool", watch_base);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    snprintf(urls, sizeof(urls), "%s/x", url);
}

static void teardown(void)
{
    close(listener);
    watch_teardown();
}

Suite *suite(void)
{
    Suite *suite = suite_create("uploader_posts");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, files_are_written_meanwhile);
    tcase_add_test(all, what_has_no_room_goes_to_the_spool_meanwhile);
    tcase_add_loop_test(all, end_leaves_time_to_keep_what_waits, 0, 2);
    tcase_add_test(all, those_that_answer_come_first);
    suite_add_tcase(suite, all);
    return suite;
}
