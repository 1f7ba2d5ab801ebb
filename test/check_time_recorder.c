/* Totals of a window: nothing that is added gets lost, whatever is full and whoever turns. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/time_recorder.h"
#include "test/record_fixture.h"

enum { MIB = 1 << 20, FRAMES = 4 };
/* The smallest tables: 127 rows, 15 threads, 170 stacks of four frames. */
enum { TINY = 60 << 10 };

struct stack {
    uint64_t generation;
    uint64_t pcs[FRAMES];
};

static struct thread_label label_of(uint64_t tid)
{
    struct thread_label label = {.tid = tid, .name = "worker"};
    return label;
}

static void add(enum record_family family, const struct stack *stack, uint32_t count, uint64_t tid,
                struct record_values values)
{
    struct thread_label label = label_of(tid);
    recorder_add(family, (const struct record_stack *)(const void *)stack, count, &label, values,
                 true);
}

/* What windows hold, summed. */
struct sums {
    struct record_values total[RECORD_FAMILIES];
    struct record_values truncated[RECORD_FAMILIES]; /* part of it */
    uint32_t row_count;
    uint32_t no_thread_rows; /* part of them */
};

static int count_no_thread(const struct window_row *row, void *count)
{
    *(uint32_t *)count += row->thread->tid == 0;
    return 0;
}

static void add_values(struct record_values *sum, struct record_values values)
{
    sum->count += values.count;
    sum->amount += values.amount;
}

static void sum_window(const struct window *window, struct sums *sums)
{
    sums->row_count += fixture_rows(window);
    window_each(window, count_no_thread, &sums->no_thread_rows);
    for (int family = 0; family < RECORD_FAMILIES; family++) {
        add_values(&sums->total[family], fixture_total(window, (enum record_family)family));
        add_values(&sums->truncated[family], window->truncated[family]);
    }
}

static void check_sums(const struct sums *sums, const struct record_values truth[RECORD_FAMILIES])
{
    for (int family = 0; family < RECORD_FAMILIES; family++) {
        ck_assert_uint_eq(sums->total[family].count, truth[family].count);
        ck_assert_uint_eq(sums->total[family].amount, truth[family].amount);
    }
}

static struct window *turn(void)
{
    return recorder_turn(clock_monotonic_ns(), clock_realtime_ns());
}

static void start_with(size_t budget)
{
    arena_set_budget(budget);
    ck_assert_int_eq(recorder_start(1000, 2000), 0);
}

/* ---- what a row holds ---- */

/* Rows of a small window, in a list that is searched. */
static struct window_row found[64];
static uint32_t found_count;

static int collect(const struct window_row *row, void *data)
{
    (void)data;
    ck_assert_uint_lt(found_count, ARRAY_SIZE(found));
    found[found_count++] = *row;
    return 0;
}

static const struct window_row *find_row(enum record_family family, const struct stack *stack,
                                         uint32_t count, uint64_t tid)
{
    const struct window_row *match = NULL;
    for (uint32_t i = 0; i < found_count; i++) {
        const struct window_row *row = &found[i];
        if (row->family != family || row->count != count || row->thread->tid != tid ||
            row->generation != stack->generation || memcmp(row->pcs, stack->pcs, count * 8) != 0)
            continue;
        ck_assert_ptr_null(match);
        ck_assert_str_eq(row->thread->name, "worker");
        match = row;
    }
    ck_assert_ptr_nonnull(match);
    return match;
}

