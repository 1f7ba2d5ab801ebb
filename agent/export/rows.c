#include "agent/export/rows.h"

#include <errno.h>
#include <string.h>

#include "agent/record/heap_kept.h"
#include "agent/record/heap_snapshot.h"

/* A label's words; all 0 where labels are switched off. */
static const struct thread_label *label_of(const struct row_table *table, const struct row *row)
{
    static const struct thread_label none;
    return table->request->thread_labels && row->thread ? row->thread : &none;
}

static uint64_t hash_labels(const struct row_table *table, const struct row *row)
{
    uint64_t words[sizeof(struct thread_label) / sizeof(uint64_t)];
    memcpy(words, label_of(table, row), sizeof(words));
    uint64_t hash = hash_mix(hash_mix(row->state, row->age_s), row->bytes);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        hash = hash_mix(hash, words[i]);
    /* A window has the same labels once. */
    for (int i = 0; i < ROW_LABEL_SETS; i++)
        if (row->labels[i])
            hash = hash_mix(hash, (uintptr_t)row->labels[i]);
    return hash;
}

static bool look_equal(struct row_table *table, const struct row *a, const struct row *b)
{
    if (a->family != b->family || a->count != b->count || a->state != b->state ||
        a->age_s != b->age_s || a->bytes != b->bytes ||
        memcmp(a->labels, b->labels, sizeof(a->labels)) != 0 ||
        memcmp(label_of(table, a), label_of(table, b), sizeof(*a->thread)) != 0)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (location_of(&table->locations, a->generation, a->pcs[i]) !=
            location_of(&table->locations, b->generation, b->pcs[i]))
            return false;
    return true;
}

static bool has_family(const struct row_table *table, enum record_family family)
{
    return table->families >> family & 1;
}

/* Adds a row, to an earlier one where the file would show the same stack and labels twice (what a
 * window and the live heap have of them, two generations of the module list, or labels switched
 * off). */
static int add_row(struct row_table *table, const struct row *row)
{
    if (!has_family(table, row->family))
        return 0;
    uint64_t hash = row->count + ((uint64_t)row->family << 32);
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t location = location_of(&table->locations, row->generation, row->pcs[i]);
        if (!location)
            return -ENOMEM;
        hash = hash_mix(hash, location);
    }
    uint64_t labels = hash_labels(table, row);
    struct row *rows = (struct row *)(void *)table->rows.data;
    /* Another look under the same hash: the next hash is tried. */
    for (uint32_t found; (found = pair_map_get(&table->by_look, hash, labels)); hash++) {
        struct row *earlier = &rows[found - 1];
        if (look_equal(table, earlier, row)) {
            for (int i = 0; i < VALUES; i++)
                earlier->values[i] += row->values[i];
            return 0;
        }
    }
    buffer_append(&table->rows, row, sizeof(*row));
    if (table->rows.error)
        return table->rows.error;
    return pair_map_add(&table->by_look, hash, labels, (uint32_t)(table->rows.size / sizeof(*row)));
}

static int add_window_row(const struct window_row *row, void *data)
{
    struct row_table *table = data;
    const struct intern_entry *capture = table->request->capture;
    if (row->family == RECORD_ALLOC && !table->request->has_window)
        return 0;
    if (capture && row->labels[ROW_CAPTURE] != capture &&
        row->labels[ROW_PROCESS_CAPTURE] != capture)
        return 0;
    struct row added = {
        .family = row->family,
        .pcs = row->pcs,
        .generation = row->generation,
        .count = row->count,
        .thread = row->thread,
        .state = table->request->state_label ? row->state : 0,
        .values = {[WINDOW_COUNT] = row->values.count, [WINDOW_AMOUNT] = row->values.amount},
    };
    if (table->request->user_labels)
        memcpy(added.labels, row->labels, sizeof(added.labels));
    return add_row(table, &added);
}

/* Where the rows of a live heap go. */
struct live_rows {
    struct row_table *table;
    enum record_family family;
    bool are_taken_off;
};

static int add_live_row(const struct heap_row *row, void *data)
{
    const struct live_rows *to = data;
    uint64_t count = row->values.count, amount = row->values.amount;
    const struct row added = {
        .family = to->family,
        .pcs = row->pcs,
        .generation = row->generation,
        .count = row->count,
        .thread = row->thread,
        .age_s = to->family == RECORD_ALLOC ? row->age_s : 0,
        .bytes = row->bytes,
        .values = {[LIVE_COUNT] = to->are_taken_off ? -count : count,
                   [LIVE_AMOUNT] = to->are_taken_off ? -amount : amount},
    };
    return add_row(to->table, &added);
}

static int add_rows(struct row_table *table, const struct window *window)
{
    struct live_rows live = {.table = table, .family = RECORD_ALLOC};
    struct live_rows grown = {.table = table, .family = FILE_HEAP_GROWTH};
    struct live_rows marked = {.table = table, .family = FILE_HEAP_GROWTH, .are_taken_off = true};
    struct live_rows peak = {.table = table, .family = FILE_HEAP_PEAK};
    int error = window_each(window, add_window_row, table);
    if (!error && table->request->has_live && has_family(table, RECORD_ALLOC))
        error = heap_snapshot_each(add_live_row, &live);
    if (!error && has_family(table, FILE_HEAP_GROWTH))
        error = heap_snapshot_each(add_live_row, &grown);
    if (!error && has_family(table, FILE_HEAP_GROWTH))
        error = heap_kept_each(HEAP_MARK, add_live_row, &marked);
    if (!error && has_family(table, FILE_HEAP_PEAK))
        error = heap_kept_each(HEAP_PEAK, add_live_row, &peak);
    return error;
}

