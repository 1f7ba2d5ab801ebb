/* user_labels.h: the labels that the program has given to a thread, and the capture that it is in.
 *
 * Protocol:
 *  1. A thread that sets its first label gets a page, which its slot keeps for the threads to
 *     come. There are two sets in it; `set` points to the one in force, NULL: none.
 *  2. A change is made by the thread itself, in the set that is not in force; then `set` is turned.
 *     A sample in the thread's own handler so finds the old or the new one, whole.
 *  3. `seq` grows before a set is written. Others (TICK, a flush) copy the set in force, and take
 *     the copy if `seq` is what it was: no set was written that they may have been reading.
 *  4. A handler of the app that comes in the middle of a change may not change them (`busy`).
 *  5. At a thread's begin, in a fork child and at each start of the agent there are none.
 *
 * Owns: the pages. Context: as said. Locks: none. */
#ifndef LIBAGENT_USER_LABELS_H
#define LIBAGENT_USER_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/label_words.h"

struct thread_slot;

struct label_room {
    uint32_t seq, busy;
    const struct label_set *set, *capture;
    uint64_t capture_until_ns; /* CLOCK_MONOTONIC */
    struct label_set sets[2], named;
};
_Static_assert(sizeof(struct label_room) <= PAGE_SIZE_MIN, "a page a thread");

/* What a sample is labelled with; NULL: nothing. */
struct label_view {
    const struct label_set *set, *capture;
};
/* Room for copies of them. */
struct label_copies {
    struct label_set set, capture;
};

/* The calling thread's. 0, or a negative errno. THR. */
int user_labels_set(struct thread_slot *slot, const uint64_t *label) MUST_USE;
/* 0; -ENOENT: it has no such label. */
int user_labels_clear(struct thread_slot *slot, const uint64_t *label) MUST_USE;
/* -EBUSY: it is in one. */
int user_labels_capture(struct thread_slot *slot, const uint64_t *label,
                        uint64_t until_ns) MUST_USE;
/* -EALREADY: it is in none; -ETIMEDOUT: that ended at its limit. */
int user_labels_capture_end(struct thread_slot *slot, uint64_t now_ns) MUST_USE;

/* In the thread itself, or its handler; `room` is the slot's, NULL: it never had any. SIG, HOOK. */
struct label_view user_labels_here(const struct label_room *room);
/* In any other, which has room for the copies (2.7 KB); they are what the view points to. TICK,
 * INIT. */
struct label_view user_labels_of(const struct label_room *room, struct label_copies *copies);
/* None any more. */
static inline void user_labels_forget(struct label_room *room)
{
    if (!room)
        return;
    store_relaxed(&room->busy, 0);
    store_release(&room->set, (const struct label_set *)NULL);
    store_release(&room->capture, (const struct label_set *)NULL);
}

#endif