START_TEST(a_row_is_family_stack_and_thread)
{
    start_with(MIB);
    static const struct stack stacks[] = {
        {0, {100, 200, 300, 400}},
        {1, {100, 200, 300, 400}}, /* another generation of the module list */
        {0, {100, 200, 300, 500}},
        {0, {PSEUDO_OVERHEAD, 200, 300, 400}},
    };
    uint64_t number = 0;
    for (int round = 1; round <= 3; round++) {
        number = 0;
        for (int family = 0; family < RECORD_FAMILIES; family++)
            for (size_t s = 0; s < ARRAY_SIZE(stacks); s++)
                for (uint64_t tid = 7; tid < 9; tid++, number++)
                    for (uint32_t count = 3; count <= 4; count++)
                        add((enum record_family)family, &stacks[s], count, tid,
                            (struct record_values){number + count, number << 40});
    }
    struct window *window = turn();
    ck_assert_int_eq(window_each(window, collect, NULL), 0);
    /* Of three frames the first and the third stack are the same. */
    ck_assert_uint_eq(found_count, RECORD_FAMILIES * 2 * (4 + 3));
    number = 0;
    for (int family = 0; family < RECORD_FAMILIES; family++) {
        for (size_t s = 0; s < ARRAY_SIZE(stacks); s++) {
            for (uint64_t tid = 7; tid < 9; tid++, number++) {
                const struct window_row *row =
                    find_row((enum record_family)family, &stacks[s], 4, tid);
                ck_assert_uint_eq(row->values.count, 3 * (number + 4));
                ck_assert_uint_eq(row->values.amount, 3 * (number << 40));
            }
        }
    }
    for (uint64_t tid = 7; tid < 9; tid++) {
        const struct window_row *row = find_row(RECORD_CPU, &stacks[0], 3, tid);
        ck_assert_uint_eq(row->values.count, 3 * ((tid - 7 + 3) + (4 + tid - 7 + 3)));
    }
    ck_assert_uint_eq(stats_get(STAT_SAMPLES_TRUNCATED), 0);
}
END_TEST

START_TEST(a_stack_without_a_frame_is_unknown)
{
    start_with(MIB);
    struct stack stack = {5, {11, 12, 13, 14}}; /* not read */
    add(RECORD_ALLOC, &stack, 0, 1, (struct record_values){1, 2});
    stack.generation = 6;
    add(RECORD_ALLOC, &stack, 0, 1, (struct record_values){1, 2});
    ck_assert_int_eq(window_each(turn(), collect, NULL), 0);
    ck_assert_uint_eq(found_count, 1);
    ck_assert_uint_eq(found[0].count, 1);
    ck_assert_uint_eq(found[0].pcs[0], PSEUDO_UNKNOWN);
    ck_assert_uint_eq(found[0].values.count, 2);
    ck_assert_uint_eq(found[0].values.amount, 4);
}
END_TEST

START_TEST(pseudo_frames_have_names)
{
    ck_assert_str_eq(pseudo_frame_name(PSEUDO_OVERHEAD), "libagent overhead");
    ck_assert_str_eq(pseudo_frame_name(PSEUDO_TRUNCATED), "libagent truncated");
    ck_assert_str_eq(pseudo_frame_name(PSEUDO_TAIL), "[thread end]");
    ck_assert_str_eq(pseudo_frame_name(PSEUDO_UNKNOWN), "[unknown]");
    ck_assert_ptr_nonnull(pseudo_frame_name((enum pseudo_frame)0));
    ck_assert_ptr_nonnull(pseudo_frame_name(PSEUDO_COUNT));
}
END_TEST

static int stop_at_third(const struct window_row *row, void *data)
{
    (void)row;
    return ++*(int *)data == 3 ? -77 : 1;
}

START_TEST(each_row_stops_at_an_error)
{
    start_with(MIB);
    struct stack stack = {0, {1, 2, 3, 4}};
    for (uint64_t tid = 1; tid <= 10; tid++)
        add(RECORD_CPU, &stack, 4, tid, (struct record_values){1, 1});
    struct window *window = turn();
    int calls = 0;
    ck_assert_int_eq(window_each(window, stop_at_third, &calls), -77);
    ck_assert_int_eq(calls, 3);
}
END_TEST

/* ---- turning ---- */

