/* Which allocations are sampled and what a sample stands for. The walk is a stand-in: a stack is
 * one frame, the site that the test names; all else (tables, slots, random gaps) is real.
 *
 * The statistical test is a comparison with a binomial variate: of N allocations with the
 * probability p each is sampled by itself, so that K of them are. Bernstein's inequality, valid
 * for every N and p: P(|K - N p| > t) <= 2 exp(-t^2 / (2 (N p (1 - p) + t / 3))). The bound t is
 * chosen for a right hand side of 1e-12, and there are fewer than 1,000 comparisons: a false
 * alarm comes less often than once in 1e9 runs. */
#include "test/check.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_hot.h"
#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/thread/moment.h"
#include "agent/unwind/unwind.h"
#include "test/next_libc.h"

/* ---- the stand-in ---- */

static __thread uint64_t site;
static uint32_t walk_flags = UNWIND_COMPLETE;
static uint32_t walk_frames = 1;

uint32_t unwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation)
{
    (void)regs;
    ck_assert(!exact);
    ck_assert_uint_eq(max, options.max_frames);
    home->low -= 4096;
    for (uint32_t i = 0; i < walk_frames; i++)
        pcs[i] = site;
    *flags = walk_flags;
    *generation = 3;
    return walk_frames;
}

/* ---- tools ---- */

static void leaving(void)
{
    thread_leave();
}

static void start(uint64_t interval)
{
    next_from_libc();
    options.max_frames = 16;
    arena_set_budget((size_t)32 << 20);
    ck_assert_int_eq(recorder_start(1, 1), 0);
    ck_assert_int_eq(scratch_start(options.max_frames), 0);
    ck_assert_int_eq(thread_start(leaving), 0);
    alloc_start(interval, false);
}

/* An allocation that went well. */
static void allocate(size_t size)
{
    agent_allocated(&site, size);
}

struct query {
    uint64_t site;
    struct record_values values;
    uint32_t rows;
};

static int ask_row(const struct window_row *row, void *data)
{
    struct query *query = data;
    query->rows++;
    ck_assert_int_eq(row->family, RECORD_ALLOC);
    ck_assert_uint_le(row->count, 1);
    if (row->pcs[0] == query->site) {
        query->values.count += row->values.count;
        query->values.amount += row->values.amount;
    }
    return 0;
}

/* What a window that nobody writes to any more has at a site. */
static struct record_values at_site(const struct window *window, uint64_t pc)
{
    struct query query = {.site = pc};
    window_each(window, ask_row, &query);
    return query.values;
}

static uint32_t rows_of(const struct window *window)
{
    struct query query = {0};
    window_each(window, ask_row, &query);
    return query.rows;
}

static struct window *turn(void)
{
    struct window *window = recorder_turn(1, 1);
    ck_assert(thread_guard_quiescent(0));
    ck_assert_uint_eq(window->truncated[RECORD_ALLOC].count, 0);
    return window;
}

static void check_values(struct record_values values, uint64_t objects, uint64_t bytes)
{
    ck_assert_uint_eq(values.count, objects << RECORD_FRACTION_BITS);
    ck_assert_uint_eq(values.amount, bytes << RECORD_AMOUNT_BITS_ALLOC);
}

/* ---- weights ---- */

static void check_weight(size_t size, uint64_t interval)
{
    double truth = 65536 / -expm1(-(double)size / (double)interval);
    double weight = (double)alloc_weight(size, interval);
    /* Half a unit from rounding. */
    ck_assert_msg(fabs(weight - truth) <= 0.5 + 1e-11 * truth, "size %zu, interval %lu: %f, not %f",
                  size, interval, weight, truth);
}

START_TEST(a_weight_is_one_over_the_probability)
{
    struct rng rng = {1};
    for (int i = 1; i <= 40; i++) {
        for (int j = 0; j <= 40; j++) {
            uint64_t interval = UINT64_C(1) << i;
            size_t size = (size_t)1 << j;
            check_weight(size, interval);
            for (int k = 0; k < 10; k++)
                check_weight(1 + rng_next(&rng) % size, 2 + rng_next(&rng) % interval);
        }
    }
}
END_TEST

