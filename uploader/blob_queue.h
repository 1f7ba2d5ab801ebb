/* blob_queue.h: blobs that wait for the run loop, in two rings: windows' profiles, and captures',
 * which come in numbers and so never take the place of the former.
 *
 * Owns: nothing; a queue is its user's. Context: any. Locks: its user's (LOCK_UPLOADER). Nothing is
 * freed here: what has no room any more is handed out. */
#ifndef LIBAGENT_BLOB_QUEUE_H
#define LIBAGENT_BLOB_QUEUE_H

#include <stdbool.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "uploader/blob.h"

enum {
    UPLOADER_QUEUE_LENGTH = 16,          /* blobs: two families, eight windows */
    UPLOADER_CAPTURES_QUEUE_LENGTH = 48, /* three families of 16 captures, all that a window has */
};

struct blob {
    struct blob_header header;
    struct buffer body;
    bool handed;     /* to the backends' queues */
    bool compressed; /* a blob that could not be written is not compressed again */
};

struct blob_ring {
    unsigned first, count;
};

struct blob_queue {
    struct blob_ring windows, captures;
    struct blob window_blobs[UPLOADER_QUEUE_LENGTH];
    struct blob capture_blobs[UPLOADER_CAPTURES_QUEUE_LENGTH];
};

/* All zero is an empty one. */
static inline unsigned blob_queue_count(const struct blob_queue *queue)
{
    return queue->windows.count + queue->captures.count;
}
/* Whether of a window or a capture is told by the header. True: *oldest, of the same kind, had to
 * make room, and is the caller's. */
bool blob_queue_put(struct blob_queue *queue, const struct blob *blob,
                    struct blob *oldest) MUST_USE;
/* Back to its begin. False: there is no room. */
bool blob_queue_put_back(struct blob_queue *queue, const struct blob *blob) MUST_USE;
/* Windows first. There is one. */
struct blob blob_queue_take(struct blob_queue *queue);

#endif
