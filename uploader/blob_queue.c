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
    places->blobs[ring->first] = (struct blob){0};
    ring->first = (ring->first + 1) % places->length;
    ring->count--;
    return blob;
}

bool blob_queue_put(struct blob_queue *queue, const struct blob *blob, struct blob *oldest)
{
    struct places places = places_of(queue, is_of_capture(blob));
    bool is_full = places.ring->count == places.length;
    if (is_full)
        *oldest = take_first(&places);
    places.blobs[(places.ring->first + places.ring->count) % places.length] = *blob;
    places.ring->count++;
    return is_full;
}

bool blob_queue_put_back(struct blob_queue *queue, const struct blob *blob)
{
    struct places places = places_of(queue, is_of_capture(blob));
    if (places.ring->count == places.length)
        return false;
    places.ring->first = (places.ring->first + places.length - 1) % places.length;
    places.blobs[places.ring->first] = *blob;
    places.ring->count++;
    return true;
}

struct blob blob_queue_take(struct blob_queue *queue)
{
    struct places places = places_of(queue, queue->windows.count == 0);
    return take_first(&places);
}
