/* blob_queue.h: blobs that wait for the run loop, in two rings: windows' profiles, and captures',
 * which come in numbers and so never take the place of the former.
 *
 * A full ring loses its oldest. It is full with so many blobs, or, as none should cost a program
 * its memory while a disk is full, where all have UPLOADER_QUEUE_BYTES with the new one: but those
 * of one window never make room for each other.
 *
 * Owns: nothing; a queue is its user's. Context: any. Locks: its user's (LOCK_UPLOADER). Nothing is
 * freed here: what has no room any more is handed out. */
#ifndef LIBAGENT_BLOB_QUEUE_H
#define LIBAGENT_BLOB_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "uploader/blob.h"

enum {
    /* Blobs: two windows, as there are at an exit that comes upon one that is not written yet. Of
     * each the five families that files have, in three formats (15); and for backends three
     * families, for Parca what is live apart (3 + 4), and Datadog's one (1). */
    UPLOADER_QUEUE_LENGTH = 48,
    /* Three families of 16 captures, all that a window has, in three formats. */
    UPLOADER_CAPTURES_QUEUE_LENGTH = 144,
    UPLOADER_QUEUE_BYTES = 32 << 20, /* of each, mapped; a usual window has less than 2 MB */
};

struct blob {
    struct blob_header header;
    struct buffer body;
    bool handed;     /* to the backends' queues */
    bool compressed; /* a blob that could not be written is not compressed again */
};

struct blob_ring {
    unsigned first, count;
    size_t bytes;
};

/* All zero is an empty one. */
struct blob_queue {
    struct blob_ring windows, captures;
    struct blob window_blobs[UPLOADER_QUEUE_LENGTH];
    struct blob capture_blobs[UPLOADER_CAPTURES_QUEUE_LENGTH];
};

static inline unsigned blob_queue_count(const struct blob_queue *queue)
{
    return queue->windows.count + queue->captures.count;
}
/* Whether of a window or a capture is told by the header. True: there is no room, and *oldest, of
 * the same kind, is the caller's: the next try has more. */
bool blob_queue_put(struct blob_queue *queue, const struct blob *blob,
                    struct blob *oldest) MUST_USE;
/* Back to its begin. False: there is no room. */
bool blob_queue_put_back(struct blob_queue *queue, const struct blob *blob) MUST_USE;
/* Windows first. There is one. */
struct blob blob_queue_take(struct blob_queue *queue);
/* Empty, whatever it was. */
void blob_queue_forget(struct blob_queue *queue);

#endif
