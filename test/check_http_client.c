/* The client on real sockets: what becomes of a kept connection, and that no request is ever sent
 * twice, whatever happens to it; and the numbers of libcurl's interface. The server is a process,
 * which serves one connection after the other and counts in shared memory. */
#include "test/check.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "test/next_libc.h"
#include "uploader/curl_api.h"
#include "uploader/http_client.h"

/* What is done to a request. */
enum {
    ANSWER = 'A',       /* and the connection is kept */
    ANSWER_CLOSE = 'C', /* and it is closed afterwards, of which the answer tells nothing */
    RESET_AFTER = 'R',  /* read whole, then reset */
    RESET_WITHIN = 'W', /* reset when some of its body has come */
};

enum { SMALL = 3000, LARGE = 16 << 20, CHUNK = 65536, STEPS = 4000, STEP_NS = 5000000 };

/* Written by the server alone. */
static struct seen {
    int connections, begun, whole, ended; /* the last: connections that are over */
    int copies[16]; /* of each request that was read whole, by its number in X-Number */
} * seen;

static pid_t server;
static int port;

/* ---- the server ---- */

static bool read_more(int link, char *text, size_t *size)
{
    ssize_t got = recv(link, text + *size, CHUNK - 1 - *size, 0);
    *size += got > 0 ? (size_t)got : 0;
    text[*size] = 0;
    return got > 0;
}

static size_t number_after(const char *text, const char *name)
{
    const char *found = strcasestr(text, name);
    return found ? strtoul(found + strlen(name), NULL, 10) : 0;
}

/* False: the connection is over. */
static bool serve_request(int link, int action)
{
    static char text[CHUNK];
    size_t size = 0;
    while (!strstr(text, "\r\n\r\n") || !size)
        if (!read_more(link, text, &size))
            return false;
    seen->begun++;
    size_t number = number_after(text, "X-Number: ");
    size_t all = number_after(text, "Content-Length: "), left = all;
    left -= size - (size_t)(strstr(text, "\r\n\r\n") + 4 - text);
    text[0] = 0;
    while (left && (action != RESET_WITHIN || left == all)) {
        ssize_t got = recv(link, text, left < CHUNK ? left : CHUNK, 0);
        if (got <= 0)
            return false;
        left -= (size_t)got;
    }
    memset(text, 0, sizeof(text));
    if (action == RESET_AFTER || action == RESET_WITHIN) {
        setsockopt(link, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        seen->whole += action == RESET_AFTER;
        seen->copies[number] += action == RESET_AFTER;
        return false;
    }
    seen->whole++;
    seen->copies[number]++;
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    return send(link, answer, sizeof(answer) - 1, MSG_NOSIGNAL) > 0 && action == ANSWER;
}

static void serve(int listener, const char *actions)
{
    for (;;) {
        int link = accept(listener, NULL, NULL);
        seen->connections++;
        while (serve_request(link, *actions ? *actions : ANSWER))
            actions += *actions != 0;
        actions += *actions != 0;
        close(link);
        __atomic_add_fetch(&seen->ended, 1, __ATOMIC_RELEASE);
    }
}

/* A letter for each request, then answers. */
static void start_server(const char *actions, bool keeps)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    port = ntohs(address.sin_port);
    server = fork();
    ck_assert_int_ge(server, 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, actions);
    }
    close(listener);
    http_client_start(&(struct http_client_config){.keeps_connections = keeps});
}

static void wait_for(const int *counter, int least)
{
    for (int i = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < least; i++) {
        ck_assert_int_lt(i, STEPS);
        nanosleep(&(struct timespec){0, STEP_NS}, NULL);
    }
}

/* ---- the client ---- */

static bool never(void)
{
    return false;
}

static enum http_result post_to(int to_port, int number, size_t size)
{
    static struct http_response response;
    struct http_request request;
    http_request_begin(&request);
    snprintf(request.url, sizeof(request.url), "http://127.0.0.1:%d/", to_port);
    http_add_header(&request, "X-Number: %d", number);
    char *room = buffer_room(&request.body, size);
    ck_assert_ptr_nonnull(room);
    memset(room, 'x', size);
    request.body.size = size;
    http_client_post(&request, clock_monotonic_ns() + 20 * NS_PER_SEC, never, &response);
    http_request_free(&request);
    ck_assert_msg(response.result != HTTP_NO_CLIENT, "libcurl is not there");
    return response.result;
}

static enum http_result post(int number, size_t size)
{
    return post_to(port, number, size);
}

