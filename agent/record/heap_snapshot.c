#include "agent/record/heap_snapshot.h"

#include <errno.h>

#include "agent/base/buffer.h"
#include "agent/base/pair_map.h"
#include "agent/record/heap_tables.h"
#include "agent/record/model_step.h"

static struct {
    bool open;
    uint32_t epoch;         /* the mark of keys that are held */
    uint32_t held;          /* first of them; the others by mark_next */
    uint32_t records;       /* seen */
    struct buffer rows;     /* struct heap_ref_row */
    struct pair_map by_key; /* (stack and thread, age and size) to row + 1 */
} snapshot;

uint64_t heap_size_class(uint64_t size)
{
    if (size <= 16)
        return 16;
    unsigned top = 63 - (unsigned)__builtin_clzll(size - 1);
    uint64_t step_size = (uint64_t)1 << (top - 2);
    return ALIGN_UP(size, step_size);
}

static uint32_t age_class(uint32_t age_s)
{
    return age_s ? 1u << (31 - __builtin_clz(age_s)) : 0;
}

/* The snapshot's own reference, one for each key. The caller has another one. */
static void hold_key(uint32_t ref)
{
    if (!ref)
        return;
    struct counted_entry *entry = counted_at(&heap.keys, ref);
    if (entry->mark == snapshot.epoch)
        return;
    counted_share(&heap.keys, ref);
    entry->mark = snapshot.epoch;
    entry->mark_next = snapshot.held;
    store_relaxed(&snapshot.held, ref);
}

static struct heap_ref_row *rows_held(void)
{
    return (struct heap_ref_row *)(void *)snapshot.rows.data;
}

static int add_to_row(const struct heap_ref_row *look)
{
    uint64_t key = (uint64_t)look->stack << 32 | look->thread;
    /* An age class is none or one of 32, a size below 2^57. */
    uint64_t age = look->age_s ? 1u + (uint32_t)__builtin_ctz(look->age_s) : 0;
    uint64_t kind = look->bytes << 6 | age;
    uint32_t found = pair_map_get(&snapshot.by_key, key, kind);
    if (found) {
        struct heap_ref_row *row = &rows_held()[found - 1];
        row->values.count += look->values.count;
        row->values.amount += look->values.amount;
        return 0;
    }
    buffer_append(&snapshot.rows, look, sizeof(*look));
    if (snapshot.rows.error)
        return snapshot.rows.error;
    hold_key(look->stack);
    hold_key(look->thread);
    return pair_map_add(&snapshot.by_key, key, kind,
                        (uint32_t)(snapshot.rows.size / sizeof(*look)));
}

static int add_pinned(const struct heap_record *record, const struct heap_view *view)
{
    uint32_t age = view->now_s - MIN_OF(record->born_s, view->now_s);
    if (age < view->min_age_s)
        return 0;
    struct heap_ref_row look = {
        .stack = record->stack,
        .thread = view->by_thread ? record->thread : 0,
        .age_s = view->by_age ? age_class(age) : 0,
        .bytes = view->by_size ? heap_size_class(record->size) : 0,
        .values = record_values_of(record->weight, record->size),
    };
    snapshot.records++;
    return add_to_row(&look);
}

static int add_record(uint32_t ref, const struct heap_view *view)
{
    struct heap_record *record = heap_pool_at(&heap.pool, ref);
    step(record);
    if (heap_condition_of(load_relaxed(&record->state)) != HEAP_LIVE)
        return 0;
    store_relaxed(&heap.pinned, ref);
    if (!heap_record_pin(record))
        return 0;
    int error = add_pinned(record, view);
    if (!heap_record_unpin(record))
        heap_give_back(ref);
    return error;
}

int heap_snapshot_prepare(const struct heap_view *view)
{
    if (snapshot.open)
        return -EBUSY;
    snapshot.open = true;
    snapshot.records = 0;
    if (++snapshot.epoch == 0)
        snapshot.epoch = 1;
    if (!view->is_kept)
        store_relaxed(&heap.changed, 0);
    full_fence(); /* what changes from here on is seen as a change, by one snapshot too many at
                     worst */
    uint32_t count = load_acquire(&heap.pool.bump);
    int error = 0;
    for (uint32_t ref = 1; ref <= count && !error; ref++)
        error = add_record(ref, view);
    store_relaxed(&heap.pinned, 0);
    if (error)
        heap_snapshot_finish();
    return error;
}

const struct heap_ref_row *heap_snapshot_rows(size_t *count)
{
    *count = snapshot.rows.size / sizeof(struct heap_ref_row);
    return rows_held();
}

int heap_ref_rows_each(const struct heap_ref_row *rows, size_t count,
                       int (*each)(const struct heap_row *, void *), void *data)
{
    static const struct thread_label unknown;
    static const uint64_t truncated = PSEUDO_TRUNCATED;
    for (size_t i = 0; i < count; i++) {
        const struct heap_ref_row *row = &rows[i];
        const struct counted_entry *stack = row->stack ? counted_at(&heap.keys, row->stack) : NULL;
        struct heap_row out = {
            .generation = stack ? (uint32_t)stack->key[0] : 0,
            .pcs = stack ? stack->key + 1 : &truncated,
            .count = stack ? stack->words - 1u : 1,
            .thread =
                row->thread ? (const void *)counted_at(&heap.keys, row->thread)->key : &unknown,
            .age_s = row->age_s,
            .bytes = row->bytes,
            .values = row->values,
        };
        int error = each(&out, data);
        if (error < 0)
            return error;
    }
    return 0;
}

int heap_snapshot_each(int (*each)(const struct heap_row *, void *), void *data)
{
    size_t count;
    const struct heap_ref_row *rows = heap_snapshot_rows(&count);
    return heap_ref_rows_each(rows, count, each, data);
}

static void drop_held(void)
{
    uint32_t ref = snapshot.held;
    while (ref) {
        uint32_t next = counted_at(&heap.keys, ref)->mark_next;
        step(&snapshot.held);
        store_release(&snapshot.held, next); /* first: a fork child drops none twice */
        counted_drop(&heap.keys, ref);
        step(&snapshot.held);
        ref = next;
    }
}

void heap_snapshot_finish(void)
{
    drop_held();
    buffer_free(&snapshot.rows);
    pair_map_free(&snapshot.by_key);
    snapshot.open = false;
    /* What hooks had to leave, because its shard was busy. */
    counted_drain(&heap.keys);
}

uint32_t heap_snapshot_records(void)
{
    return snapshot.records;
}

void heap_snapshot_reset_in_child(void)
{
    heap_recorder_reset_in_child();
    snapshot.rows = (struct buffer){0};
    snapshot.by_key = (struct pair_map){0};
    if (snapshot.open)
        drop_held();
    snapshot.open = false;
}
