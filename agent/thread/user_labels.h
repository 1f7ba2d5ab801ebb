/* user_labels.h: the labels that the program has given to a thread, and the captures that it is in
 * (agent/thread/captures.h).
 *
 * Protocol:
 *  1. A thread that sets its first label gets a page, which its slot keeps for the threads to
 *     come. There are two sets in it; `set` points to the one in force, NULL: none.
 *  2. A change is made by the thread itself, in the set that is not in force; then `set` is turned.
 *     A sample in the thread's own handler so finds the old or the new one, whole.
 *  3. `seq` grows before a set is written. Others (TICK, a flush) copy the set in force, and take
 *     the copy if `seq` is what it was: no set was written that they may have been reading.
 *  4. A handler of the app that comes in the middle of a change may not change them (`busy`).
 *  5. At a thread's begin and end, in a fork child and at each start of the agent there are none.
 *  6. Wall time of a thread that waits is told when it has moved on, with the labels that it had
 * when it was looked at: whoever looks keeps these in `kept` (its account is claimed then).
 *
 * Owns: the pages. Context: as said. Locks: none. */
#ifndef LIBAGENT_USER_LABELS_H
#define LIBAGENT_USER_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/base/label_words.h"
#include "agent/thread/captures.h"

struct thread_slot;

struct label_room {
    uint32_t seq, busy;
    const struct label_set *set;
    struct capture *capture; /* the thread's holder */
    struct label_set sets[2];
    struct label_set kept;
    uint32_t kept_capture; /* its number, 0: none */
};
_Static_assert(sizeof(struct label_room) <= PAGE_SIZE_MIN, "a page a thread");

/* What a sample is labelled with; NULL: nothing. */
struct label_view {
    const struct label_set *set, *captures[CAPTURE_SCOPES];
};

/* The calling thread's. 0, or a negative errno. THR. */
int user_labels_set(struct thread_slot *slot, const uint64_t *label) MUST_USE;
/* 0; -ENOENT: it has no such label. */
int user_labels_clear(struct thread_slot *slot, const uint64_t *label) MUST_USE;
/* The slot's page, which is made where it has none; NULL: no memory. */
struct label_room *user_labels_room(struct thread_slot *slot);

struct label_view user_labels_of_room(const struct label_room *room);
/* In the thread itself, or its handler, in a guard; `room` is the slot's, NULL: it never had any.
 * SIG, HOOK. */
static inline struct label_view user_labels_here(const struct label_room *room)
{
    if (likely(!room && !load_relaxed(&captures_process)))
        return (struct label_view){0};
    return user_labels_of_room(room);
}
/* In any other, which has room for a copy (1.4 KB); it is what the view points to. TICK, INIT, in a
 * guard or under LOCK_FLUSH. */
struct label_view user_labels_of(const struct label_room *room, struct label_set *copy);

/* Keeps the thread's labels of now for the time that is told later. TICK, as is the next. */
void user_labels_keep(struct label_room *room);
/* Those that were kept, and the captures at that time; *until_ns as in captures_at. */
struct label_view user_labels_kept(const struct label_room *room, uint64_t at_ns,
                                   uint64_t *until_ns);

/* None any more. */
static inline void user_labels_forget(struct label_room *room)
{
    if (!room)
        return;
    store_relaxed(&room->busy, 0);
    store_release(&room->set, (const struct label_set *)NULL);
    capture_forget(&room->capture);
}

#endif