START_TEST(a_weight_is_at_least_one)
{
    for (int i = 0; i <= 40; i++) {
        ck_assert_uint_eq(alloc_weight((size_t)1 << i, 1), 65536);
        ck_assert_uint_ge(alloc_weight((size_t)1 << i, 1 << 20), 65536);
    }
    ck_assert_uint_eq(alloc_weight((size_t)1 << 47, 524288), 65536);
    ck_assert_uint_eq(alloc_weight(SIZE_MAX, 524288), 65536);
}
END_TEST

/* ---- no bias ---- */

static const size_t sizes[] = {8, 16, 100, 512, 4096, 65536, 1 << 20};
enum { SIZES = ARRAY_SIZE(sizes), SEEDS = 20 };
/* In 1/1000, what share of the allocations has the size: small ones are many. */
static const unsigned shares[SIZES] = {600, 200, 100, 50, 30, 15, 5};
/* Intervals of a few bytes would show an error of one byte in the gap. */
static const struct {
    uint64_t interval;
    int stream; /* allocations for each seed; the more, the rarer samples are */
} cases[] = {{2, 20000}, {16, 20000}, {100, 40000}, {4096, 200000}, {524288, 400000}};

static double bound(double n, double p)
{
    const double log_term = log(2 / 1e-12);
    double variance = n * p * (1 - p);
    return log_term / 3 + sqrt(log_term * log_term / 9 + 2 * log_term * variance);
}

static size_t draw_size(struct rng *rng)
{
    uint64_t random = rng_next(rng) % 1000;
    size_t index = 0;
    for (; random >= shares[index]; index++)
        random -= shares[index];
    return index;
}

static void check_count(double sampled, double made, size_t size, uint64_t interval)
{
    double p = -expm1(-(double)size / (double)interval);
    ck_assert_msg(fabs(sampled - made * p) <= bound(made, p),
                  "size %zu, interval %lu: %.0f of %.0f sampled, expected %.1f +- %.1f", size,
                  interval, sampled, made, made * p, bound(made, p));
}

START_TEST(every_site_is_sampled_without_bias)
{
    uint64_t interval = cases[_i].interval;
    double sampled_of_all[SIZES] = {0}, made_of_all[SIZES] = {0};
    struct rng rng = {(uint64_t)_i};
    start(interval);
    for (int seed = 0; seed < SEEDS; seed++) {
        uint64_t made[SIZES] = {0};
        alloc_start(interval, false); /* this thread begins anew, with a seed of its own */
        for (int i = 0; i < cases[_i].stream; i++) {
            size_t index = draw_size(&rng);
            site = 1000 + index;
            made[index]++;
            allocate(sizes[index]);
        }
        struct window *window = turn();
        for (size_t i = 0; i < SIZES; i++) {
            struct record_values values = at_site(window, 1000 + i);
            uint64_t weight = alloc_weight(sizes[i], interval);
            uint64_t sampled = values.count / weight;
            ck_assert_uint_eq(values.count, sampled * weight);
            ck_assert_uint_eq(values.amount, sampled * (weight * sizes[i] >> 8));
            check_count((double)sampled, (double)made[i], sizes[i], interval);
            sampled_of_all[i] += (double)sampled;
            made_of_all[i] += (double)made[i];
        }
        recorder_clear(window);
    }
    for (size_t i = 0; i < SIZES; i++)
        check_count(sampled_of_all[i], made_of_all[i], sizes[i], interval);
}
END_TEST

/* A new thread's first allocations are as likely to be sampled as any. */
enum { NEWBORNS = 2000 };

static void *allocate_once(void *argument)
{
    site = 1000;
    allocate(64);
    return argument;
}

START_TEST(the_first_allocation_of_a_thread_is_like_any_other)
{
    start(256);
    for (int i = 0; i < NEWBORNS; i++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, allocate_once, NULL), 0);
        pthread_join(thread, NULL);
    }
    double sampled = (double)(at_site(turn(), 1000).count / alloc_weight(64, 256));
    check_count(sampled, NEWBORNS, 64, 256);
}
END_TEST

/* ---- what counts, and how often ---- */

START_TEST(interval_one_is_exact)
{
    start(1);
    uint64_t objects = 0, bytes = 0;
    for (size_t size = 1; size <= (size_t)1 << 40; size = size * 3 / 2 + 1) {
        site = 7;
        allocate(size);
        objects++, bytes += size;
    }
    check_values(at_site(turn(), 7), objects, bytes);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), objects);
}
END_TEST

enum { THREADS = 4, EACH = 20000 };

