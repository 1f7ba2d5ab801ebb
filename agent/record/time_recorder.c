#include "agent/record/time_recorder.h"

#include <string.h>

#include "agent/base/stats.h"

/* Shares of LIBAGENT_MEMORY for one of the two windows: 1/8 for stacks (8 MiB of the default
 * 64: 40,000 stacks of 25 frames), 1/16 for totals (131,000 rows), 1/128 for threads (16,000);
 * with the indices, the two windows take a little under half of the budget. The rest is for the
 * live heap, thread slots and module lists. */
enum { STACK_SHARE = 8, TOTAL_SHARE = 16, THREAD_SHARE = 128 };
/* Bytes of arena for one index word: an index is at most half full when its arena is full. */
enum { STACK_BYTES = 128, ROW_BYTES = 16, LABEL_BYTES = 16 };

/* Bits of a total's key: family above two references of 31 bits. References of entries are never
 * 0. */
enum { KEY_FAMILY_SHIFT = 62, KEY_REF_BITS = 31, NO_THREAD = 0 };

static struct window windows[2];
static uint32_t active;

static const char *const pseudo_names[PSEUDO_COUNT] = {
    [PSEUDO_OVERHEAD] = "libagent overhead",
    [PSEUDO_TRUNCATED] = "libagent truncated",
    [PSEUDO_TAIL] = "[thread end]",
    [PSEUDO_UNREACHED] = "[not sampled]",
    [PSEUDO_RUNNING] = "running (not sampled)",
    [PSEUDO_UNKNOWN] = "[unknown]",
    [PSEUDO_SKIPPED] = "libagent skipped",
    [PSEUDO_UNSEEN] = "[threads not seen]",
    [PSEUDO_HANDLERS] = "[sampling handlers]",
    [PSEUDO_HOOKS] = "[allocation hooks]",
    [PSEUDO_AGENT] = "[agent thread]",
    [PSEUDO_UPLOADER] = "[uploader thread]",
    [PSEUDO_TICKS] = "[ticks thread]",
};

const char *pseudo_frame_name(enum pseudo_frame frame)
{
    return frame > 0 && frame < PSEUDO_COUNT ? pseudo_names[frame] : "[unknown]";
}

static int create_table(struct intern_table *table, size_t bytes, size_t bytes_of_entry)
{
    uint32_t index_size = PAGE_SIZE_MIN / sizeof(uint64_t);
    while (index_size < bytes / bytes_of_entry)
        index_size *= 2;
    return intern_create(table, bytes, index_size);
}

static void window_begin(struct window *window, uint64_t monotonic_ns, uint64_t realtime_ns)
{
    window->start_monotonic_ns = monotonic_ns;
    window->start_realtime_ns = realtime_ns;
}

static int create_window(struct window *window, size_t budget)
{
    int error = create_table(&window->stacks, budget / STACK_SHARE, STACK_BYTES);
    if (!error)
        error = create_table(&window->totals, budget / TOTAL_SHARE, ROW_BYTES);
    if (!error)
        error = create_table(&window->threads, budget / THREAD_SHARE, LABEL_BYTES);
    return error;
}

int recorder_start(uint64_t now_monotonic_ns, uint64_t now_realtime_ns)
{
    static size_t budget;
    int error = 0;
    if (windows[0].totals.index && budget == arena_budget()) {
        recorder_reset_in_child(now_monotonic_ns, now_realtime_ns);
        return 0;
    }
    budget = arena_budget();
    recorder_destroy();
    memset(windows, 0, sizeof(windows));
    for (size_t i = 0; !error && i < ARRAY_SIZE(windows); i++)
        error = create_window(&windows[i], arena_budget());
    if (error)
        recorder_destroy();
    active = 0;
    window_begin(&windows[0], now_monotonic_ns, now_realtime_ns);
    return error;
}

void recorder_destroy(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
        intern_destroy(&windows[i].stacks);
        intern_destroy(&windows[i].totals);
        intern_destroy(&windows[i].threads);
    }
}