START_TEST(windows_take_turns)
{
    start_with(MIB);
    ck_assert_uint_eq(recorder_window_start_ns(), 1000);
    ck_assert(!recorder_has_samples());
    struct stack stack = {0, {1, 2, 3, 4}};
    struct window *first = NULL, *second = NULL;
    for (uint64_t round = 0; round < 10; round++) {
        add(RECORD_CPU, &stack, 4, 1, (struct record_values){round + 1, round + 2});
        ck_assert(recorder_has_samples());
        struct window *old = recorder_turn(3000 + round, 4000 + round);
        ck_assert(!recorder_has_samples());
        ck_assert_uint_eq(recorder_window_start_ns(), 3000 + round);
        ck_assert_uint_eq(old->start_monotonic_ns, round ? 3000 + round - 1 : 1000);
        ck_assert_uint_eq(old->start_realtime_ns, round ? 4000 + round - 1 : 2000);
        ck_assert_uint_eq(old->real_samples, 1);
        /* Goes into the other one. */
        struct sums sums = {0};
        struct record_values truth[RECORD_FAMILIES] = {{round + 1, round + 2}};
        sum_window(old, &sums);
        check_sums(&sums, truth);
        ck_assert_ptr_ne(old, second);
        recorder_clear(old);
        struct sums none = {0};
        sum_window(old, &none);
        ck_assert_uint_eq(none.row_count, 0);
        second = old;
        if (!first)
            first = old;
        ck_assert_int_eq(old == first, round % 2 == 0);
    }
}
END_TEST

START_TEST(only_samples_of_timers_and_allocations_are_real)
{
    start_with(MIB);
    struct stack stack = {0, {PSEUDO_TAIL, 2, 3, 4}};
    struct thread_label label = label_of(1);
    recorder_add(RECORD_CPU, (const struct record_stack *)(const void *)&stack, 4, &label,
                 (struct record_values){0, 5}, false);
    ck_assert(!recorder_has_samples());
    add(RECORD_ALLOC, &stack, 4, 1, (struct record_values){1, 5});
    ck_assert(recorder_has_samples());
    struct window *old = turn();
    ck_assert_uint_eq(old->real_samples, 1);
    recorder_clear(old);
    ck_assert_uint_eq(old->real_samples, 0);
}
END_TEST

START_TEST(a_fork_child_starts_empty)
{
    start_with(MIB);
    struct stack stack = {0, {1, 2, 3, 4}};
    add(RECORD_CPU, &stack, 4, 1, (struct record_values){1, 1});
    turn(); /* pending in the parent */
    add(RECORD_CPU, &stack, 4, 1, (struct record_values){1, 1});
    recorder_reset_in_child(7000, 8000);
    ck_assert(!recorder_has_samples());
    ck_assert_uint_eq(recorder_window_start_ns(), 7000);
    for (int i = 0; i < 2; i++) {
        struct sums sums = {0};
        struct window *old = turn();
        sum_window(old, &sums);
        ck_assert_uint_eq(sums.row_count, 0);
        ck_assert_uint_eq(old->real_samples, 0);
    }
}
END_TEST

START_TEST(a_budget_that_is_too_small_is_an_error)
{
    /* Wherever it fails, nothing is kept. */
    for (size_t budget = 0; budget < 56 << 10; budget += 4096) {
        arena_set_budget(budget);
        ck_assert_int_eq(recorder_start(1, 1), -ENOMEM);
        ck_assert_uint_eq(arena_reserved(), 0);
    }
    start_with(TINY);
    ck_assert_uint_gt(arena_reserved(), 0);
    recorder_destroy();
    ck_assert_uint_eq(arena_reserved(), 0);
    start_with(TINY);
}
END_TEST

START_TEST(two_windows_leave_half_of_the_budget)
{
    /* The default, the least share in a container, and an odd one: indices are powers of two. */
    static const size_t budgets[] = {64 * MIB, 4 * MIB, 4 * MIB + 4096, 17 * MIB - 4096};
    size_t budget = budgets[_i];
    ck_assert_uint_eq(arena_reserved(), 0);
    arena_set_budget(budget);
    ck_assert_int_eq(recorder_start(1, 1), 0);
    ck_assert_uint_le(arena_reserved(), budget * 6 / 10);
}
END_TEST

/* ---- tables that are full ---- */