static void *allocate_many(void *argument)
{
    for (size_t i = 0; i < EACH; i++) {
        site = 100 + i % 10;
        allocate(i % 100);
    }
    return argument;
}

START_TEST(interval_one_is_exact_in_many_threads)
{
    start(1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, allocate_many, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct window *window = turn();
    ck_assert_uint_eq(rows_of(window), THREADS * 10);
    for (uint64_t digit = 0; digit < 10; digit++) {
        uint64_t objects = THREADS * EACH / 10, bytes = 0;
        for (uint64_t tens = 0; tens < 10; tens++)
            bytes += objects / 10 * (tens * 10 + digit + (tens + digit == 0));
        check_values(at_site(window, 100 + digit), objects, bytes);
    }
}
END_TEST

START_TEST(size_zero_counts_as_one_byte)
{
    start(1);
    site = 7;
    allocate(0);
    allocate(0);
    check_values(at_site(turn(), 7), 2, 2);
}
END_TEST

START_TEST(a_failed_call_is_not_counted)
{
    start(1000);
    allocate(1);
    int64_t before = thread_tls.bytes_until_sample;
    for (int i = 0; i < 100; i++)
        agent_allocated(NULL, SIZE_MAX);
    ck_assert_int_eq(thread_tls.bytes_until_sample, before);
    agent_allocated(NULL, 0);
    ck_assert_int_eq(thread_tls.bytes_until_sample, before);
}
END_TEST

/* calloc whose next definition calls the malloc hook, `depth` times over. */
static void allocate_nested(size_t size, int depth)
{
    int64_t saved = agent_nested_begin();
    if (depth > 1)
        allocate_nested(size + 16, depth - 1);
    else
        allocate(size + 16);
    agent_nested_end(saved);
    allocate(size);
}

START_TEST(nested_calls_count_once)
{
    start(_i ? 4096 : 1);
    site = 7;
    uint64_t made = 10000;
    for (uint64_t i = 0; i < made; i++)
        allocate_nested(40, 1 + (int)(i % 3));
    struct record_values values = at_site(turn(), 7);
    ck_assert_uint_eq(thread_tls.alloc_depth, 0);
    if (_i)
        check_count((double)(values.count / alloc_weight(40, 4096)), (double)made, 40, 4096);
    else
        check_values(values, made, made * 40);
}
END_TEST

START_TEST(a_nested_call_before_sampling_began_counts_once)
{
    /* The thread's first call ever, with the count at 0. */
    start(1);
    thread_tls.bytes_until_sample = 0;
    allocate_nested(40, 1);
    /* A nested call finds sampling off; it starts; the outer one looks. */
    alloc_stop();
    thread_tls.bytes_until_sample = 0;
    int64_t saved = agent_nested_begin();
    allocate(16);
    agent_nested_end(saved);
    alloc_start(1, false);
    allocate(40);
    check_values(at_site(turn(), 0), 2, 80);
}
END_TEST

START_TEST(a_thread_of_the_agent_counts_nothing)
{
    start(1);
    thread_tls.internal = 1;
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    ck_assert_int_gt(thread_tls.bytes_until_sample, INT64_MAX / 4);
    ck_assert_uint_eq(rows_of(turn()), 0);
    ck_assert_ptr_null(thread_tls.slot);
}
END_TEST

START_TEST(what_the_agent_allocates_is_not_counted)
{
    start(1000);
    allocate(1);
    int64_t before = thread_tls.bytes_until_sample;
    thread_tls.inside = 1;
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    thread_tls.inside = 0;
    ck_assert_int_eq(thread_tls.bytes_until_sample, before);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 0);
}
END_TEST

START_TEST(nothing_is_counted_after_a_stop)
{
    start(1);
    allocate(5);
    if (_i)
        alloc_stop_for_good();
    else
        alloc_stop();
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    check_values(at_site(turn(), 0), 1, 5);
    ck_assert_uint_eq(thread_tls.inside, 0);
    /* After a stop for good no thread looks again. */
    ck_assert_int_eq(thread_tls.bytes_until_sample > INT64_MAX / 4, _i);
}
END_TEST

static pthread_barrier_t barrier;

static void *allocate_before_and_after(void *argument)
{
    allocate(100);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 40; i++)
        allocate(65536);
    return argument;
}

