#include "uploader/blob_queue.h"

/* A ring's places. */
struct places {
    struct blob_ring *ring;
    struct blob *blobs;
    unsigned length;
};

static struct places places_of(struct blob_queue *queue, bool of_capture)
{
    return of_capture
               ? (struct places){&queue->captures, queue->capture_blobs,
                                 UPLOADER_CAPTURES_QUEUE_LENGTH}
               : (struct places){&queue->windows, queue->window_blobs, UPLOADER_QUEUE_LENGTH};
}

static bool is_of_capture(const struct blob *blob)
{
    return blob->header.capture[0] != 0;
}

static struct blob take_first(const struct places *places)
{
    struct blob_ring *ring = places->ring;
    struct blob blob = places->blobs[ring->first];
    ring->first = (ring->first + 1) % places->length;
    ring->count--;
    ring->bytes -= blob.body.capacity;
    return blob;
}

static void put_at(const struct places *places, unsigned place, const struct blob *blob)
{
    places->blobs[place % places->length] = *blob;
    places->ring->count++;
    places->ring->bytes += blob->body.capacity;
}

static bool is_full(const struct places *places, const struct blob *next)
{
    const struct blob_ring *ring = places->ring;
    if (ring->count == places->length)
        return true;
    return ring->count > 0 && ring->bytes + next->body.capacity > UPLOADER_QUEUE_BYTES &&
           places->blobs[ring->first].header.sequence != next->header.sequence;
}

bool blob_queue_put(struct blob_queue *queue, const struct blob *blob, struct blob *oldest)
{
    struct places places = places_of(queue, is_of_capture(blob));
    if (is_full(&places, blob)) {
        *oldest = take_first(&places);
        return true;
    }
    put_at(&places, places.ring->first + places.ring->count, blob);
    return false;
}

bool blob_queue_put_back(struct blob_queue *queue, const struct blob *blob)
{
    struct places places = places_of(queue, is_of_capture(blob));
    if (places.ring->count == places.length)
        return false;
    places.ring->first = (places.ring->first + places.length - 1) % places.length;
    put_at(&places, places.ring->first, blob);
    return true;
}

struct blob blob_queue_take(struct blob_queue *queue)
{
    struct places places = places_of(queue, queue->windows.count == 0);
    return take_first(&places);
}

void blob_queue_forget(struct blob_queue *queue)
{
    queue->windows = queue->captures = (struct blob_ring){.count = 0};
}
