/* http_client.h: posts a request by libcurl; its only user.
 *
 * libcurl is opened by dlopen(RTLD_LOCAL) at the first post: it brings 30 libraries and 3.3 ms,
 * which no program is to pay that sends nothing, and none of them must come before the app's own.
 * It allocates by the app's malloc and takes locks of libc: the calling thread must be one that
 * libc knows (own_thread_use_libc), so never an app's thread in the middle of something.
 *
 * What is set: no signals, no redirects (they would carry credentials away), no cookies, no
 * Expect, certificates verified, HTTP/1.1. Proxies as the environment said at the start
 * (proxies.h); none for unix sockets. So of all requests few read the environment, in libc: where a
 * host's name is looked up, and for the language of an error. They may (environment_table.h).
 *
 * A connection that is kept for the next post may have been closed by the server since. Where
 * libcurl sees that before it sends, it takes a new one; where it finds out later, it would send
 * all of it again by itself, and stores keep every copy. So the body is given to it once: another
 * pass over it, and another connection once some of it was given, are refused (struct body).
 *
 * A program that uses OpenSSL, too, may end it before the last post, in exit at the latest. Nothing
 * is sent any more then, as libcurl would crash: it goes to the spool, or is counted.
 *
 * Owns: libcurl's handle and kept connections, until the process ends. Context: UP. Locks: none of
 * ours. */
#ifndef LIBAGENT_HTTP_CLIENT_H
#define LIBAGENT_HTTP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "uploader/http_message.h"
#include "uploader/proxies.h"

struct http_client_config {
    const char *ca_file; /* NULL: libcurl's own */
    struct proxies proxies;
    /* libcurl has been set up: what is registered with exit from here on runs before its, and its
     * TLS library's, own functions. NULL: nothing. */
    void (*is_open)(void);
    bool keeps_connections; /* for the next post, until http_client_rest */
    /* Only where they are the posting thread's alone: a program that closes all numbers from 3 on
     * would get a kept one's for a file of its own. NULL: they are. */
    bool (*owns_descriptors)(void);
};

/* Copies nothing: the texts stay. */
void http_client_start(const struct http_client_config *client_config);
/* Returns at the CLOCK_MONOTONIC deadline at the latest (a name that is being looked up may take a
 * little longer), or about 100 ms after `stop` says so. */
void http_client_post(const struct http_request *request, uint64_t deadline_ns, bool (*stop)(void),
                      struct http_response *response);
/* Closes what is kept: before the thread that posts ends, whose descriptors these are. */
void http_client_rest(void);
/* In a fork child. Where the parent was in libcurl at that moment, locks of it and of its TLS
 * library may be held for ever: nothing is sent from here then. */
void http_client_reset_in_child(void);

#endif
