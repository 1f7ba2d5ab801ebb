/* curl_api.h: what is used of libcurl, by the numbers of its binary interface, which have not
 * changed since it was called libcurl.so.4 (2006); test/check_http_client.c holds them against
 * libcurl's own header. It is opened at run time, so no header of its own is needed to build.
 *
 * Owns: nothing. Context: UP. Locks: none. */
#ifndef LIBAGENT_CURL_API_H
#define LIBAGENT_CURL_API_H

#include <stddef.h>
#include <stdint.h>

/* Return type, name, parameters. Those from 7.28 on: curl_multi_wait. */
#define CURL_FUNCTIONS(X)                                                                          \
    X(int, global_init, (long flags))                                                              \
    X(void *, easy_init, (void))                                                                   \
    X(int, easy_setopt, (void *easy, int option, ...))                                             \
    X(int, easy_getinfo, (void *easy, int info, ...))                                              \
    X(void, easy_cleanup, (void *easy))                                                            \
    X(const char *, easy_strerror, (int code))                                                     \
    X(void *, slist_append, (void *list, const char *text))                                        \
    X(void, slist_free_all, (void *list))                                                          \
    X(void *, multi_init, (void))                                                                  \
    X(int, multi_add_handle, (void *multi, void *easy))                                            \
    X(int, multi_remove_handle, (void *multi, void *easy))                                         \
    X(int, multi_perform, (void *multi, int *running))                                             \
    X(int, multi_wait, (void *multi, void *extra, unsigned count, int ms, int *ready))             \
    X(void *, multi_info_read, (void *multi, int *left))                                           \
    X(int, multi_cleanup, (void *multi))

struct curl_functions {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration can have none */
#define X(type, name, parameters) type(*name) parameters;
    CURL_FUNCTIONS(X)
#undef X
};

/* CURL_GLOBAL_ALL without what it does to signals; name and number of an option: long from 0,
 * pointer from 10000, function from 20000, 64-bit from 30000. */
enum {
    CURL_GLOBAL_EVERYTHING = 3,
    CURL_OPTION_URL = 10002,
    CURL_OPTION_PROXY = 10004,
    CURL_OPTION_NOPROXY = 10177,
    CURL_OPTION_READDATA = 10009,
    CURL_OPTION_READFUNCTION = 20012,
    CURL_OPTION_SEEKDATA = 10168,
    CURL_OPTION_SEEKFUNCTION = 20167,
    CURL_OPTION_SOCKOPTDATA = 10149,
    CURL_OPTION_SOCKOPTFUNCTION = 20148,
    CURL_OPTION_HTTPHEADER = 10023,
    CURL_OPTION_POST = 47,
    CURL_OPTION_POSTFIELDSIZE_LARGE = 30120,
    CURL_OPTION_WRITEDATA = 10001,
    CURL_OPTION_WRITEFUNCTION = 20011,
    CURL_OPTION_HEADERDATA = 10029,
    CURL_OPTION_HEADERFUNCTION = 20079,
    CURL_OPTION_NOSIGNAL = 99,
    CURL_OPTION_NOPROGRESS = 43,
    CURL_OPTION_FOLLOWLOCATION = 52,
    CURL_OPTION_FRESH_CONNECT = 74,
    CURL_OPTION_FORBID_REUSE = 75,
    CURL_OPTION_TIMEOUT_MS = 155,
    CURL_OPTION_CONNECTTIMEOUT_MS = 156,
    CURL_OPTION_CAINFO = 10065,
    CURL_OPTION_UNIX_SOCKET_PATH = 10231,
    CURL_OPTION_HTTP_VERSION = 84,
    CURL_OPTION_QUICK_EXIT = 322,
    CURL_HTTP_1_1 = 2,
    CURL_INFO_RESPONSE_CODE = 0x200002,
    CURL_INFO_SIZE_UPLOAD = 0x600007, /* from 7.55 */
    CURL_DONE_MESSAGE = 1,
    CURL_SEEK_DONE = 0,
    CURL_SEEK_REFUSED = 1,
    CURL_SOCKET_GOOD = 0,
    CURL_SOCKET_REFUSED = 1,
    CURL_OK = 0,
    CURL_BAD_CA_FILE = 77,
};

struct curl_message {
    int kind;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
};

#endif
