#include "agent/record/heap_kept.h"

#include <errno.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/record/heap_tables.h"
#include "agent/record/model_step.h"

struct kept {
    size_t size; /* bytes reserved */
    size_t count;
    struct heap_kept_facts facts;
    struct heap_ref_row rows[];
};

static struct kept *places[HEAP_KEPT_COUNT];
static struct kept *making, *going;

static void drop_rows(struct kept *kept)
{
    while (kept->count) {
        const struct heap_ref_row *row = &kept->rows[kept->count - 1];
        store_release(&kept->count, kept->count - 1);
        counted_drop(&heap.keys, row->stack);
        counted_drop(&heap.keys, row->thread);
    }
}

/* `*place` is `making` or `going`. */
static void drop(struct kept **place)
{
    struct kept *kept = *place;
    if (!kept)
        return;
    drop_rows(kept);
    step(place);
    store_release(place, NULL); /* before its memory goes: a fork child looks there */
    arena_release(kept, kept->size);
}

static void add_row(struct kept *kept, const struct heap_ref_row *row)
{
    counted_share(&heap.keys, row->stack);
    counted_share(&heap.keys, row->thread);
    kept->rows[kept->count] = *row;
    kept->facts.bytes += row->values.amount; /* in bytes at the end */
    store_release(&kept->count, kept->count + 1);
}

/* Of the open snapshot. */
static int make(void)
{
    size_t count;
    const struct heap_ref_row *rows = heap_snapshot_rows(&count);
    size_t size = sizeof(struct kept) + count * sizeof(rows[0]);
    struct kept *kept = arena_reserve(size);
    if (!kept)
        return -ENOMEM;
    kept->size = size;
    store_release(&making, kept);
    for (size_t i = 0; i < count; i++)
        add_row(kept, &rows[i]);
    kept->facts.bytes >>= RECORD_AMOUNT_BITS_ALLOC;
    kept->facts.records = heap_snapshot_records();
    return 0;
}

static void put_in_place(enum heap_kept_which which)
{
    store_release(&going, places[which]);
    step(&places[which]);
    store_release(&places[which], making);
    step(&making);
    store_release(&making, NULL);
    drop(&going);
}

int heap_kept_take(enum heap_kept_which which, const struct heap_view *view, uint64_t least)
{
    uint64_t monotonic_ns = clock_monotonic_ns(), realtime_ns = clock_realtime_ns();
    struct heap_view kept_view = *view;
    kept_view.is_kept = true;
    int error = heap_snapshot_prepare(&kept_view);
    if (error)
        return error;
    error = make();
    heap_snapshot_finish();
    if (!error && making->facts.bytes < least)
        error = -EAGAIN;
    if (error) {
        drop(&making);
        return error;
    }
    making->facts.monotonic_ns = monotonic_ns;
    making->facts.realtime_ns = realtime_ns;
    put_in_place(which);
    return 0;
}

bool heap_kept_facts(enum heap_kept_which which, struct heap_kept_facts *facts)
{
    if (places[which])
        *facts = places[which]->facts;
    return places[which] != NULL;
}

int heap_kept_each(enum heap_kept_which which, int (*each)(const struct heap_row *, void *),
                   void *data)
{
    const struct kept *kept = places[which];
    return kept ? heap_ref_rows_each(kept->rows, kept->count, each, data) : 0;
}

void heap_kept_drop(enum heap_kept_which which)
{
    store_release(&going, places[which]);
    store_release(&places[which], NULL);
    drop(&going);
}

static bool is_in_place(const struct kept *kept)
{
    for (int i = 0; i < HEAP_KEPT_COUNT; i++)
        if (places[i] == kept)
            return true;
    return false;
}

void heap_kept_reset_in_child(void)
{
    if (is_in_place(making))
        making = NULL;
    if (is_in_place(going))
        going = NULL;
    drop(&making);
    drop(&going);
}
