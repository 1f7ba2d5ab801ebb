#include "agent/thread/user_labels.h"

#include <errno.h>

#include "agent/base/arena.h"
#include "agent/thread/thread_context.h"

struct label_room *user_labels_room(struct thread_slot *slot)
{
    if (!slot->labels)
        store_release(&slot->labels, (struct label_room *)arena_reserve(sizeof(*slot->labels)));
    return slot->labels;
}

/* The slot's page, marked busy. */
static int begin_change(struct thread_slot *slot, struct label_room **room)
{
    *room = user_labels_room(slot);
    if (!*room)
        return -ENOMEM;
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

struct label_view user_labels_of_room(const struct label_room *room)
{
    struct label_view view = {.captures = {[CAPTURE_OF_PROCESS] = capture_here(&captures_process)}};
    if (room) {
        view.set = load_acquire(&room->set);
        view.captures[CAPTURE_OF_THREAD] = capture_here(&room->capture);
    }
    return view;
}

static const struct label_set *copy_set(struct label_set *to, const struct label_set *from)
{
    to->words = from ? MIN_OF(load_relaxed(&from->words), (uint32_t)LABEL_SET_WORDS) : 0;
    for (uint32_t i = 0; i < to->words; i++)
        to->data[i] = load_relaxed(&from->data[i]);
    return to->words ? to : NULL;
}

struct label_view user_labels_of(const struct label_room *room, struct label_set *copy)
{
    /* A change takes some 20 ns, so two in a row that hit a copy are rare: one that is hit so often
     * is of a thread that does nothing else, and goes without. */
    enum { TRIES = 16 };
    for (int i = 0; room && i < TRIES; i++) {
        uint32_t seq = load_acquire(&room->seq);
        struct label_view view = user_labels_of_room(room);
        view.set = copy_set(copy, view.set);
#if defined(__SANITIZE_THREAD__)
        full_fence();
#else
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
        if (load_relaxed(&room->seq) == seq)
            return view;
    }
    copy->words = 0;
    return user_labels_of_room(NULL);
}

void user_labels_keep(struct label_room *room)
{
    if (!room)
        return;
    (void)user_labels_of(room, &room->kept);
    const struct capture *capture = load_acquire(&room->capture);
    room->kept_capture = capture ? load_relaxed(&capture->number) : 0;
}

static const struct label_set *kept_capture(uint32_t number, uint64_t at_ns, uint64_t *until_ns)
{
    const struct capture *capture = number ? capture_of_number(number) : NULL;
    uint64_t end = capture ? load_relaxed(&capture->until_ns) : 0;
    if (at_ns >= end)
        return NULL;
    *until_ns = MIN_OF(*until_ns, end);
    return &capture->set;
}

struct label_view user_labels_kept(const struct label_room *room, uint64_t at_ns,
                                   uint64_t *until_ns)
{
    struct label_view view = {
        .captures = {[CAPTURE_OF_PROCESS] = captures_at(at_ns, until_ns)},
    };
    if (room) {
        view.set = room->kept.words ? &room->kept : NULL;
        view.captures[CAPTURE_OF_THREAD] = kept_capture(room->kept_capture, at_ns, until_ns);
    }
    return view;
}