/* What is added has `stacks` different stacks and `threads` threads. */
static void add_more_than_fits(uint64_t stacks, uint64_t threads,
                               struct record_values truth[RECORD_FAMILIES])
{
    struct rng rng = {1};
    for (int i = 0; i < 20000; i++) {
        uint64_t random = rng_next(&rng);
        enum record_family family = (enum record_family)(random & 1);
        struct stack stack = {0, {1000 + (random >> 1) % stacks, 2, 3, 4}};
        struct record_values values = {random >> 40, random >> 20 & 0xffff};
        add(family, &stack, 1 + (uint32_t)(i % FRAMES), 1 + (random >> 8) % threads, values);
        add_values(&truth[family], values);
    }
}

static const struct {
    uint64_t stacks, threads;
    bool truncates, drops_labels;
} too_many[] = {
    {1000, 1, true, false},  /* stacks and rows are full */
    {1, 1000, false, true},  /* threads: rows of no thread take what is theirs */
    {100, 15, true, true},   /* rows */
    {5000, 500, true, true}, /* all */
};

START_TEST(what_has_no_room_is_truncated_not_lost)
{
    start_with(TINY);
    /* A cleared window has the same room again. */
    for (int round = 0; round < 3; round++) {
        struct record_values truth[RECORD_FAMILIES] = {{0}};
        struct sums sums = {0};
        uint64_t folded = stats_get(STAT_SAMPLES_TRUNCATED);
        uint64_t without_label = stats_get(STAT_LABELS_DROPPED);
        add_more_than_fits(too_many[_i].stacks, too_many[_i].threads, truth);
        struct window *old = turn();
        sum_window(old, &sums);
        check_sums(&sums, truth);
        ck_assert_uint_gt(sums.row_count, 0);
        bool truncates = too_many[_i].truncates, drops_labels = too_many[_i].drops_labels;
        ck_assert_int_eq(stats_get(STAT_SAMPLES_TRUNCATED) > folded, truncates);
        ck_assert_int_eq(sums.truncated[RECORD_CPU].count > 0, truncates);
        ck_assert_int_eq(sums.truncated[RECORD_ALLOC].amount > 0, truncates);
        ck_assert_int_eq(stats_get(STAT_LABELS_DROPPED) > without_label, drops_labels);
        ck_assert_int_eq(sums.no_thread_rows > 0, drops_labels);
        recorder_clear(old);
        ck_assert_uint_eq(old->truncated[RECORD_CPU].count, 0);
        ck_assert_uint_eq(old->truncated[RECORD_ALLOC].amount, 0);
    }
}
END_TEST

/* ---- samples while windows turn ---- */

enum { ADDERS = 4, SAMPLES = 30000, WINDOWS_LEAST = 50 };

static uint32_t running;
static uint32_t windows_turned;
static struct record_values added[ADDERS][RECORD_FAMILIES];

static void *add_samples(void *argument)
{
    size_t self = (size_t)argument;
    struct thread_slot *slot = thread_attach(0, 0);
    struct rng rng = {self + 100};
    /* So many samples, and on until the other side has had its windows. */
    for (int i = 0; i < SAMPLES || load_relaxed(&windows_turned) < WINDOWS_LEAST; i++) {
        uint64_t random = rng_next(&rng);
        enum record_family family = (enum record_family)(random & 1);
        struct stack stack = {0, {1000 + (random >> 1) % 300, 2, 3, 4}};
        struct record_values values = {random >> 48, random >> 32 & 0xffff};
        thread_guard_enter(slot);
        add(family, &stack, FRAMES, self, values);
        thread_guard_leave(slot);
        add_values(&added[self][family], values);
    }
    thread_leave();
    add_relaxed(&running, -1);
    return NULL;
}

static int count_labelled(const struct window_row *row, void *count)
{
    uint32_t *labelled = count;
    if (!row->labels[ROW_LABELS])
        return 0;
    /* Both or none: half of a sample's labels would be a lie. */
    ck_assert_ptr_nonnull(row->labels[ROW_CAPTURE]);
    (*labelled)++;
    return 0;
}