/* Which rows stay where there is a limit: those of the largest amounts, by powers of two; of those
 * in between as many as there is room for. */
struct fold {
    uint64_t least;       /* such amounts stay */
    uint64_t least_spare; /* such ones while there is room */
    size_t spare;
};

/* Nearly always one of the two is 0. What shrank counts as what grew. */
static uint64_t amount_of(const struct row *row)
{
    return row_size(row, row->values[WINDOW_AMOUNT] + row->values[LIVE_AMOUNT]);
}

static struct fold fold_rows(const struct row *rows, size_t count, uint32_t limit)
{
    size_t of_length[65] = {0};
    if (!limit || count <= limit)
        return (struct fold){0};
    for (size_t i = 0; i < count; i++)
        of_length[amount_of(&rows[i]) ? 64 - __builtin_clzll(amount_of(&rows[i])) : 0]++;
    size_t kept = 0;
    int length = 64;
    while (length > 0 && kept + of_length[length] <= limit)
        kept += of_length[length--];
    return (struct fold){length < 64 ? 1ull << length : UINT64_MAX,
                         length > 0 ? 1ull << (length - 1) : 0, limit - kept};
}

static bool stays(struct fold *fold, uint64_t amount)
{
    if (amount >= fold->least)
        return true;
    if (amount < fold->least_spare || fold->spare == 0)
        return false;
    fold->spare--;
    return true;
}

/* What goes, and what the window had no room for: one row of each family. */
static int add_truncated(struct row_table *table, const struct window *window,
                         uint64_t folded[FILE_FAMILIES][VALUES])
{
    static const uint64_t truncated_pc = PSEUDO_TRUNCATED;
    int error = 0;
    for (int family = 0; family < FILE_FAMILIES && !error; family++) {
        struct row truncated = {
            .family = (enum record_family)family, .pcs = &truncated_pc, .count = 1};
        memcpy(truncated.values, folded[family], sizeof(truncated.values));
        if (family < RECORD_FAMILIES && !table->request->capture) {
            truncated.values[WINDOW_COUNT] += window->truncated[family].count;
            truncated.values[WINDOW_AMOUNT] += window->truncated[family].amount;
        }
        uint64_t any = 0;
        for (int i = 0; i < VALUES; i++)
            any |= truncated.values[i];
        error = any ? add_row(table, &truncated) : 0;
    }
    return error;
}

/* Leaves the rows that the limit has room for; the sums of the others are added to `folded`. */
static int fold_smallest(struct row_table *table, uint64_t folded[FILE_FAMILIES][VALUES])
{
    struct row *rows = (void *)table->rows.data;
    size_t count = table->rows.size / sizeof(rows[0]), kept = 0;
    struct fold fold = fold_rows(rows, count, table->request->row_limit);
    if (!fold.least)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (stays(&fold, amount_of(&rows[i])))
            rows[kept++] = rows[i];
        else
            for (int value = 0; value < VALUES; value++)
                folded[rows[i].family][value] += rows[i].values[value];
    }
    table->rows.size = kept * sizeof(rows[0]);
    /* Numbered anew, without the locations of the rows that are gone. */
    pair_map_free(&table->by_look);
    locations_free(&table->locations);
    int error = locations_begin(&table->locations);
    for (size_t i = 0; i < kept && !error; i++)
        for (uint32_t frame = 0; frame < rows[i].count && !error; frame++)
            if (!location_of(&table->locations, rows[i].generation, rows[i].pcs[frame]))
                error = -ENOMEM;
    return error;
}

int rows_gather(struct row_table *table, const struct window *window,
                const struct export_request *request, uint32_t families)
{
    uint64_t folded[FILE_FAMILIES][VALUES] = {{0}};
    table->request = request;
    table->families = families;
    int error = locations_begin(&table->locations);
    if (!error)
        error = add_rows(table, window);
    if (!error)
        error = fold_smallest(table, folded);
    return error ? error : add_truncated(table, window, folded);
}

const struct row *rows_of(const struct row_table *table, size_t *count)
{
    *count = table->rows.size / sizeof(struct row);
    return (const void *)table->rows.data;
}

bool row_next_label(const struct row *row, uint32_t *position, struct user_label *label)
{
    uint32_t left = *position;
    for (size_t i = 0; i < ROW_LABEL_SETS; i++) {
        const struct intern_entry *entry = row->labels[i];
        if (!entry)
            continue;
        uint32_t words = entry->words;
        const uint64_t *at = entry->data + left;
        if (left < words && label_next(&at, entry->data + words, label)) {
            *position += (uint32_t)(at - (entry->data + left));
            return true;
        }
        left -= MIN_OF(left, words);
    }
    return false;
}

void rows_free(struct row_table *table)
{
    locations_free(&table->locations);
    buffer_free(&table->rows);
    pair_map_free(&table->by_look);
}
