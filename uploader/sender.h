/* sender.h: profiles on their way to backends: a short queue for each, tries, and what came of
 * them.
 *
 *   1. sender_take compresses a profile for each destination that wants its dialect, and puts it at
 *      the end of that destination's queue; when the queue is full its oldest goes, counted.
 *   2. sender_run posts what is due, the oldest first. What may have arrived is never sent again
 *      (retry.h); what has not is, after a wait that grows. A destination that waits does not hold
 *      up another; one that failed last, and so may hold a post for its 10 s, comes when nothing is
 *      due for the others.
 *   3. Each process uploads at a point of its own of the period, so that those that were started
 *      together do not come together.
 *   4. At the end sender_finish tries each profile once more until its deadline; what is left goes
 *      to the spool (spool.h), and so does the oldest of a full queue. Without one it is dropped.
 *   5. What is in the spool, also of others, is sent where a queue is empty and its backend
 * answers.
 *
 * Each profile's end is one of sent, dropped and unknown; all three are counted (stats.h).
 *
 * Owns: the queues; no other thread touches them. Context: sender_start INIT,
 * sender_reset_in_child INIT; sender_wants, sender_max_bytes, sender_pending, sender_left any; the
 * rest UP. Locks: none. */
#ifndef LIBAGENT_SENDER_H
#define LIBAGENT_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/options.h"
#include "uploader/blob.h"
#include "uploader/upload_config.h"

enum {
    SENDER_QUEUE_LENGTH = 12,             /* profiles: four families, three windows */
    SENDER_QUEUE_BYTES = 8 * 1024 * 1024, /* of one destination, compressed */
};

/* `post_compression`: of a plain POST's body; `has_to_stop`: is a post under way to end soon? It is
 * asked all along, each 100 ms at least, and may call sender_take. */
void sender_start(const struct upload_config *upload, enum compression post_compression,
                  bool (*has_to_stop)(void));
/* Does a destination want profiles of this dialect? */
bool sender_wants(const char *dialect);
/* A profile of this dialect was too large at so many bytes (not compressed), halved; 0: none was.
 */
size_t sender_max_bytes(const char *dialect);
/* Queues the profile, whose bytes stay as they are, for each of them. */
void sender_take(const struct blob_header *header, const struct buffer *body);
/* Profiles that are queued; once for each destination. */
unsigned sender_pending(void);
/* Of these, what waits; and what may have arrived, also before, and has not been told of. */
void sender_left(unsigned *queued, unsigned *sent_in_doubt);
/* Posts one profile that is due, if there is one: whoever has others to look after can do that
 * between two. The CLOCK_MONOTONIC time to be called again, UINT64_MAX: nothing is queued. */
uint64_t sender_run(void);
/* Something new may be in the spool: the next sender_run looks. */
void sender_look_into_spool(void);
/* The end, at the deadline or somewhat later; `may_send` false: this thread may not call libcurl.
 */
void sender_finish(uint64_t deadline_ns, bool may_send);
/* spool_log_say_losses; by the thread of sender_run. */
void sender_say_losses(void);
void sender_reset_in_child(void);

#endif
