/* http_message.h: a request to be posted, and what came of it.
 *
 * Owns: a request's memory, from http_request_begin to http_request_free. Context: UP. Locks: none.
 */
#ifndef LIBAGENT_HTTP_MESSAGE_H
#define LIBAGENT_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"

enum {
    HTTP_URL_SIZE = 640,     /* a destination's and a path */
    HTTP_SOCKET_SIZE = 108,  /* of sockaddr_un */
    HTTP_ANSWER_SIZE = 2048, /* bytes kept of an answer: enough for a message or a frame */
    HTTP_REASON_SIZE = 160,
};

struct http_request {
    char url[HTTP_URL_SIZE];
    char socket[HTTP_SOCKET_SIZE]; /* empty: the host is connected to */
    struct buffer headers;         /* lines, each 0-terminated; may hold secrets */
    struct buffer body;
};

enum http_result {
    HTTP_ANSWERED,  /* the status tells */
    HTTP_NOT_SENT,  /* nobody can have taken it: no connection, or it broke before the last byte */
    HTTP_NO_ANSWER, /* all was sent, and what became of it is not known */
    HTTP_NO_CLIENT, /* there is no libcurl to send by */
    HTTP_GIVEN_UP,  /* asked to stop before all was sent */
};

struct http_response {
    enum http_result result;
    int status;
    int grpc_status;      /* of the header, -1: none */
    char retry_after[48]; /* the header's text, else empty */
    char body[HTTP_ANSWER_SIZE];
    size_t body_size;              /* at most what is kept */
    size_t taken;                  /* bytes of the whole answer */
    char reason[HTTP_REASON_SIZE]; /* where it was not answered, in words */
};

void http_request_begin(struct http_request *request);
/* A line of at most 4 KiB. */
void http_add_header(struct http_request *request, const char *pattern, ...) PRINTF_LIKE(2, 3);
/* 0, or the error of one of its buffers. */
int http_request_error(const struct http_request *request) MUST_USE;
void http_request_free(struct http_request *request);

#endif