/* Each sample has labels of its own and all are in one capture; most find no room. */
START_TEST(labels_that_find_no_room_are_counted)
{
    enum { SAMPLES = 100 };
    start_with(TINY);
    struct stack stack = {0, {1, 2, 3, 4}};
    struct thread_label label = label_of(1);
    struct label_set sets[2] = {{0}};
    uint64_t words[LABEL_WORDS_MAX], before = stats_get(STAT_LABELS_DROPPED);
    ck_assert_int_eq(label_make(words, "capture", "slice", NULL), 0);
    ck_assert_int_eq(label_set_change(&sets[1], NULL, words, true), 1);
    for (int64_t i = 0; i < SAMPLES; i++) {
        ck_assert_int_eq(label_make(words, "request", NULL, &i), 0);
        ck_assert_int_eq(label_set_change(&sets[0], NULL, words, true), 1);
        const struct label_view view = {.set = &sets[0], .captures = {&sets[1]}};
        recorder_add_labelled(RECORD_CPU, (const struct record_stack *)(const void *)&stack, 4,
                              &label, &view, (struct record_values){1, 1}, true);
    }
    const struct window *window = turn();
    uint32_t labelled = 0;
    struct sums sums = {0};
    sum_window(window, &sums);
    ck_assert_uint_eq(sums.total[RECORD_CPU].amount, SAMPLES);
    ck_assert_int_eq(window_each(window, count_labelled, &labelled), 0);
    ck_assert_uint_gt(labelled, 0);
    ck_assert_uint_eq(stats_get(STAT_LABELS_DROPPED) - before, SAMPLES - labelled);
    ck_assert_uint_lt(labelled, SAMPLES);
}
END_TEST

START_TEST(the_sum_over_all_windows_is_what_was_added)
{
    /* With room, and with so little that the tables are full in most windows. */
    start_with(_i ? TINY : 8 * MIB);
    arena_set_budget(SIZE_MAX);
    fixture_threads();
    pthread_t threads[ADDERS];
    struct sums sums = {0};
    running = ADDERS;
    for (size_t i = 0; i < ADDERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add_samples, (void *)i), 0);
    uint64_t real = 0;
    for (bool last = false; !last; add_relaxed(&windows_turned, 1)) {
        last = load_relaxed(&running) == 0;
        struct window *old = turn();
        ck_assert(thread_guard_quiescent(clock_monotonic_ns() + 10 * NS_PER_SEC));
        sum_window(old, &sums);
        real += old->real_samples;
        recorder_clear(old);
    }
    struct record_values truth[RECORD_FAMILIES] = {{0}};
    for (size_t i = 0; i < ADDERS; i++) {
        pthread_join(threads[i], NULL);
        for (int family = 0; family < RECORD_FAMILIES; family++)
            add_values(&truth[family], added[i][family]);
    }
    check_sums(&sums, truth);
    ck_assert_uint_ge(real, ADDERS * SAMPLES);
    ck_assert_uint_gt(windows_turned, WINDOWS_LEAST);
    if (_i)
        ck_assert_uint_gt(sums.truncated[RECORD_CPU].count, 0);
    else
        ck_assert_uint_eq(sums.truncated[RECORD_CPU].count, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("time_recorder");
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 60);
    tcase_add_test(rows, a_row_is_family_stack_and_thread);
    tcase_add_test(rows, a_stack_without_a_frame_is_unknown);
    tcase_add_test(rows, pseudo_frames_have_names);
    tcase_add_test(rows, each_row_stops_at_an_error);
    suite_add_tcase(suite, rows);
    TCase *windows = tcase_create("windows");
    tcase_set_timeout(windows, 60);
    tcase_add_test(windows, windows_take_turns);
    tcase_add_test(windows, only_samples_of_timers_and_allocations_are_real);
    tcase_add_test(windows, a_fork_child_starts_empty);
    tcase_add_test(windows, a_budget_that_is_too_small_is_an_error);
    tcase_add_test(windows, labels_that_find_no_room_are_counted);
    tcase_add_loop_test(windows, two_windows_leave_half_of_the_budget, 0, 4);
    tcase_add_loop_test(windows, what_has_no_room_is_truncated_not_lost, 0,
                        (int)ARRAY_SIZE(too_many));
    tcase_add_loop_test(windows, the_sum_over_all_windows_is_what_was_added, 0, 2);
    suite_add_tcase(suite, windows);
    return suite;
}
