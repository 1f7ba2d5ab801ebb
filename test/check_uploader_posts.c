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

#include "agent/base/stats.h"
#include "test/next_libc.h"
#include "test/run_loop_watch.h"
#include "test/temp_folder.h"
#include "uploader/sender.h"

enum {
    MIB = 1 << 20,
    LARGE = 6 * MIB, /* more than sockets have room for */
    STEPS = 4000,
    STEP_NS = 5000000,
};

static int listener;
static char url[64], spool[96];
static pthread_t loop;

static void *run(void *unused)
{
    (void)unused;
    uploader_run(true);
    return NULL;
}

static void start(const char *spool_folder)
{
    const struct uploader_config config = {
        .folder = watch_output,
        .output_limit = 1 << 30,
        .compression = COMPRESSION_NONE,
        .program = "app",
        .pid = 77,
        .routes = {.upload = {.url = url,
                              .spool = {spool_folder, 1 << 30},
                              .exit_timeout_ns = 1,
                              .period_ns = 1},
                   .environment = (char *[]){NULL}},
    };
    make_output_possible();
    ck_assert_int_eq(uploader_start(&config), 0);
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

static uint64_t sent(void)
{
    return stats_get(STAT_UPLOADS_SENT);
}

/* The queue holds as many as UPLOADER_QUEUE_LENGTH: none is lost, and files do not wait. */
START_TEST(files_are_written_meanwhile)
{
    start(NULL);
    submit(0, 1000);
    int link = accept(listener, NULL, NULL);
    ck_assert_int_ge(link, 0);
    const uint32_t half = UPLOADER_QUEUE_LENGTH / 2;
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < half; i++)
            submit(1 + round * half + i, 1000);
        wait_for_files((int)(1 + (round + 1) * half));
    }
    /* It is the same post. */
    ck_assert_uint_eq(sent() + stats_get(STAT_UPLOADS_UNKNOWN), 0);
    ck_assert_uint_eq(stats_get(STAT_WINDOWS_DROPPED), 0);
    close(link);
    end();
}
END_TEST

/* Reads a request, of whose body all bytes are `byte`. */
static void take_request(int link, size_t size, char byte)
{
    static char text[MIB];
    size_t head = 0;
    while (head < 4 || memcmp(text + head - 4, "\r\n\r\n", 4) != 0) {
        ck_assert_uint_lt(head, sizeof(text));
        ck_assert_int_eq(recv(link, text + head++, 1, 0), 1);
    }
    for (ssize_t got; size > 0; size -= (size_t)got) {
        got = recv(link, text, size < sizeof(text) ? size : sizeof(text), 0);
        ck_assert_int_gt(got, 0);
        for (ssize_t i = 0; i < got; i++)
            ck_assert_int_eq(text[i], byte);
    }
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    ck_assert_int_eq(send(link, answer, sizeof(answer) - 1, MSG_NOSIGNAL), sizeof(answer) - 1);
}

/* The oldest that libcurl does not have goes; the one that it has arrives whole. */
START_TEST(what_has_no_room_goes_to_the_spool_meanwhile)
{
    enum { MORE = SENDER_QUEUE_LENGTH + 3 };
    start(spool);
    submit(0, LARGE);
    int link = accept(listener, NULL, NULL);
    ck_assert_int_ge(link, 0);
    for (uint32_t i = 1; i <= MORE; i++)
        submit(i, 1000);
    wait_for_files(1 + MORE);
    ck_assert_int_eq(count_files(spool), 1 + MORE - SENDER_QUEUE_LENGTH);
    /* No room beside the large one: those before it went, and it goes, too. */
    submit(1 + MORE, 3 * MIB);
    wait_for_files(2 + MORE);
    ck_assert_int_eq(count_files(spool), 1 + MORE);
    ck_assert_uint_eq(sent() + stats_get(STAT_UPLOADS_UNKNOWN), 0);
    take_request(link, LARGE, 'a');
    for (int i = 0; sent() == 0; i++) {
        ck_assert_int_lt(i, STEPS);
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
    }
    end();
    close(link);
    ck_assert_uint_eq(sent(), 1);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), 0);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SPOOLED), 1 + MORE);
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
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/x", ntohs(address.sin_port));
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
    suite_add_tcase(suite, all);
    return suite;
}
