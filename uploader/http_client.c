#include "uploader/http_client.h"

#include <dlfcn.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/sys.h"
#include "uploader/curl_api.h"

enum {
    STOP_CHECK_MS = 100,
    CONNECT_LIMIT_MS = 10000,
    /* Head and body: an answer needs a few hundred bytes, and one without end would be read, as
     * fast as it comes, until the time limit. */
    ANSWER_LIMIT = 256 * 1024,
};

enum client_state { CLIENT_UNOPENED, CLIENT_OPEN, CLIENT_ABSENT };

typedef int (*init_openssl)(uint64_t options, const void *settings);

static struct http_client_config config;
static init_openssl openssl[2];
static struct curl_functions curl;
static enum client_state state;
static uint32_t in_use; /* the thread is in libcurl; a fork child finds it set */
static void *multi;     /* has the kept connections; NULL: none is kept */

void http_client_start(const struct http_client_config *client_config)
{
    config = *client_config;
}

void http_client_reset_in_child(void)
{
    if (load_relaxed(&in_use))
        state = CLIENT_ABSENT;
    store_relaxed(&in_use, 0);
    /* Its descriptors are the parent's: their numbers stand for others here. */
    multi = NULL;
}

/* ---- opening ---- */

static void *open_library(void)
{
    /* Debian and most others; Debian's with another TLS library; the one that was put beside
     * libagent.so. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4",
                                        "$ORIGIN/libcurl.so.4"};
    void *handle = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !handle; i++)
        handle = next.dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static bool has_object(const char *name)
{
    void *handle = next.dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle && next.dlclose)
        next.dlclose(handle);
    return handle;
}

/* The names of those that know OPENSSL_INIT_NO_ATEXIT. */
static bool program_has_openssl(void)
{
    return has_object("libcrypto.so.3") || has_object("libcrypto.so.1.1");
}

static init_openssl openssl_of(void *handle)
{
    return (init_openssl)next.dlsym(handle, "OPENSSL_init_crypto");
}

/* The program has ended OpenSSL, by itself or in exit. libcurl's and its libraries' calls of it are
 * not prepared for that: what is set up only then crashes. It says so itself, and sets up next to
 * nothing, where it is asked for no more than its base. */
static bool is_ended(init_openssl init)
{
    enum { OPENSSL_INIT_BASE_ONLY = 0x00040000 };
    return init && init(OPENSSL_INIT_BASE_ONLY, NULL) == 0;
}

/* libcurl's own, and the one that a program has in itself, which comes before it. */
static bool openssl_is_ended(void)
{
    return is_ended(openssl[0]) || is_ended(openssl[1]);
}

/* OpenSSL, which libcurl may use, tidies up by a function that it registers with exit: it would run
 * in the program's thread, and in that of each fork child that calls exit, and make system calls
 * for which a seccomp filter of the program's may kill. What it would free goes with the process.
 * Called before libcurl is set up: what counts is how OpenSSL is set up first. */
static void register_no_cleanup(void)
{
    enum { OPENSSL_INIT_NO_ATEXIT = 0x00080000 };
    if (openssl[0])
        (void)openssl[0](OPENSSL_INIT_NO_ATEXIT, NULL);
}

/* NULL, or why there is no client. */
static const char *find_functions(void)
{
    if (!next.dlopen || !next.dlsym)
        return "this libc has no dlopen";
    bool is_theirs = program_has_openssl(); /* its end is as the program is used to */
    void *handle = open_library();
    if (!handle)
        return "there is no libcurl.so.4 (Debian: libcurl4; Alpine, Fedora: libcurl)";
    bool all = true;
/* NOLINTBEGIN(bugprone-macro-parentheses): a type can have none */
#define X(type, name, parameters)                                                                  \
    curl.name = (type(*) parameters)next.dlsym(handle, "curl_" #name);                             \
    all &= curl.name != NULL;
    CURL_FUNCTIONS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
    openssl[0] = openssl_of(handle);
    openssl[1] = openssl_of(RTLD_DEFAULT);
    if (all && !is_theirs && !openssl_is_ended())
        register_no_cleanup();
    return all ? NULL : "the libcurl that is installed is older than 7.28";
}

static void open_client(void)
{
    const char *lacking = find_functions();
    if (!lacking && openssl_is_ended())
        return;
    if (!lacking && curl.global_init(CURL_GLOBAL_EVERYTHING) != CURL_OK)
        lacking = "libcurl cannot be set up";
    state = lacking ? CLIENT_ABSENT : CLIENT_OPEN;
    if (lacking)
        log_error("profiles are not sent: %s; install it, or set LIBAGENT_SPOOL and let "
                  "libagent-uploader send them",
                  lacking);
    else if (config.is_open)
        config.is_open();
}

/* ---- what comes back ---- */

/* libcurl's callbacks; size is 1. The rest of a long answer is read and forgotten; another number
 * than that of the bytes ends the transfer. */
static size_t take_body(const char *data, size_t size, size_t count, void *context)
{
    struct http_response *response = context;
    size_t bytes = size * count;
    response->taken += bytes;
    if (response->taken > ANSWER_LIMIT)
        return 0;
    size_t kept = MIN_OF(bytes, sizeof(response->body) - 1 - response->body_size);
    memcpy(response->body + response->body_size, data, kept);
    response->body_size += kept;
    return bytes;
}

/* The value when the line is `name` (lower case): its begin and length. */
static const char *header_value(const char *line, size_t length, const char *name, size_t *value)
{
    size_t size = strlen(name);
    if (length <= size || line[size] != ':')
        return NULL;
    for (size_t i = 0; i < size; i++) {
        char c = line[i];
        if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != name[i])
            return NULL;
    }
    const char *begin = line + size + 1, *end = line + length;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *value = (size_t)(end - begin);
    return begin;
}

static size_t take_header(const char *line, size_t size, size_t count, void *context)
{
    struct http_response *response = context;
    size_t length = size * count, value;
    response->taken += length;
    if (response->taken > ANSWER_LIMIT)
        return 0;
    const char *text = header_value(line, length, "retry-after", &value);
    if (text)
        format(response->retry_after, sizeof(response->retry_after), "%.*s", (int)value, text);
    text = header_value(line, length, "grpc-status", &value);
    if (text && value >= 1 && value <= 2 && text[0] >= '0' && text[0] <= '9')
        response->grpc_status = value == 1 ? text[0] - '0' : (text[0] - '0') * 10 + (text[1] - '0');
    return length;
}

/* ---- what is sent, once ---- */

struct body {
    const char *data;
    size_t size, given;
    bool wanted_again; /* libcurl would have sent it once more */
};

/* libcurl's callbacks; size is 1. */
static size_t give_body(char *out, size_t size, size_t count, void *context)
{
    struct body *body = context;
    size_t bytes = MIN_OF(size * count, body->size - body->given);
    memcpy(out, body->data + body->given, bytes);
    body->given += bytes;
    return bytes;
}

static int rewind_body(void *context, int64_t offset, int origin)
{
    struct body *body = context;
    (void)offset, (void)origin;
    if (!body->given)
        return CURL_SEEK_DONE;
    body->wanted_again = true;
    return CURL_SEEK_REFUSED;
}

/* Of each new connection, before it is made. */
static int allow_connection(void *context, int fd, int purpose)
{
    struct body *body = context;
    (void)fd, (void)purpose;
    if (!body->given)
        return CURL_SOCKET_GOOD;
    body->wanted_again = true;
    return CURL_SOCKET_REFUSED;
}

/* ---- a post ---- */

static void *make_headers(const struct http_request *request)
{
    /* It costs a round trip, and servers that do not know it a second. */
    void *list = curl.slist_append(NULL, "Expect:");
    const char *line = (const char *)request->headers.data;
    const char *end = line + request->headers.size;
    for (; list && line < end; line += strlen(line) + 1) {
        void *longer = curl.slist_append(list, line);
        if (!longer) {
            curl.slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

static bool keeps_connections(void)
{
    return config.keeps_connections && (!config.owns_descriptors || config.owns_descriptors());
}

static void set_options(void *easy, const struct http_request *request, void *headers,
                        struct body *body, uint64_t limit_ms, struct http_response *response)
{
    long once = !keeps_connections();
    curl.easy_setopt(easy, CURL_OPTION_NOSIGNAL, 1L);
    curl.easy_setopt(easy, CURL_OPTION_NOPROGRESS, 1L);
    curl.easy_setopt(easy, CURL_OPTION_FOLLOWLOCATION, 0L);
    curl.easy_setopt(easy, CURL_OPTION_FRESH_CONNECT, once);
    curl.easy_setopt(easy, CURL_OPTION_FORBID_REUSE, once);
    curl.easy_setopt(easy, CURL_OPTION_HTTP_VERSION, (long)CURL_HTTP_1_1);
    curl.easy_setopt(easy, CURL_OPTION_QUICK_EXIT, 1L); /* not known before 7.87 */
    curl.easy_setopt(easy, CURL_OPTION_URL, request->url);
    curl.easy_setopt(easy, CURL_OPTION_PROXY,
                     request->socket[0] ? "" : proxies_for_url(&config.proxies, request->url));
    curl.easy_setopt(easy, CURL_OPTION_NOPROXY, proxies_except(&config.proxies));
    if (request->socket[0])
        curl.easy_setopt(easy, CURL_OPTION_UNIX_SOCKET_PATH, request->socket);
    if (config.ca_file)
        curl.easy_setopt(easy, CURL_OPTION_CAINFO, config.ca_file);
    curl.easy_setopt(easy, CURL_OPTION_TIMEOUT_MS, (long)limit_ms);
    curl.easy_setopt(easy, CURL_OPTION_CONNECTTIMEOUT_MS, (long)MIN_OF(limit_ms, CONNECT_LIMIT_MS));
    curl.easy_setopt(easy, CURL_OPTION_HTTPHEADER, headers);
    curl.easy_setopt(easy, CURL_OPTION_POST, 1L);
    curl.easy_setopt(easy, CURL_OPTION_POSTFIELDSIZE_LARGE, (int64_t)body->size);
    curl.easy_setopt(easy, CURL_OPTION_READFUNCTION, give_body);
    curl.easy_setopt(easy, CURL_OPTION_READDATA, body);
    curl.easy_setopt(easy, CURL_OPTION_SEEKFUNCTION, rewind_body);
    curl.easy_setopt(easy, CURL_OPTION_SEEKDATA, body);
    curl.easy_setopt(easy, CURL_OPTION_SOCKOPTFUNCTION, allow_connection);
    curl.easy_setopt(easy, CURL_OPTION_SOCKOPTDATA, body);
    curl.easy_setopt(easy, CURL_OPTION_WRITEFUNCTION, take_body);
    curl.easy_setopt(easy, CURL_OPTION_WRITEDATA, response);
    curl.easy_setopt(easy, CURL_OPTION_HEADERFUNCTION, take_header);
    curl.easy_setopt(easy, CURL_OPTION_HEADERDATA, response);
}

/* Of the one transfer: libcurl's code, or -1 while it has not ended. */
static int ended_code(void)
{
    int left;
    const struct curl_message *message = curl.multi_info_read(multi, &left);
    return message && message->kind == CURL_DONE_MESSAGE ? message->data.result : -1;
}

/* libcurl's code, or -1: stopped. */
static int run_transfer(uint64_t deadline_ns, bool (*stop)(void))
{
    for (;;) {
        int running = 0;
        if (curl.multi_perform(multi, &running) != CURL_OK)
            return -1;
        int code = ended_code();
        if (code >= 0)
            return code;
        if (stop() || clock_monotonic_ns() >= deadline_ns)
            return -1;
        curl.multi_wait(multi, NULL, 0, STOP_CHECK_MS, NULL);
    }
}

static bool was_sent_whole(void *easy, const struct body *body)
{
    int64_t sent = 0;
    if (body->given < body->size)
        return false;
    /* Too old to tell how much of what it was given has gone out, or about to begin anew. */
    return body->wanted_again || curl.easy_getinfo(easy, CURL_INFO_SIZE_UPLOAD, &sent) != CURL_OK ||
           sent >= (int64_t)body->size;
}

/* libcurl does not say which file, nor why. One that stays wrong is told once. */
static void tell_ca_file(int code)
{
    static bool told;
    bool is_news = code == CURL_BAD_CA_FILE && config.ca_file && !told;
    told = code == CURL_BAD_CA_FILE || (told && code != CURL_OK);
    if (!is_news)
        return;
    char what[96] = "no certificate is in it", byte[2];
    long error = sys_read_file(config.ca_file, byte, sizeof(byte));
    if (error < 0)
        format(what, sizeof(what), "cannot be read: %s (errno %ld)", error_text((int)error),
               -error);
    log_warn("LIBAGENT_CA_FILE=%s: %s; accepted is a file of certificates (PEM)", config.ca_file,
             what);
}

static void judge(void *easy, int code, const struct body *body, struct http_response *response)
{
    long status = 0;
    curl.easy_getinfo(easy, CURL_INFO_RESPONSE_CODE, &status);
    response->status = (int)status;
    response->body[response->body_size] = 0;
    if (code == CURL_OK && status >= 200) {
        response->result = HTTP_ANSWERED;
        return;
    }
    response->result = was_sent_whole(easy, body) ? HTTP_NO_ANSWER
                       : code < 0                 ? HTTP_GIVEN_UP
                                                  : HTTP_NOT_SENT;
    format(response->reason, sizeof(response->reason), "%s",
           response->taken > ANSWER_LIMIT ? "its answer does not end"
           : body->wanted_again           ? "the connection was lost"
           : code < 0                     ? "no time was left"
                                          : curl.easy_strerror(code));
}

static void post(const struct http_request *request, uint64_t deadline_ns, bool (*stop)(void),
                 struct http_response *response)
{
    struct body body = {.data = (const char *)request->body.data, .size = request->body.size};
    uint64_t now = clock_monotonic_ns();
    uint64_t limit_ms = now < deadline_ns ? (deadline_ns - now) / NS_PER_MS + 1 : 1;
    void *easy = curl.easy_init();
    void *headers = make_headers(request);
    if (!multi)
        multi = curl.multi_init();
    if (easy && multi && headers) {
        set_options(easy, request, headers, &body, limit_ms, response);
        curl.multi_add_handle(multi, easy);
        int code = run_transfer(deadline_ns, stop);
        tell_ca_file(code);
        judge(easy, code, &body, response);
        curl.multi_remove_handle(multi, easy);
    } else {
        format(response->reason, sizeof(response->reason), "no memory");
    }
    if (easy)
        curl.easy_cleanup(easy);
    curl.slist_free_all(headers);
}

/* What waits goes to the spool, or is counted. */
static void give_up(struct http_response *response)
{
    static bool told;
    if (!told)
        log_warn("profiles are no more sent: the program has ended OpenSSL, which libcurl uses; "
                 "LIBAGENT_SPOOL keeps them");
    told = true;
    response->result = HTTP_GIVEN_UP;
    format(response->reason, sizeof(response->reason), "OpenSSL is ended");
}

static void close_kept(void)
{
    if (multi && !openssl_is_ended())
        curl.multi_cleanup(multi);
    multi = NULL;
}

void http_client_rest(void)
{
    store_relaxed(&in_use, 1);
    close_kept();
    store_relaxed(&in_use, 0);
}

void http_client_post(const struct http_request *request, uint64_t deadline_ns, bool (*stop)(void),
                      struct http_response *response)
{
    *response = (struct http_response){.result = HTTP_NOT_SENT, .grpc_status = -1};
    store_relaxed(&in_use, 1);
    if (state == CLIENT_UNOPENED)
        open_client();
    if (state != CLIENT_ABSENT && openssl_is_ended())
        give_up(response);
    else if (state == CLIENT_OPEN)
        post(request, deadline_ns, stop, response);
    else
        response->result = HTTP_NO_CLIENT;
    if (!keeps_connections())
        close_kept();
    store_relaxed(&in_use, 0);
}