static struct intern_entry *intern_row(struct window *window, enum record_family family,
                                       const struct intern_entry *stack, uint32_t thread_ref)
{
    uint64_t key = (uint64_t)family << KEY_FAMILY_SHIFT |
                   (uint64_t)intern_ref(&window->stacks, stack) << KEY_REF_BITS | thread_ref;
    return intern(&window->totals, &key, 1, sizeof(struct record_values) / sizeof(uint64_t));
}

const uint64_t *record_stack_key(const struct record_stack *stack, uint32_t count, uint32_t *words)
{
    static const uint64_t unknown[] = {0, PSEUDO_UNKNOWN};
    *words = count ? count + 1 : (uint32_t)ARRAY_SIZE(unknown);
    return count ? &stack->generation : unknown;
}

/* 0: there are none, or there is no room, which makes *has_all false. */
static uint64_t labels_ref(struct window *window, const struct label_set *set, bool *has_all)
{
    const struct intern_entry *entry =
        set ? intern(&window->threads, set->data, set->words, 0) : NULL;
    *has_all &= !set || entry;
    return entry ? intern_ref(&window->threads, entry) : 0;
}

enum {
    THREAD_WORDS = sizeof(struct thread_label) / sizeof(uint64_t),
    LABEL_WORD = THREAD_WORDS, /* the set and the thread's capture */
    PROCESS_WORD,              /* the process's capture, where there is one */
    LABELLED_WORDS,
    CAPTURE_SHIFT = 32
};

static struct intern_entry *intern_labelled(struct window *window, const struct thread_label *label,
                                            const struct label_view *labels)
{
    bool has_all = true;
    uint64_t key[LABELLED_WORDS];
    memcpy(key, label, sizeof(*label));
    const struct label_set *const *captures = labels->captures;
    key[LABEL_WORD] = labels_ref(window, labels->set, &has_all) |
                      labels_ref(window, captures[CAPTURE_OF_THREAD], &has_all) << CAPTURE_SHIFT;
    key[PROCESS_WORD] = labels_ref(window, captures[CAPTURE_OF_PROCESS], &has_all);
    uint32_t words = key[PROCESS_WORD] ? LABELLED_WORDS : PROCESS_WORD;
    return has_all ? intern(&window->threads, key, words, 0) : NULL;
}

static struct intern_entry *intern_thread(struct window *window, const struct thread_label *label,
                                          const struct label_view *labels)
{
    struct intern_entry *entry = NULL;
    bool has_labels = labels && (labels->set || labels->captures[CAPTURE_OF_THREAD] ||
                                 labels->captures[CAPTURE_OF_PROCESS]);
    if (has_labels)
        entry = intern_labelled(window, label, labels);
    if (!entry) {
        entry = intern(&window->threads, (const uint64_t *)label, THREAD_WORDS, 0);
        stats_add(STAT_LABELS_DROPPED, has_labels && entry);
    }
    return entry;
}

/* Where there is no room for the thread's labels, the thread is taken without them; where there is
 * none for it, or its row, the row of no thread: a program of many short threads keeps its
 * functions. */
static struct intern_entry *intern_total(struct window *window, enum record_family family,
                                         const struct record_stack *stack, uint32_t count,
                                         const struct thread_label *label,
                                         const struct label_view *labels)
{
    uint32_t words;
    const uint64_t *key = record_stack_key(stack, count, &words);
    struct intern_entry *stack_entry = intern(&window->stacks, key, words, 0);
    if (!stack_entry)
        return NULL;
    struct intern_entry *thread_entry = intern_thread(window, label, labels);
    struct intern_entry *row = NULL;
    if (thread_entry)
        row = intern_row(window, family, stack_entry, intern_ref(&window->threads, thread_entry));
    if (!row) {
        row = intern_row(window, family, stack_entry, NO_THREAD);
        stats_add(STAT_LABELS_DROPPED, row != NULL);
    }
    return row;
}