START_TEST(a_start_reaches_threads_that_found_sampling_off)
{
    start(1);
    alloc_stop();
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_before_and_after, NULL);
    pthread_barrier_wait(&barrier);
    allocate(1);
    alloc_start(1, false);
    allocate(10);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    struct window *window = turn();
    ck_assert_uint_eq(rows_of(window), 2);
    /* The calling thread at once, others within a MiB. */
    uint64_t objects = at_site(window, 0).count >> RECORD_FRACTION_BITS;
    ck_assert_uint_eq(objects, 1 + 40 - 16);
}
END_TEST

START_TEST(on_foreign_tls_nothing_is_written)
{
    start(1);
    allocate(1);
    struct thread_slot *slot = thread_tls.slot;
    slot->tid++;
    struct thread_slot before = *slot;
    struct thread_tls tls = thread_tls;
    allocate(64);
    tls.bytes_until_sample -= 64; /* by the inline part; a gap's worth at most */
    ck_assert_mem_eq(slot, &before, sizeof(before));
    ck_assert_int_eq(memcmp(&tls, &thread_tls, sizeof(tls)), 0);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 1);
    check_values(at_site(turn(), 0), 1, 1);
}
END_TEST

/* vfork by its real effect: another process runs on this memory and this TLS. */
START_TEST(a_vfork_child_writes_nothing)
{
    start(1);
    allocate(1);
    pid_t child = vfork();
    if (child == 0) {
        allocate(64);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    allocate(2);
    check_values(at_site(turn(), 0), 2, 3);
}
END_TEST

/* ---- when something is lacking ---- */

START_TEST(without_a_buffer_bytes_are_folded)
{
    start(1);
    struct record_stack *claimed[SCRATCH_BUFFERS];
    for (int i = 0; i < SCRATCH_BUFFERS; i++)
        ck_assert_ptr_nonnull(claimed[i] = scratch_claim());
    ck_assert_ptr_null(scratch_claim());
    site = 7;
    allocate(100);
    scratch_give(claimed[5]);
    allocate(10);
    struct window *window = turn();
    check_values(at_site(window, PSEUDO_UNKNOWN), 1, 100);
    check_values(at_site(window, 7), 1, 10);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_DROPPED_BUSY), 1);
    ck_assert_ptr_eq(scratch_claim(), claimed[5]);
}
END_TEST

START_TEST(without_a_slot_a_sample_is_dropped_and_counted)
{
    start(1);
    for (int i = 0; i < THREAD_SLOTS; i++)
        ck_assert_ptr_nonnull(thread_prepare(1, NULL));
    allocate(100);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_DROPPED_UNTRACKED), 1);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 0);
    ck_assert_uint_eq(thread_tls.inside, 0);
    thread_release_slot(thread_slot_at(9));
    allocate(100);
    check_values(at_site(turn(), 0), 1, 100);
}
END_TEST

START_TEST(a_walk_without_a_frame_counts_as_unknown)
{
    start(1);
    walk_frames = 0;
    walk_flags = 0;
    allocate(100);
    check_values(at_site(turn(), PSEUDO_UNKNOWN), 1, 100);
    ck_assert_uint_eq(stats_get(STAT_STACKS_INCOMPLETE), 1);
    walk_flags = UNWIND_CUT;
    allocate(100);
    ck_assert_uint_eq(stats_get(STAT_STACKS_INCOMPLETE), 1);
    ck_assert_uint_eq(stats_get(STAT_STACKS_CUT), 1);
}
END_TEST

static pthread_key_t late_key;
static int late_rounds;

static void allocate_late(void *value)
{
    if (late_rounds++ < 2)
        pthread_setspecific(late_key, value);
    allocate(10);
    if (thread_tls.left)
        ck_assert_ptr_null(thread_tls.slot);
}

static void *set_late_key(void *argument)
{
    allocate(1);
    pthread_setspecific(late_key, &late_key);
    return argument;
}

START_TEST(teardown_counts_and_leaves_no_slot_behind)
{
    start(1);
    pthread_key_create(&late_key, allocate_late);
    pthread_t thread;
    pthread_create(&thread, NULL, set_late_key, NULL);
    pthread_join(thread, NULL);
    ck_assert_int_eq(late_rounds, 3); /* the agent's record ends in the second */
    check_values(at_site(turn(), 0), 4, 31);
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        ck_assert_uint_eq(thread_slot_at(i)->state, SLOT_FREE);
}
END_TEST

