/* The truth of allocation profiles: what a sample stands for, and that no site has a bias. The walk
 * is a stand-in (a site is a number); all else is real: tables, slots, random gaps.
 *
 * The statistical test is a comparison with a binomial variate: of N allocations with the
 * probability p each is sampled by itself, so that K of them are. Bernstein's inequality, valid
 * for every N and p: P(|K - N p| > t) <= 2 exp(-t^2 / (2 (N p (1 - p) + t / 3))). The bound t is
 * chosen for a right hand side of 1e-12, and there are fewer than 1,000 comparisons: a false
 * alarm comes less often than once in 1e9 runs. */
#include "test/check.h"

#include <math.h>
#include <pthread.h>

#include "agent/agent_hot.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "test/record_fixture.h"
#include "test/stand_in_walk.h"

static void start(uint64_t interval)
{
    fixture_start((size_t)32 << 20);
    alloc_start(interval);
}

/* An allocation that went well. */
static void allocate(size_t size)
{
    agent_allocated(&walk_site, size);
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
    if (fabs(weight - truth) > 0.5 + 1e-11 * truth)
        ck_abort_msg("size %zu, interval %lu: %f, not %f", size, interval, weight, truth);
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
enum { SIZES = ARRAY_SIZE(sizes) };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 3 };
#else
enum { SEEDS = 20 };
#endif
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

/* As the hook of malloc does it, which looks before it knows. */
static void fail_to_allocate(size_t size)
{
    if (agent_sample_is_due(size))
        alloc_sample_inside_hook(NULL, size);
}

/* Failed calls in between change nothing: those of the interval's own size, which a gap outlives
 * as often as not, would show it most. */
START_TEST(every_site_is_sampled_without_bias)
{
    uint64_t interval = cases[_i / 2].interval;
    bool failing = _i % 2;
    double sampled_of_all[SIZES] = {0}, made_of_all[SIZES] = {0};
    struct rng rng = {(uint64_t)_i};
    start(interval);
    for (int seed = 0; seed < SEEDS; seed++) {
        uint64_t made[SIZES] = {0};
        alloc_start(interval); /* this thread begins anew, with a seed of its own */
        for (int i = 0; i < cases[_i / 2].stream; i++) {
            size_t index = draw_size(&rng);
            if (failing)
                fail_to_allocate(interval);
            walk_site = 1000 + index;
            made[index]++;
            allocate(sizes[index]);
        }
        struct window *window = fixture_turn();
        for (size_t i = 0; i < SIZES; i++) {
            struct record_values values = fixture_at(window, RECORD_ALLOC, 1000 + i);
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
    walk_site = 1000;
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
    double sampled = (double)fixture_at(fixture_turn(), RECORD_ALLOC, 1000).count /
                     (double)alloc_weight(64, 256);
    check_count(sampled, NEWBORNS, 64, 256);
}
END_TEST

/* ---- nested calls ---- */

/* calloc whose next definition calls the malloc hook, `depth` times over. */
static void allocate_nested(size_t size, int depth)
{
    uint64_t saved = agent_nested_begin();
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
    walk_site = 7;
    uint64_t made = 10000;
    for (uint64_t i = 0; i < made; i++)
        allocate_nested(40, 1 + (int)(i % 3));
    struct record_values values = fixture_at(fixture_turn(), RECORD_ALLOC, 7);
    ck_assert_uint_eq(thread_tls.alloc_depth, 0);
    if (_i)
        check_count((double)values.count / (double)alloc_weight(40, 4096), (double)made, 40, 4096);
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
    uint64_t saved = agent_nested_begin();
    allocate(16);
    agent_nested_end(saved);
    alloc_start(1);
    allocate(40);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 2, 80);
}
END_TEST

/* ---- interval 1 ---- */

START_TEST(interval_one_is_exact)
{
    start(1);
    uint64_t objects = 0, bytes = 0;
    for (size_t size = 1; size <= (size_t)1 << 40; size = size * 3 / 2 + 1) {
        walk_site = 7;
        allocate(size);
        objects++, bytes += size;
    }
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 7), objects, bytes);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), objects);
}
END_TEST

enum { THREADS = 4, EACH = 20000 };

static void *allocate_many(void *argument)
{
    for (size_t i = 0; i < EACH; i++) {
        walk_site = 100 + i % 10;
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
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_rows(window), THREADS * 10);
    for (uint64_t digit = 0; digit < 10; digit++) {
        uint64_t objects = THREADS * EACH / 10, bytes = 0;
        for (uint64_t tens = 0; tens < 10; tens++)
            bytes += objects / 10 * (tens * 10 + digit + (tens + digit == 0));
        check_values(fixture_at(window, RECORD_ALLOC, 100 + digit), objects, bytes);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("alloc_truth");
    TCase *truth = tcase_create("truth");
    tcase_set_timeout(truth, 60);
    tcase_add_test(truth, a_weight_is_one_over_the_probability);
    tcase_add_test(truth, a_weight_is_at_least_one);
    tcase_add_loop_test(truth, every_site_is_sampled_without_bias, 0, 2 * (int)ARRAY_SIZE(cases));
    tcase_add_test(truth, the_first_allocation_of_a_thread_is_like_any_other);
    tcase_add_loop_test(truth, nested_calls_count_once, 0, 2);
    tcase_add_test(truth, a_nested_call_before_sampling_began_counts_once);
    tcase_add_test(truth, interval_one_is_exact);
    tcase_add_test(truth, interval_one_is_exact_in_many_threads);
    suite_add_tcase(suite, truth);
    return suite;
}