START_TEST(kept_connection_is_used_again)
{
    start_server("", true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(post(i, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->connections, 1);
    ck_assert_int_eq(seen->ended, 0);
    http_client_rest();
    wait_for(&seen->ended, 1);
    ck_assert_int_eq(post(3, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->connections, 2);
    ck_assert_int_eq(seen->whole, 4);
}
END_TEST

START_TEST(without_keeping_each_has_its_own)
{
    start_server("", false);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(post(i, SMALL), HTTP_ANSWERED);
        wait_for(&seen->ended, i + 1);
    }
    ck_assert_int_eq(seen->whole, 3);
}
END_TEST

/* A table that others share may lose a number to a file of theirs. */
static bool shares_descriptors(void)
{
    return false;
}

START_TEST(nothing_is_kept_among_others_descriptors)
{
    start_server("", true);
    http_client_start(&(struct http_client_config){.keeps_connections = true,
                                                   .owns_descriptors = shares_descriptors});
    ck_assert_int_eq(post(0, SMALL), HTTP_ANSWERED);
    wait_for(&seen->ended, 1);
}
END_TEST

/* The server had it all and is gone: libcurl sends such a request again by itself. */
START_TEST(reset_after_all_on_a_kept_connection)
{
    size_t sizes[] = {SMALL, LARGE};
    start_server("ARA", true);
    ck_assert_int_eq(post(0, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(post(1, sizes[_i]), HTTP_NO_ANSWER);
    ck_assert_int_eq(post(2, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->copies[0], 1);
    ck_assert_int_eq(seen->copies[1], 1);
    ck_assert_int_eq(seen->copies[2], 1);
    ck_assert_int_eq(seen->begun, 3);
    ck_assert_int_eq(seen->connections, 2);
}
END_TEST

START_TEST(reset_after_all_on_a_new_connection)
{
    start_server("R", true);
    ck_assert_int_eq(post(0, SMALL), HTTP_NO_ANSWER);
    ck_assert_int_eq(post(1, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->begun, 2);
}
END_TEST

/* Nobody can have taken it. That is for the sender to send again. */
START_TEST(reset_within_the_body)
{
    start_server(_i ? "AW" : "W", true);
    if (_i)
        ck_assert_int_eq(post(0, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(post(1, LARGE), HTTP_NOT_SENT);
    ck_assert_int_eq(seen->begun, _i + 1);
    ck_assert_int_eq(post(1, LARGE), HTTP_ANSWERED);
    ck_assert_int_eq(seen->copies[1], 1);
}
END_TEST

/* A server that keeps idle connections for less than a period: libcurl sees that before it sends.
 */
START_TEST(closed_while_it_was_idle)
{
    start_server("CCCC", true);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(post(i, SMALL), HTTP_ANSWERED);
        wait_for(&seen->ended, i + 1);
        ck_assert_int_eq(seen->copies[i], 1);
    }
    ck_assert_int_eq(seen->connections, 4);
    ck_assert_int_eq(seen->begun, 4);
}
END_TEST

/* The kept one's number is another file's in a fork child: it is left alone there. */
START_TEST(a_fork_child_has_its_own)
{
    start_server("", true);
    ck_assert_int_eq(post(0, SMALL), HTTP_ANSWERED);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        http_client_reset_in_child();
        http_client_rest();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(post(1, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->connections, 1);
    ck_assert_int_eq(seen->ended, 0);
}
END_TEST

/* ---- the environment ---- */

static int environment_reads;

/* libc's own, of all objects here; the test framework asks, too. */
char *getenv(const char *name)
{
    size_t size = strlen(name);
    environment_reads += strncmp(name, "CK_", 3) != 0;
    for (char **each = environ; each && *each; each++)
        if (strncmp(*each, name, size) == 0 && (*each)[size] == '=')
            return *each + size + 1;
    return NULL;
}

char *secure_getenv(const char *name)
{
    return getenv(name);
}

/* It may be moved by setenv at any time; what is there now was not so at the start. */
START_TEST(no_request_reads_the_environment)
{
    ck_assert_ptr_eq(dlsym(RTLD_DEFAULT, "getenv"), (void *)getenv);
    ck_assert_int_eq(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    ck_assert_int_eq(setenv("no_proxy", "", 1), 0);
    start_server("", false);
    ck_assert_int_eq(post(0, SMALL), HTTP_ANSWERED);
    ck_assert_int_gt(environment_reads, 0); /* libcurl is set up */
    environment_reads = 0;
    for (int i = 1; i < 3; i++)
        ck_assert_int_eq(post(i, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(environment_reads, 0);
}
END_TEST

START_TEST(the_proxy_of_the_start)
{
    enum { NOBODY = 1 };
    start_server("", false);
    struct http_client_config proxied = {0};
    char proxy[64];
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", port);
    proxied.proxies.http = proxy;
    http_client_start(&proxied);
    ck_assert_int_eq(post_to(NOBODY, 0, SMALL), HTTP_ANSWERED);
    ck_assert_int_eq(seen->copies[0], 1);
    proxied.proxies.except = "example.com,127.0.0.1";
    http_client_start(&proxied);
    ck_assert_int_eq(post_to(NOBODY, 1, SMALL), HTTP_NOT_SENT);
    ck_assert_int_eq(seen->copies[1], 0);
}
END_TEST

/* ---- numbers ---- */

START_TEST(numbers_are_those_of_libcurl)
{
    static const struct {
        int ours, theirs;
    } numbers[] = {
        {CURL_GLOBAL_EVERYTHING, CURL_GLOBAL_ALL},
        {CURL_OPTION_URL, CURLOPT_URL},
        {CURL_OPTION_PROXY, CURLOPT_PROXY},
        {CURL_OPTION_NOPROXY, CURLOPT_NOPROXY},
        {CURL_OPTION_READDATA, CURLOPT_READDATA},
        {CURL_OPTION_READFUNCTION, CURLOPT_READFUNCTION},
        {CURL_OPTION_SEEKDATA, CURLOPT_SEEKDATA},
        {CURL_OPTION_SEEKFUNCTION, CURLOPT_SEEKFUNCTION},
        {CURL_OPTION_SOCKOPTDATA, CURLOPT_SOCKOPTDATA},
        {CURL_OPTION_SOCKOPTFUNCTION, CURLOPT_SOCKOPTFUNCTION},
        {CURL_OPTION_HTTPHEADER, CURLOPT_HTTPHEADER},
        {CURL_OPTION_POST, CURLOPT_POST},
        {CURL_OPTION_POSTFIELDSIZE_LARGE, CURLOPT_POSTFIELDSIZE_LARGE},
        {CURL_OPTION_WRITEDATA, CURLOPT_WRITEDATA},
        {CURL_OPTION_WRITEFUNCTION, CURLOPT_WRITEFUNCTION},
        {CURL_OPTION_HEADERDATA, CURLOPT_HEADERDATA},
        {CURL_OPTION_HEADERFUNCTION, CURLOPT_HEADERFUNCTION},
        {CURL_OPTION_NOSIGNAL, CURLOPT_NOSIGNAL},
        {CURL_OPTION_NOPROGRESS, CURLOPT_NOPROGRESS},
        {CURL_OPTION_FOLLOWLOCATION, CURLOPT_FOLLOWLOCATION},
        {CURL_OPTION_FRESH_CONNECT, CURLOPT_FRESH_CONNECT},
        {CURL_OPTION_FORBID_REUSE, CURLOPT_FORBID_REUSE},
        {CURL_OPTION_TIMEOUT_MS, CURLOPT_TIMEOUT_MS},
        {CURL_OPTION_CONNECTTIMEOUT_MS, CURLOPT_CONNECTTIMEOUT_MS},
        {CURL_OPTION_CAINFO, CURLOPT_CAINFO},
        {CURL_OPTION_UNIX_SOCKET_PATH, CURLOPT_UNIX_SOCKET_PATH},
        {CURL_OPTION_HTTP_VERSION, CURLOPT_HTTP_VERSION},
        {CURL_OPTION_QUICK_EXIT, CURLOPT_QUICK_EXIT},
        {CURL_HTTP_1_1, CURL_HTTP_VERSION_1_1},
        {CURL_INFO_RESPONSE_CODE, CURLINFO_RESPONSE_CODE},
        {CURL_INFO_SIZE_UPLOAD, CURLINFO_SIZE_UPLOAD_T},
        {CURL_DONE_MESSAGE, CURLMSG_DONE},
        {CURL_SEEK_DONE, CURL_SEEKFUNC_OK},
        {CURL_SEEK_REFUSED, CURL_SEEKFUNC_FAIL},
        {CURL_SOCKET_GOOD, CURL_SOCKOPT_OK},
        {CURL_SOCKET_REFUSED, CURL_SOCKOPT_ERROR},
        {CURL_OK, CURLE_OK},
        {CURL_BAD_CA_FILE, CURLE_SSL_CACERT_BADFILE},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ck_assert_msg(numbers[i].ours == numbers[i].theirs, "the %zu.: %d, but %d", i,
                      numbers[i].ours, numbers[i].theirs);
    ck_assert_uint_eq(offsetof(struct curl_message, data), offsetof(CURLMsg, data));
    ck_assert_uint_eq(sizeof(curl_socket_t), sizeof(int));
    ck_assert_uint_eq(sizeof(curl_off_t), sizeof(int64_t));
}
END_TEST

static void setup(void)
{
    next_from_libc();
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(seen, MAP_FAILED);
}

static void teardown(void)
{
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
}

Suite *suite(void)
{
    Suite *suite = suite_create("http_client");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, kept_connection_is_used_again);
    tcase_add_test(all, without_keeping_each_has_its_own);
    tcase_add_test(all, nothing_is_kept_among_others_descriptors);
    tcase_add_loop_test(all, reset_after_all_on_a_kept_connection, 0, 2);
    tcase_add_test(all, reset_after_all_on_a_new_connection);
    tcase_add_loop_test(all, reset_within_the_body, 0, 2);
    tcase_add_test(all, closed_while_it_was_idle);
    tcase_add_test(all, a_fork_child_has_its_own);
    tcase_add_test(all, no_request_reads_the_environment);
    tcase_add_test(all, the_proxy_of_the_start);
    tcase_add_test(all, numbers_are_those_of_libcurl);
    suite_add_tcase(suite, all);
    return suite;
}