START_TEST(errno_is_left_alone)
{
    start(1);
    errno = 4711;
    allocate(100);
    alloc_stop();
    allocate(100);
    ck_assert_int_eq(errno, 4711);
}
END_TEST

START_TEST(the_cost_of_a_hook_is_known)
{
    start(1);
    allocate(100);
    struct thread_slot *slot = thread_tls.slot;
    ck_assert_uint_eq(slot->overhead_ns, 0);
    alloc_start(1, true);
    uint64_t accounted = slot->cpu_last_ns;
    uint64_t before = clock_thread_cpu_ns();
    for (int i = 0; i < 1000; i++)
        allocate(100);
    uint64_t spent = clock_thread_cpu_ns() - before;
    ck_assert_uint_gt(slot->overhead_ns, 0);
    ck_assert_uint_le(slot->overhead_ns, spent);
    /* None of it is the app's. */
    ck_assert_uint_eq(slot->cpu_last_ns - accounted, slot->overhead_ns);
    ck_assert_uint_eq(stats_get(STAT_OVERHEAD_NS), slot->overhead_ns);
}
END_TEST

static uint32_t moments;
static void count_moment(void)
{
    /* Neither a second sample nor a handler's may come in here. */
    ck_assert_uint_eq(thread_tls.inside, 1);
    ck_assert(thread_guard_quiescent(0));
    moments++;
}

START_TEST(only_a_clean_stack_is_a_moment)
{
    start(1);
    moment_work = count_moment;
    moment_set_due_now();
    allocate(100);
    ck_assert_uint_eq(moments, 0);
    walk_flags = UNWIND_COMPLETE | UNWIND_CLEAN;
    allocate(100);
    ck_assert_uint_eq(moments, 1);
}
END_TEST

START_TEST(a_stack_that_was_probed_stays_known)
{
    start(1);
    allocate(100);
    struct thread_slot *slot = thread_tls.slot;
    uintptr_t low = slot->stack_low;
    allocate(100);
    ck_assert_uint_eq(slot->stack_low, low - 4096);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("alloc_sample");
    TCase *truth = tcase_create("truth");
    tcase_set_timeout(truth, 60);
    tcase_add_test(truth, a_weight_is_one_over_the_probability);
    tcase_add_test(truth, a_weight_is_at_least_one);
    tcase_add_loop_test(truth, every_site_is_sampled_without_bias, 0, (int)ARRAY_SIZE(cases));
    tcase_add_test(truth, the_first_allocation_of_a_thread_is_like_any_other);
    tcase_add_test(truth, interval_one_is_exact);
    tcase_add_test(truth, interval_one_is_exact_in_many_threads);
    suite_add_tcase(suite, truth);
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, size_zero_counts_as_one_byte);
    tcase_add_test(rules, a_failed_call_is_not_counted);
    tcase_add_loop_test(rules, nested_calls_count_once, 0, 2);
    tcase_add_test(rules, a_nested_call_before_sampling_began_counts_once);
    tcase_add_test(rules, a_thread_of_the_agent_counts_nothing);
    tcase_add_test(rules, what_the_agent_allocates_is_not_counted);
    tcase_add_loop_test(rules, nothing_is_counted_after_a_stop, 0, 2);
    tcase_add_test(rules, a_start_reaches_threads_that_found_sampling_off);
    tcase_add_test(rules, on_foreign_tls_nothing_is_written);
    tcase_add_test(rules, a_vfork_child_writes_nothing);
    suite_add_tcase(suite, rules);
    TCase *lacks = tcase_create("lacks");
    tcase_add_test(lacks, without_a_buffer_bytes_are_folded);
    tcase_add_test(lacks, without_a_slot_a_sample_is_dropped_and_counted);
    tcase_add_test(lacks, a_walk_without_a_frame_counts_as_unknown);
    tcase_add_test(lacks, teardown_counts_and_leaves_no_slot_behind);
    suite_add_tcase(suite, lacks);
    TCase *manners = tcase_create("manners");
    tcase_add_test(manners, errno_is_left_alone);
    tcase_add_test(manners, the_cost_of_a_hook_is_known);
    tcase_add_test(manners, only_a_clean_stack_is_a_moment);
    tcase_add_test(manners, a_stack_that_was_probed_stays_known);
    suite_add_tcase(suite, manners);
    return suite;
}
