/* upload_url.h: LIBAGENT_UPLOAD_URL, taken apart: to whom, in which form, and by which way.
 *
 *     pyroscope+http(s)://HOST[:PORT][/BASE]   parca+http(s)://...
 *     datadog+http(s)://HOST[:PORT][/PATH]     datadog+unix:///PATH/OF/THE.socket
 *     http(s)://HOST[:PORT][/PATH]             each profile is the body of a POST
 *     file:///FOLDER                           as LIBAGENT_OUTPUT, beside it
 *
 * Several are separated by commas, also of one kind; the same address twice is refused. A name and
 * a password in the URL are refused: the environment of a process is seen by others, and the log
 * shows URLs (credentials.h).
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_UPLOAD_URL_H
#define LIBAGENT_UPLOAD_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/compiler.h"

enum backend_kind { BACKEND_PYROSCOPE, BACKEND_PARCA, BACKEND_DATADOG, BACKEND_POST, BACKEND_FILE };

enum {
    UPLOAD_URL_SIZE = 512,
    UPLOAD_SOCKET_SIZE = 108, /* of sockaddr_un */
    UPLOAD_DESTINATIONS = 8,
    DESTINATION_NAME_SIZE = UPLOAD_URL_SIZE + 16,
};

struct destination {
    enum backend_kind kind;
    unsigned place;                  /* among those of its kind, from 0 */
    bool is_intake;                  /* Datadog's own: it wants the key, and another path */
    char url[UPLOAD_URL_SIZE];       /* http(s)://HOST[:PORT][/BASE] without a final '/'; of
                                      * BACKEND_FILE the folder's path */
    char socket[UPLOAD_SOCKET_SIZE]; /* of a unix socket, else empty */
};

/* The word for the kind: "pyroscope", "parca", "datadog", "post", "file". */
const char *backend_name(enum backend_kind kind);
/* HOST[:PORT][/BASE] as it was given, or its socket's path. */
const char *destination_address(const struct destination *destination);
/* For the log: "pyroscope at HOST[:PORT]", or the path of its socket or folder. Returns the length.
 */
size_t destination_name(const struct destination *destination, char *out, size_t size);
/* The URL again, as it may be shown: what was given without a final '/'. Returns the length. */
size_t upload_url_show(const struct destination *destination, char *out, size_t size);
/* One URL of `length` bytes. NULL, or what is wrong with it, in words. */
const char *upload_url_parse(const char *text, size_t length,
                             struct destination *destination) MUST_USE;
/* All of a list. NULL and their number, or what is wrong; `*count` is then the place in the list
 * (from 0) of the one that is. */
const char *upload_urls_parse(const char *list, struct destination *destinations,
                              size_t *count) MUST_USE;

#endif