void recorder_add_labelled(enum record_family family, const struct record_stack *stack,
                           uint32_t count, const struct thread_label *label,
                           const struct label_view *labels, struct record_values values,
                           bool is_real)
{
    struct window *window = &windows[load_acquire(&active)];
    struct intern_entry *entry = intern_total(window, family, stack, count, label, labels);
    struct record_values *total;
    if (entry) {
        total = (struct record_values *)(void *)intern_values(entry);
    } else {
        total = &window->truncated[family];
        stats_add(STAT_SAMPLES_TRUNCATED, 1);
    }
    add_relaxed(&total->count, values.count);
    add_relaxed(&total->amount, values.amount);
    if (is_real)
        add_relaxed(&window->real_samples, 1);
}

bool recorder_has_samples(void)
{
    return load_relaxed(&windows[load_acquire(&active)].real_samples) != 0;
}

uint64_t recorder_window_start_ns(void)
{
    return windows[load_acquire(&active)].start_monotonic_ns;
}

struct window *recorder_turn(uint64_t now_monotonic_ns, uint64_t now_realtime_ns)
{
    uint32_t old = load_relaxed(&active);
    window_begin(&windows[!old], now_monotonic_ns, now_realtime_ns);
    __atomic_store_n(&active, !old, __ATOMIC_SEQ_CST);
    return &windows[old];
}

void recorder_clear(struct window *window)
{
    intern_clear(&window->stacks);
    intern_clear(&window->totals);
    intern_clear(&window->threads);
    memset(window->truncated, 0, sizeof(window->truncated));
    window->real_samples = 0;
}

void recorder_reset_in_child(uint64_t now_monotonic_ns, uint64_t now_realtime_ns)
{
    for (size_t i = 0; windows[0].totals.index && i < ARRAY_SIZE(windows); i++)
        recorder_clear(&windows[i]);
    active = 0;
    window_begin(&windows[0], now_monotonic_ns, now_realtime_ns);
}

static const struct intern_entry *labels_at(const struct window *window, uint32_t ref)
{
    return ref ? intern_at(&window->threads, ref) : NULL;
}

static void set_thread(const struct window *window, uint32_t ref, struct window_row *row)
{
    static const struct thread_label no_thread;
    row->thread = &no_thread;
    if (ref == NO_THREAD)
        return;
    const struct intern_entry *entry = intern_at(&window->threads, ref);
    row->thread = (const struct thread_label *)(const void *)entry->data;
    if (entry->words > LABEL_WORD) {
        row->labels[ROW_LABELS] = labels_at(window, (uint32_t)entry->data[LABEL_WORD]);
        row->labels[ROW_CAPTURE] =
            labels_at(window, (uint32_t)(entry->data[LABEL_WORD] >> CAPTURE_SHIFT));
    }
    if (entry->words > PROCESS_WORD)
        row->labels[ROW_PROCESS_CAPTURE] = labels_at(window, (uint32_t)entry->data[PROCESS_WORD]);
}

int window_each(const struct window *window, int (*each)(const struct window_row *, void *),
                void *data)
{
    const uint64_t ref_mask = ((uint64_t)1 << KEY_REF_BITS) - 1;
    uint32_t position = 0;
    const struct intern_entry *entry;
    while ((entry = intern_next(&window->totals, &position)) != NULL) {
        uint64_t pair = entry->data[0];
        const struct intern_entry *stack =
            intern_at(&window->stacks, (uint32_t)(pair >> KEY_REF_BITS & ref_mask));
        struct window_row row = {
            .family = (enum record_family)(pair >> KEY_FAMILY_SHIFT),
            .generation = (uint32_t)stack->data[0],
            .state = (uint32_t)(stack->data[0] >> RECORD_STATE_SHIFT),
            .pcs = stack->data + 1,
            .count = stack->words - 1u,
            .values = {load_relaxed(&entry->data[1]), load_relaxed(&entry->data[2])},
        };
        set_thread(window, (uint32_t)(pair & ref_mask), &row);
        int error = each(&row, data);
        if (error < 0)
            return error;
    }
    return 0;
}
