/* http_client.h: posts a request by libcurl; its only user.
 *
 * libcurl is opened by dlopen(RTLD_LOCAL) at the first post: it brings 30 libraries and 3.3 ms,
 * which no program is to pay that sends nothing, and none of them must come before the app's own.
 * It allocates by the app's malloc and takes locks of libc: the calling thread must be one that
 * libc knows (own_thread_use_libc), so never an app's thread in the middle of something.
 *
 * What is set: no signals, no redirects (they would carry credentials away), no cookies, no
 * Expect, no connection used twice (libcurl sends again by itself where a kept one is found
 * broken, and stores keep every copy), certificates verified, HTTP/1.1. Proxies as the environment
 * says (http_proxy, https_proxy, no_proxy); none for unix sockets.
 *
 * Owns: libcurl's handle, until the process ends. Context: UP. Locks: none of ours. */
#ifndef LIBAGENT_HTTP_CLIENT_H
#define LIBAGENT_HTTP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "uploader/http_message.h"

struct http_client_config {
    const char *ca_file; /* NULL: libcurl's own */
    /* Registered with atexit behind libcurl's and its TLS library's own handlers, so that it runs
     * before them; NULL: nothing. */
    void (*before_exit)(void);
};

/* Copies nothing: the texts stay. */
void http_client_start(const struct http_client_config *client_config);
/* Returns at the CLOCK_MONOTONIC deadline at the latest (a name that is being looked up may take a
 * little longer), or about 100 ms after `stop` says so. */
void http_client_post(const struct http_request *request, uint64_t deadline_ns, bool (*stop)(void),
                      struct http_response *response);
/* In a fork child. Where the parent was in libcurl at that moment, locks of it and of its TLS
 * library may be held for ever: nothing is sent from here then. */
void http_client_reset_in_child(void);

#endif
