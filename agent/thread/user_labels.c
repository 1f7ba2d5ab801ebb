#include "agent/thread/user_labels.h"

#include <errno.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/thread/thread_context.h"

/* The slot's page, marked busy. */
static int begin_change(struct thread_slot *slot, struct label_room **room)
{
    if (!slot->labels) {
        struct label_room *fresh = arena_reserve(sizeof(*fresh));
        if (!fresh)
            return -ENOMEM;
        store_release(&slot->labels, fresh);
    }
    *room = slot->labels;
    if (load_relaxed(&(*room)->busy))
        return -EDEADLK;
    store_relaxed(&(*room)->busy, 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return 0;
}

static void end_change(struct label_room *room)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    store_relaxed(&room->busy, 0);
}

/* Before a set is written that others may be reading. (Where stores are seen in their order, on
 * x86-64, the fence is for the compiler alone.) */
static void write_begins(struct label_room *room)
{
    store_relaxed(&room->seq, room->seq + 1);
#if defined(__SANITIZE_THREAD__)
    full_fence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static int change(struct thread_slot *slot, const uint64_t *label, bool adds)
{
    struct label_room *room;
    int error = begin_change(slot, &room);
    if (error)
        return error;
    const struct label_set *old = room->set;
    struct label_set *new = old == &room->sets[0] ? &room->sets[1] : &room->sets[0];
    write_begins(room);
    int result = label_set_change(new, old, label, adds);
    if (result >= 0)
        store_release(&room->set, new->words ? (const struct label_set *)new : NULL);
    end_change(room);
    return result;
}

int user_labels_set(struct thread_slot *slot, const uint64_t *label)
{
    return MIN_OF(change(slot, label, true), 0);
}

int user_labels_clear(struct thread_slot *slot, const uint64_t *label)
{
    if (!slot->labels)
        return -ENOENT;
    int result = change(slot, label, false);
    return result > 0 ? -ENOENT : result;
}

int user_labels_capture(struct thread_slot *slot, const uint64_t *label, uint64_t until_ns)
{
    struct label_room *room;
    int error = begin_change(slot, &room);
    if (error)
        return error;
    if (room->capture && clock_monotonic_ns() < room->capture_until_ns) {
        error = -EBUSY;
    } else {
        store_release(&room->capture, (const struct label_set *)NULL);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        write_begins(room);
        store_relaxed(&room->capture_until_ns, until_ns);
        (void)!label_set_change(&room->named, NULL, label, true);
        store_release(&room->capture, (const struct label_set *)&room->named);
    }
    end_change(room);
    return error;
}

int user_labels_capture_end(struct thread_slot *slot, uint64_t now_ns)
{
    struct label_room *room = slot->labels;
    if (!room || !room->capture)
        return -EALREADY;
    bool in_time = now_ns < room->capture_until_ns;
    store_release(&room->capture, (const struct label_set *)NULL);
    return in_time ? 0 : -ETIMEDOUT;
}

struct label_view user_labels_here(const struct label_room *room)
{
    if (likely(!room))
        return (struct label_view){NULL, NULL};
    struct label_view view = {load_acquire(&room->set), load_acquire(&room->capture)};
    if (view.capture && clock_monotonic_ns() >= load_relaxed(&room->capture_until_ns))
        view.capture = NULL;
    return view;
}

static const struct label_set *copy(struct label_set *to, const struct label_set *from)
{
    if (!from)
        return NULL;
    to->words = MIN_OF(load_relaxed(&from->words), (uint32_t)LABEL_SET_WORDS);
    for (uint32_t i = 0; i < to->words; i++)
        to->data[i] = load_relaxed(&from->data[i]);
    return to;
}

struct label_view user_labels_of(const struct label_room *room, struct label_copies *copies)
{
    /* A change takes some 20 ns, so two in a row that hit a copy are rare: one that is hit so often
     * is of a thread that does nothing else, and goes without. */
    enum { TRIES = 16 };
    for (int i = 0; room && i < TRIES; i++) {
        uint32_t seq = load_acquire(&room->seq);
        struct label_view view = user_labels_here(room);
        view.set = copy(&copies->set, view.set);
        view.capture = copy(&copies->capture, view.capture);
#if defined(__SANITIZE_THREAD__)
        full_fence();
#else
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
        if (load_relaxed(&room->seq) == seq)
            return view;
    }
    return (struct label_view){NULL, NULL};
}
