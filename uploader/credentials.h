/* credentials.h: what a backend wants to know before it takes a profile.
 *
 * They come from LIBAGENT_AUTH_FILE, lines NAME=VALUE with the names of the variables below (#
 * begins a comment), which is read before each upload, so that it may change; and from the
 * variables themselves, which are copied at start. The file comes first. No value is ever logged,
 * put into a profile or sent to a destination of another kind.
 *
 *     PYROSCOPE_BASIC_AUTH_USER  PYROSCOPE_BASIC_AUTH_PASSWORD  PYROSCOPE_AUTH_TOKEN
 *     PYROSCOPE_TENANT_ID        PARCA_BEARER_TOKEN             DD_API_KEY
 *     UPLOAD_BASIC_AUTH_USER     UPLOAD_BASIC_AUTH_PASSWORD     UPLOAD_AUTH_TOKEN (file alone)
 *
 * A line [ADDRESS], HOST[:PORT][/BASE] or a socket's path as it stands in the URL or its begin up
 * to a '/', begins what is for that destination alone, up to the next such line: it gets nothing
 * then of the lines above the first of them, nor of the variables.
 *
 * Owns: nothing. Context: credentials_take INIT; the others UP. Locks: none. */
#ifndef LIBAGENT_CREDENTIALS_H
#define LIBAGENT_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/compiler.h"
#include "uploader/http_message.h"
#include "uploader/upload_url.h"

enum {
    CREDENTIAL_USER,
    CREDENTIAL_PASSWORD,
    CREDENTIAL_TOKEN,
    CREDENTIAL_TENANT,
    CREDENTIAL_KEY,
    CREDENTIALS,
    CREDENTIAL_SIZE = 2048, /* tokens of some gateways have 1.5 KiB */
};

/* Of one destination; an empty text: there is none. */
struct credentials {
    char text[CREDENTIALS][CREDENTIAL_SIZE];
};

/* Those of the environment. False: one is too long or holds a line's end, and is left out. */
bool credentials_take(struct credentials *credentials, enum backend_kind kind,
                      char *const *environment);
/* Lines that are none of the above and are left out, whoever they may be for: the name is no
 * backend's, or the value is as above. */
struct wrong_lines {
    unsigned first; /* from 1; 0: there is none */
    unsigned count;
};
/* Those of a file's text for the destination replace what is there. */
struct wrong_lines credentials_read(struct credentials *credentials,
                                    const struct destination *destination, const char *text);
/* The names that a file can have, separated by commas. */
size_t credentials_names(char *out, size_t size);
/* The header Authorization, and the others; nothing where there is nothing. */
void credentials_add_headers(const struct credentials *credentials, struct http_request *request);
/* Which there are, in words that hold no secret: "user and password, tenant". */
size_t credentials_describe(const struct credentials *credentials, char *out, size_t size);

#endif
