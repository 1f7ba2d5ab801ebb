/* blob.h: what travels through the uploader beside a profile's bytes.
 *
 * A backend is a function from a blob's header and bytes to a file or a request; this header is
 * all that it may know of the profile.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_BLOB_H
#define LIBAGENT_BLOB_H

#include <stdint.h>

/* All texts are 0-terminated, cut where too long. */
struct blob_header {
    char dialect[16]; /* "pprof" */
    char family[16];  /* "cpu", "heap" */
    char service[128];
    char capture[48]; /* NAME.NUMBER: the profile is of a part of the window, which others have
                       * whole; "": it is the window's */
    uint64_t start_unix_ns;
    uint64_t end_unix_ns;
    uint32_t sequence; /* of the window, from 0 */
};

#endif
