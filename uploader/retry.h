/* retry.h: what becomes of a profile after a try to send it: sent, dropped, unknown, or once more.
 *
 * Stores keep every copy that they get, so a profile that may have arrived is never sent again.
 *
 * Owns: nothing. Context: any (pure: time and chance are arguments). Locks: none. */
#ifndef LIBAGENT_RETRY_H
#define LIBAGENT_RETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "uploader/http_message.h"
#include "uploader/upload_url.h"

#define RETRY_FIRST_NS       (1 * NS_PER_SEC)
#define RETRY_LONGEST_NS     (30 * NS_PER_SEC)
#define RETRY_AFTER_LIMIT_NS (300 * NS_PER_SEC) /* what a server may ask for */
#define RETRY_PROBE_NS       (300 * NS_PER_SEC) /* where it refuses us altogether */
#define RETRY_BURST_BYTES    (2u << 20)         /* above, Pyroscope's 429 never clears */

enum outcome { OUTCOME_SENT, OUTCOME_DROPPED, OUTCOME_UNKNOWN, OUTCOME_AGAIN };

struct verdict {
    enum outcome outcome;
    uint64_t wait_ns;   /* before the next try to this destination */
    bool too_large;     /* the next profile has to be smaller */
    bool refused;       /* the destination takes nothing: this is news whatever came before */
    bool shows_answer;  /* the answer's text tells why */
    int status;         /* as HTTP has it (a gRPC status is mapped), 0: none */
    const char *reason; /* in words, static; NULL: response->reason */
};

/* `attempt` from 0; `size` the profile's, not compressed; `unit` in (0, 1] is drawn. */
struct verdict retry_decide(enum backend_kind kind, const struct http_response *response,
                            size_t size, unsigned attempt, double unit, uint64_t now_unix_ns);
/* Nanoseconds that a Retry-After header asks for, in seconds or as an HTTP date, cut at the limit;
 * 0: it is not understood, or lies in the past. */
uint64_t retry_after_ns(const char *text, uint64_t now_unix_ns);

#endif
